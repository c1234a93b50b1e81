package redisstore_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/redisstore"
)

const processes = 3

// TestThreeProcesses starts three processes of the test binary that request ten times the limit of one key. With exact
// accuracy exactly the limit must be admitted, with leases at most the limit.
func TestThreeProcesses(t *testing.T) {
	requests := int64(60_000)
	if os.Getenv("SLUICE_SOAK") != "" {
		requests = 1_000_000
	}
	if url := os.Getenv("SLUICE_TEST_REDIS"); url != "" {
		fmt.Printf("granted %d\n", contend(t, url, requests))
		return
	}
	for accuracy, name := range []string{"exact", "lease"} {
		t.Run(name, func(t *testing.T) {
			url := redistest.Start(t).URL()
			var all sync.WaitGroup
			var granted atomic.Int64
			for range processes {
				all.Go(func() {
					cmd := exec.Command(os.Args[0], "-test.run=^TestThreeProcesses$", "-test.v")
					cmd.Env = append(os.Environ(), "SLUICE_TEST_REDIS="+url, "SLUICE_TEST_ACCURACY="+strconv.Itoa(accuracy))
					out, err := cmd.CombinedOutput()
					_, count, found := strings.Cut(string(out), "granted ")
					n, bad := strconv.Atoi(strings.Fields(count + " -")[0])
					if err != nil || !found || bad != nil {
						t.Errorf("%v\n%s", err, out)
					}
					granted.Add(int64(n))
				})
			}
			all.Wait()
			// With leases some quota may be lost with a process that exits, but the limit is never exceeded.
			want, least := requests/10, requests/10
			if name == "lease" {
				least = want * 98 / 100
			}
			if n := granted.Load(); n > want || n < least {
				t.Errorf("admitted %d, limit %d", n, want)
			}
		})
	}
}

// contend runs one of the processes.
func contend(t *testing.T, url string, requests int64) int64 {
	accuracy, err := strconv.Atoi(os.Getenv("SLUICE_TEST_ACCURACY"))
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, redisstore.Config{URL: url})
	rule := sluice.Must(sluice.NewRule(sluice.Rule{
		Name: "hot", Limit: sluice.Limit{Count: requests / 10, Window: 24 * time.Hour, Algorithm: sluice.FixedWindow, Align: sluice.AlignFirstRequest},
		Accuracy: sluice.Accuracy(accuracy), OnFailure: sluice.FailClosed,
	}))
	l := sluice.Must(sluice.NewWithRules(s, []*sluice.Rule{rule},
		sluice.WithStoreTimeout(time.Minute), sluice.WithInstances(func() int { return processes })))
	defer func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	var granted, asked atomic.Int64
	var all sync.WaitGroup
	for range 64 / processes {
		all.Go(func() {
			for asked.Add(1) <= requests/processes {
				d, err := l.Allow(context.Background(), "k")
				if err != nil || d.Source.Degraded() {
					t.Errorf("%+v %v", d, err)
					return
				}
				granted.Add(d.Granted)
			}
		})
	}
	all.Wait()
	return granted.Load()
}
