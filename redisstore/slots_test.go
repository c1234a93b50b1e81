package redisstore_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
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

const (
	inFlightMost  = 5
	inFlightLease = 2 * time.Second
)

// slotLimiter returns a limiter with the concurrency limit that all processes of a test share.
func slotLimiter(t *testing.T, url string) *sluice.Limiter {
	rule := sluice.Must(sluice.NewRule(sluice.Rule{
		Name: "flight", Limit: sluice.Concurrent(inFlightMost).WithPermitTTL(inFlightLease), OnFailure: sluice.FailClosed,
	}))
	return sluice.Must(sluice.NewWithRules(open(t, redisstore.Config{URL: url}), []*sluice.Rule{rule}, sluice.WithStoreTimeout(time.Minute)))
}

// TestSlotsOfThreeProcesses: three processes with 64 callers in total hold permits of one key, some for longer than the
// TTL. A counter in Redis that callers increment while they hold a permit must never exceed the limit.
func TestSlotsOfThreeProcesses(t *testing.T) {
	if url := os.Getenv("SLUICE_TEST_REDIS"); url != "" {
		fmt.Printf("held %s\n", flyTogether(t, url))
		return
	}
	t.Parallel()
	server := redistest.Start(t)
	var all sync.WaitGroup
	var held, most atomic.Int64
	for range processes {
		all.Go(func() {
			cmd := exec.Command(os.Args[0], "-test.run=^TestSlotsOfThreeProcesses$", "-test.v")
			cmd.Env = append(os.Environ(), "SLUICE_TEST_REDIS="+server.URL())
			out, err := cmd.CombinedOutput()
			_, said, _ := strings.Cut(string(out), "held ")
			var n, m int64
			if _, bad := fmt.Sscanf(said, "%d most %d", &n, &m); err != nil || bad != nil {
				t.Errorf("%v\n%s", err, out)
			}
			held.Add(n)
			for seen := most.Load(); m > seen && !most.CompareAndSwap(seen, m); seen = most.Load() {
			}
		})
	}
	all.Wait()
	if most.Load() > inFlightMost {
		t.Errorf("%d in flight, limit %d", most.Load(), inFlightMost)
	}
	if most.Load() < inFlightMost || held.Load() < 300 {
		t.Errorf("at most %d in flight and %d in total: too few for a test", most.Load(), held.Load())
	}
	l := slotLimiter(t, server.URL())
	if d, err := l.Peek(t.Context(), "k"); err != nil || d.Remaining != inFlightMost {
		t.Errorf("after all releases %d permits are free, error %v", d.Remaining, err)
	}
}

// flyTogether runs one of the processes.
func flyTogether(t *testing.T, url string) string {
	l := slotLimiter(t, url)
	var held, most atomic.Int64
	var all sync.WaitGroup
	for i := range 64 / processes {
		all.Go(func() {
			count := counter(t, url)
			for first := true; held.Load() < 100; {
				slot, d, err := l.Acquire(context.Background(), "k")
				if err != nil || d.Source.Degraded() {
					t.Errorf("%+v %v", d, err)
					return
				}
				if slot == nil {
					continue
				}
				held.Add(1)
				n := count("INCR")
				for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
				}
				hold := 2 * time.Millisecond
				if i == 0 && first {
					hold = inFlightLease * 5 / 4 // longer than the TTL
				}
				first = false
				<-time.After(hold)
				count("DECR")
				slot.Release(context.Background())
			}
		})
	}
	all.Wait()
	return fmt.Sprintf("%d most %d", held.Load(), most.Load())
}

// counter returns a function that changes a number in Redis independently of the store.
func counter(t *testing.T, url string) func(command string) int64 {
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "redis://"))
	if err != nil {
		t.Error(err)
		return func(string) int64 { return 0 }
	}
	t.Cleanup(func() { conn.Close() })
	answers := bufio.NewReader(conn)
	return func(command string) int64 {
		fmt.Fprintf(conn, "%s in-flight\r\n", command)
		line, err := answers.ReadString('\n')
		n, bad := strconv.ParseInt(strings.Trim(line, ":\r\n"), 10, 64)
		if err != nil || bad != nil {
			t.Errorf("%s: %q, %v", command, line, err)
		}
		return n
	}
}

// TestSlotsOfAProcessThatIsKilled checks that a running process keeps its permits, and that the permits of a killed
// process become free when their TTL ends.
func TestSlotsOfAProcessThatIsKilled(t *testing.T) {
	ctx := context.Background()
	if url := os.Getenv("SLUICE_TEST_REDIS"); url != "" {
		l := slotLimiter(t, url)
		for range inFlightMost {
			if slot, d, err := l.Acquire(ctx, "k"); slot == nil || err != nil {
				t.Fatalf("%+v %v", d, err)
			}
		}
		fmt.Println("holding")
		select {} // until it is killed
	}
	t.Parallel()
	server := redistest.Start(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestSlotsOfAProcessThatIsKilled$", "-test.v")
	cmd.Env = append(os.Environ(), "SLUICE_TEST_REDIS="+server.URL())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	said := bufio.NewScanner(out)
	for said.Scan() && said.Text() != "holding" {
	}
	l := slotLimiter(t, server.URL())
	for range 15 { // 1.5 times the TTL
		if slot, d, err := l.Acquire(ctx, "k"); slot != nil || err != nil {
			t.Fatalf("the process runs, but a permit is free: %+v, %v", d, err)
		}
		<-time.After(inFlightLease / 10)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	d, err := l.Peek(ctx, "k")
	if err != nil || d.ResetAfter > inFlightLease {
		t.Fatalf("%+v %v", d, err)
	}
	<-time.After(d.ResetAfter + time.Millisecond) // both processes have the same clock
	for i := range inFlightMost {
		slot, d, err := l.Acquire(ctx, "k")
		if slot == nil || err != nil {
			t.Fatalf("permit %d was not freed: %+v, %v", i, d, err)
		}
		defer slot.Release(ctx)
	}
}
