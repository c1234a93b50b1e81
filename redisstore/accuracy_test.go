package redisstore_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/redisstore"
)

// Eight processes share a limit and are offered ten times the limit.
const (
	sharers      = 8
	offeredTimes = 10
)

// offered holds the number of requests offered to one process, and the number admitted per window of the server's
// clock.
type offered struct {
	Asked   int64
	Windows map[int64]int64
}

// offer requests one process's part of ten times the limit for a while. The speed of the machine only changes the
// number of requests.
func offer(t *testing.T, store sluice.Store, rule sluice.Rule, d time.Duration) offered {
	l := sluice.Must(sluice.NewWithRules(store, []*sluice.Rule{sluice.Must(sluice.NewRule(rule))},
		sluice.WithStoreTimeout(time.Minute), sluice.WithInstances(func() int { return sharers })))
	defer func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	got := offered{Windows: make(map[int64]int64)}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); time.Since(start) < d; <-tick.C {
		for due := int64(rule.Limit.Rate() * offeredTimes / sharers * time.Since(start).Seconds()); got.Asked < due; got.Asked++ {
			decision, err := l.Allow(context.Background(), "hot")
			if err != nil || decision.Source.Degraded() {
				t.Errorf("%+v %v", decision, err)
				return got
			}
			if decision.Allowed {
				got.Windows[decision.Receipt/rule.Limit.Window.Microseconds()]++
			}
		}
	}
	return got
}

// sum adds up the results of all processes.
func sum(all []offered) offered {
	total := offered{Windows: make(map[int64]int64)}
	for _, one := range all {
		total.Asked += one.Asked
		for w, n := range one.Windows {
			total.Windows[w] += n
		}
	}
	return total
}

var scriptCalls = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`)

// calls returns how often the server ran the script.
func calls(t *testing.T, server *redistest.Server) int64 {
	t.Helper()
	found := scriptCalls.FindStringSubmatch(do(t, server, "INFO", "commandstats"))
	if found == nil {
		t.Fatal("the server has run no script")
	}
	return sluice.Must(strconv.ParseInt(found[1], 10, 64))
}

// TestLeasesOfEightProcesses starts eight processes of the test binary that use leases. No window of the server's clock
// may admit more than the limit, and a store call must serve at least 50 decisions on average.
func TestLeasesOfEightProcesses(t *testing.T) {
	const limit = 4000
	rule := sluice.Rule{
		Name: "leased", Limit: sluice.PerSecond(limit).WithAlgorithm(sluice.FixedWindow), Accuracy: sluice.AccuracyLease, OnFailure: sluice.FailClosed,
	}
	if url := os.Getenv("SLUICE_TEST_REDIS"); url != "" {
		got := offer(t, open(t, redisstore.Config{URL: url}), rule, 3500*time.Millisecond)
		fmt.Printf("offered %s\n", sluice.Must(json.Marshal(got)))
		return
	}
	server := redistest.Start(t)
	all := make([]offered, sharers)
	var wait sync.WaitGroup
	for i := range all {
		wait.Go(func() {
			cmd := exec.Command(os.Args[0], "-test.run=^TestLeasesOfEightProcesses$", "-test.v")
			cmd.Env = append(os.Environ(), "SLUICE_TEST_REDIS="+server.URL())
			out, err := cmd.CombinedOutput()
			_, line, found := strings.Cut(string(out), "offered ")
			line, _, _ = strings.Cut(line, "\n")
			if err != nil || !found {
				t.Errorf("%v\n%s", err, out)
			} else if err := json.Unmarshal([]byte(line), &all[i]); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	total, calls := sum(all), calls(t, server)
	t.Logf("%d decisions, %d calls, admitted per window of %d: %v", total.Asked, calls, limit, total.Windows)
	full := 0
	for w, n := range total.Windows {
		if n > limit {
			t.Errorf("window %d admitted %d of %d", w, n, limit)
		}
		if n >= limit*98/100 {
			full++
		}
	}
	if len(total.Windows) < 3 || full == 0 {
		t.Errorf("%d of %d windows were used to 98%%", full, len(total.Windows))
	}
	if total.Asked < 50*calls {
		t.Errorf("%d decisions took %d calls, want at least 50 decisions per call", total.Asked, calls)
	}
}

// TestEventualOfEightStores runs eight limiters, each with its own store, that use local estimates and sync them. A
// window may admit only a little more than the limit, with a few store calls per second regardless of the load. The
// exact bound is tested on a virtual clock. Here the machine decides when a sync runs, so a bound of 500 ms for it is
// checked only with SLUICE_SOAK, on an idle machine.
func TestEventualOfEightStores(t *testing.T) {
	const limit = 8000
	for _, of := range []sluice.Limit{
		sluice.Per(limit, 2*time.Second).WithAlgorithm(sluice.FixedWindow), sluice.Per(limit, 2*time.Second).WithAlgorithm(sluice.SlidingWindowCounter),
		sluice.Per(limit, 2*time.Second),
	} {
		t.Run(of.Algorithm.String(), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			rule := sluice.Rule{Name: "eventual", Limit: of, Accuracy: sluice.AccuracyEventual, OnFailure: sluice.FailClosed}
			const d = 3 * time.Second
			all := make([]offered, sharers)
			var wait sync.WaitGroup
			for i := range all {
				store := open(t, redisstore.Config{URL: server.URL()})
				wait.Go(func() { all[i] = offer(t, store, rule, d) })
			}
			wait.Wait()
			total, calls := sum(all), calls(t, server)
			admitted := int64(0)
			for _, n := range total.Windows {
				admitted += n
			}
			t.Logf("%d decisions, %d calls, admitted %d: %v", total.Asked, calls, admitted, total.Windows)
			most := int64(limit + of.Rate()*offeredTimes/2)
			if os.Getenv("SLUICE_SOAK") == "" {
				most = total.Asked / 2
			}
			if of.Algorithm == sluice.TokenBucket { // a burst, then the rate
				if most += int64(of.Rate() * d.Seconds()); admitted > most || admitted < limit+int64(of.Rate()) {
					t.Errorf("admitted %d, want at most %d", admitted, most)
				}
			}
			if admitted < limit {
				t.Errorf("admitted %d in total, want at least the %d of one window", admitted, limit)
			}
			for w, n := range total.Windows {
				if of.Algorithm != sluice.TokenBucket && n > most {
					t.Errorf("window %d admitted %d, want at most %d", w, n, most)
				}
			}
			// One first call per process, then 10 syncs per second.
			if total.Asked < 50*calls {
				t.Errorf("%d decisions took %d calls, want at least 50 decisions per call", total.Asked, calls)
			}
			// Closing reports all usage, so the reported usage equals the admitted number.
			if of.Algorithm == sluice.TokenBucket {
				return
			}
			reported(t, server, rule, total.Windows)
		})
	}
}

// reported checks that the usage at the server equals the number admitted in its current window, if windows contains
// that.
func reported(t *testing.T, server *redistest.Server, rule sluice.Rule, windows map[int64]int64) {
	t.Helper()
	more := rule.Limit
	more.Count = 1_000_000
	out := apply(t, open(t, redisstore.Config{URL: server.URL()}), sluice.Take{
		Rule: sluice.Must(sluice.NewRule(rule)), Limit: sluice.Must(more.Build()), Key: "hot",
	})[0]
	now := out.Receipt / rule.Limit.Window.Microseconds()
	if n, ok := windows[now]; ok && rule.Limit.Algorithm == sluice.FixedWindow && more.Count-out.Remaining != n {
		t.Errorf("the server counts %d in this window, want the %d admitted", more.Count-out.Remaining, n)
	}
}
