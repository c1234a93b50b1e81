package redisstore_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/redisstore"
)

// clientGoroutines returns the stacks of the goroutines of a store or its client by goroutine number. Goroutines of
// tests are excluded: this one, and those of parallel tests of the package that have not started yet.
func clientGoroutines() map[string]string {
	stacks := make(map[string]string)
	b := make([]byte, 16<<20)
	b = b[:runtime.Stack(b, true)]
	for _, g := range strings.Split(string(b), "\n\n") {
		ofTests := strings.Contains(g, "redisstore_test.") || strings.Contains(g, "\ntesting.tRunner(")
		if (strings.Contains(g, "redis/rueidis") || strings.Contains(g, "sluice/redisstore.")) && !ofTests {
			number, _, _ := strings.Cut(g, " [")
			stacks[number] = g
		}
	}
	return stacks
}

// TestCloseUnderLoad checks that closing a store in use leaves no goroutine. It must not run in parallel with other
// tests.
func TestCloseUnderLoad(t *testing.T) {
	before := clientGoroutines() // left by earlier tests
	server := redistest.Start(t)
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerMinute(5)}))
	for range 30 {
		store, err := redisstore.Open(redisstore.Config{URL: server.URL()})
		if err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		busy := make(chan struct{}, 8)
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				for n := 0; ; n++ {
					if n == 5 {
						busy <- struct{}{}
					}
					select {
					case <-stop:
						return
					default:
					}
					ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
					_ = store.Apply(ctx, []sluice.Take{{Rule: rule, Key: "k", Cost: 1}}, make([]sluice.Decision, 1))
					cancel()
				}
			})
		}
		for range 8 {
			<-busy
		}
		store.Close()
		close(stop)
		callers.Wait()
	}
	var left []string
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); runtime.Gosched() {
		left = nil
		for number, stack := range clientGoroutines() {
			if _, ok := before[number]; !ok {
				left = append(left, stack)
			}
		}
		if len(left) == 0 {
			return
		}
	}
	t.Errorf("%d goroutines are left:\n%s", len(left), strings.Join(left, "\n\n"))
}
