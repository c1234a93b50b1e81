package envoyratelimit

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

// flaky is a store that can be made to fail.
type flaky struct {
	sluice.Store
	away atomic.Bool
}

func (*flaky) Shards() int            { return 1 }
func (*flaky) Shard(*sluice.Take) int { return 0 }

func (s *flaky) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	if s.away.Load() {
		return fmt.Errorf("dial tcp: no route: %w", sluice.ErrUnavailable)
	}
	return s.Store.Apply(ctx, takes, out)
}

func TestFailModes(t *testing.T) {
	const lost = "rpc error: code = Unknown desc = dial tcp: no route: sluice: store is unavailable"
	for _, tt := range []struct {
		mode  string
		rules string
		want  []string // answers while the store is away
	}{
		{"error", "  - {key: a, limit: 3}\n", []string{lost, lost}},
		{"open", "  - {key: a, limit: 3}\n", []string{"OK: OK 3/YEAR left 3", "OK: OK 3/YEAR left 3"}},
		{"closed", "  - {key: a, limit: 3}\n", []string{"OVER_LIMIT: OVER_LIMIT 3/YEAR left 0", "OVER_LIMIT: OVER_LIMIT 3/YEAR left 0"}},
		{"local", "  - {key: a, limit: 3}\n", []string{
			"OK: OK 3/YEAR left 1", "OK: OK 3/YEAR left 0", "OVER_LIMIT: OVER_LIMIT 3/YEAR left 0",
		}},
		{"error", "  - {key: a, rate_limit: {unit: year, requests_per_unit: 3, on_failure: open}}\n", []string{"OK: OK 3/YEAR left 3"}},
		{"error", "  - {key: a, rate_limit: {unit: year, requests_per_unit: 3, on_failure: closed}}\n", []string{
			"OVER_LIMIT: OVER_LIMIT 3/YEAR left 0",
		}},
		{"closed", "  - {key: a, shadow_mode: true, limit: 3}\n", []string{"OK: OK 3/YEAR left 0"}},
	} {
		t.Run(tt.mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &flaky{Store: memstore.New()}
				s := &tested{t: t, Service: newServiceOn(t, store, tt.rules, "SLUICE_ON_FAILURE="+tt.mode)}
				if got := s.ask("a=1"); !strings.HasPrefix(got, "OK: OK 3/YEAR left 2") {
					t.Fatal(got)
				}
				store.away.Store(true)
				for i, want := range tt.want {
					if got := s.ask("a=1"); got != want {
						t.Errorf("answer %d:\ngot  %s\nwant %s", i+1, got, want)
					}
				}
				if n := s.stats.RedisError.Load(); n != uint64(len(tt.want)) {
					t.Errorf("%d errors of the store are counted, want %d", n, len(tt.want))
				}
				store.away.Store(false)
				if got := s.ask("a=2"); !strings.HasPrefix(got, "OK: OK 3/YEAR left 2") {
					t.Errorf("when the store is back: %s", got)
				}
			})
		})
	}
}

// With local counting each of several processes admits its part of the limit.
func TestLocalShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &flaky{Store: memstore.New()}
		store.away.Store(true)
		settings, _, err := ReadSettings([]string{"SLUICE_ON_FAILURE=local"})
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			nodes, limit, want int
		}{{1, 10, 10}, {2, 10, 5}, {3, 10, 4}, {4, 10, 3}, {100, 10, 1}, {7, 1, 1}, {3, 0, 0}} {
			v, err := NewService(store, settings, newStats(), sluice.WithInstances(func() int { return tt.nodes }))
			if err != nil {
				t.Fatal(err)
			}
			if err := v.Use(ruleSet(t, fmt.Sprintf("  - {key: a, limit: %d}\n", tt.limit))); err != nil {
				t.Fatal(err)
			}
			s := &tested{t: t, Service: v}
			admitted := 0
			for range 12 {
				if strings.HasPrefix(s.ask("a=1"), "OK") {
					admitted++
				}
			}
			if admitted != tt.want {
				t.Errorf("of %d processes one admits %d of a limit of %d, want %d", tt.nodes, admitted, tt.limit, tt.want)
			}
		}
	})
}

// A caller that has left is told so, and the store is not blamed.
func TestCallerLeaves(t *testing.T) {
	s := newTested(t, "  - {key: a, limit: 1}\n")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := s.askWith(ctx, "a=1"); !strings.Contains(got, "code = Canceled") {
		t.Error(got)
	}
	if n := s.stats.RedisError.Load(); n != 0 {
		t.Errorf("%d errors of the store", n)
	}
}
