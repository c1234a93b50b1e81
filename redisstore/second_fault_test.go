package redisstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/redisstore"
)

// instance is one instance of a group that shares a limit.
type instance struct {
	*sluice.Limiter
	store *redisstore.Store
}

func newInstance(t *testing.T, server *redistest.Server, rule *sluice.Rule) instance {
	t.Helper()
	store := open(t, redisstore.Config{URL: server.URL()})
	if err := store.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var beats sync.WaitGroup
	beats.Go(func() { _ = store.Heartbeat(ctx) })
	t.Cleanup(func() {
		stop()
		beats.Wait()
	})
	l := sluice.Must(sluice.NewWithRules(store, []*sluice.Rule{rule}, sluice.WithInstances(store.Instances), sluice.WithStoreTimeout(time.Second)))
	return instance{l, store}
}

// TestSecondFault stops the server for good soon after two instances have started, or after it has lost its data or was
// restarted. Together they must then admit at most limit + instances − 1, whether or not they had used the key before.
func TestSecondFault(t *testing.T) {
	const limit = 50
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerDay(limit).WithAlgorithm(sluice.FixedWindow)}))
	flush := func(t *testing.T, s *redistest.Server) { do(t, s, "FLUSHALL") }
	restart := func(t *testing.T, s *redistest.Server) {
		s.Kill()
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		known    int                                 // wait until all instances have this number of instances
		event    func(*testing.T, *redistest.Server) // before the final failure
		forgives bool                                // the event removes earlier usage
		ask      int                                 // number of calls between both
	}{
		"after a start":             {},
		"after a start and a call":  {ask: 1},
		"after some time":           {known: 2},
		"after FLUSHALL":            {known: 2, event: flush},
		"after FLUSHALL and a call": {known: 2, event: flush, forgives: true, ask: 1},
		"after a restart":           {known: 2, event: restart},
		"after a restart and calls": {known: 2, event: restart, ask: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			both := []instance{newInstance(t, server, rule), newInstance(t, server, rule)}
			for tick := time.Tick(5 * time.Millisecond); both[0].store.Instances() < tt.known || both[1].store.Instances() < tt.known; {
				<-tick
			}
			admitted := map[string]int64{}
			ask := func(key string, times int) {
				for range times {
					for _, one := range both {
						d, err := one.Allow(t.Context(), key)
						if err != nil {
							t.Fatal(err)
						}
						admitted[key] += d.Granted
					}
				}
			}
			ask("used", 8)
			if tt.event != nil {
				tt.event(t, server)
			}
			if tt.forgives && tt.ask > 0 {
				admitted["used"] = 0 // as after a reset
			}
			ask("used", tt.ask)
			server.Kill()
			ask("used", 60)
			ask("new", 60)
			t.Logf("admitted of %d: %v; numbers of instances: %d and %d", limit, admitted, both[0].store.Instances(), both[1].store.Instances())
			for key, n := range admitted {
				if n > limit+1 {
					t.Errorf("admitted %d of the %s key, want at most %d", n, key, limit+1)
				}
			}
			if tt.known > 0 && admitted["new"] != limit {
				t.Errorf("admitted %d of %d of a new key by instances that count each other", admitted["new"], limit)
			}
		})
	}
}
