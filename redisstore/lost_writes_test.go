package redisstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/redisstore"
)

// lossy contains a limit of 40 for each kind.
var lossy = map[string]sluice.Limit{
	"token_bucket":    sluice.PerDay(40),
	"odd_rate":        sluice.Per(40, 86_399_999*time.Millisecond),
	"leaky_queue":     sluice.PerDay(40).WithAlgorithm(sluice.LeakyQueue),
	"interval_bucket": {Count: 40, Window: 24 * time.Hour, Refill: sluice.RefillInterval, Align: sluice.AlignFirstRequest},
	"first_hit":       sluice.PerDay(40).WithAlgorithm(sluice.FixedWindow).WithAlign(sluice.AlignFirstRequest),
	"fixed_window":    sluice.Per(40, 300*24*time.Hour).WithAlgorithm(sluice.FixedWindow),
	"sliding_counter": sluice.Per(40, 300*24*time.Hour).WithAlgorithm(sluice.SlidingWindowCounter),
	"sub_windows":     {Count: 40, Window: 300 * 24 * time.Hour, Algorithm: sluice.SlidingWindowCounter, SubWindows: 2},
	"sliding_log":     sluice.PerDay(40).WithAlgorithm(sluice.SlidingWindowLog),
}

// TestLostWrites: a replica that was disconnected at a usage of 10 of 40 is promoted at 30. Without hints the 20 in
// between are granted again. With hints they are not, except for the calls that each process sends before it sees the
// new connection, and the usage of others since its last reply. Logs have no hints.
func TestLostWrites(t *testing.T) {
	const processes, limit = 3, 40
	for _, hints := range []bool{false, true} {
		t.Run(map[bool]string{false: "without", true: "with"}[hints], func(t *testing.T) {
			primary := redistest.Start(t, "--repl-diskless-sync-delay", "0")
			host, port, _ := strings.Cut(primary.Addr, ":")
			replica := redistest.Start(t, "--repl-diskless-sync-delay", "0", "--replicaof", host, port)
			f := forward(t, primary.Addr)
			var stores []*redisstore.Store
			for range processes {
				s := open(t, redisstore.Config{URL: f.URL()})
				if !hints {
					s.WithoutHints()
				}
				stores = append(stores, s)
			}
			turn, admitted := 0, map[string]int{}
			var rules []*sluice.Rule
			for name, l := range lossy {
				rules = append(rules, sluice.Must(sluice.NewRule(sluice.Rule{Name: name, Limit: l})))
			}
			// take lets the processes take in turn, for every rule separately.
			take := func(times int) {
				for range times {
					for _, r := range rules {
						if takeLost(t, stores[turn%processes], r) {
							admitted[r.Name]++
						}
					}
					turn++
				}
			}
			take(10)
			for !caughtUp(t, primary, replica) {
				<-time.After(5 * time.Millisecond)
			}
			do(t, replica, "REPLICAOF", "NO", "ONE")
			take(20)
			primary.Kill()
			f.turn(replica.Addr)
			take(2 * limit)
			for name, n := range admitted {
				lost := limit + 20
				switch bound := limit + processes - 1 + processes; {
				case hints && name != "sliding_log" && (n < limit || n > bound):
					t.Errorf("%s: admitted %d of %d over a failover with hints, want at most %d", name, n, limit, bound)
				case (!hints || name == "sliding_log") && n != lost:
					t.Errorf("%s: admitted %d of %d over a failover without hints, want %d", name, n, limit, lost)
				}
			}
			t.Log(admitted)
		})
	}
}

// caughtUp reports whether a replica has all writes of its primary.
func caughtUp(t *testing.T, primary, replica *redistest.Server) bool {
	t.Helper()
	_, offset, _ := strings.Cut(do(t, primary, "INFO", "replication"), "master_repl_offset:")
	offset, _, _ = strings.Cut(offset, "\r")
	info := do(t, replica, "INFO", "replication")
	return strings.Contains(info, "master_link_status:up") && strings.Contains(info, "slave_repl_offset:"+offset+"\r")
}

// takeLost takes one unit, and again if the connection was lost.
func takeLost(t *testing.T, s *redisstore.Store, r *sluice.Rule) bool {
	t.Helper()
	out := make([]sluice.Decision, 1)
	var err error
	for range 100 {
		err = s.Apply(t.Context(), []sluice.Take{{Rule: r, Key: "k", Cost: 1}}, out)
		if !errors.Is(err, sluice.ErrUnavailable) {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return out[0].Allowed
}
