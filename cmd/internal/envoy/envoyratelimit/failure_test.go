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
	const lost = "rpc error: code = Unknown desc = dial tcp: no route: sluice: store unavailable"
	for _, tt := range []struct {
		mode  string
		rules string
		want  []string // responses while the store is unavailable
	}{
		{"error", "  - {key: a, limit: 3}\n", []string{lost, lost}},
		{"open", "  - {key: a, limit: 3}\n", []string{"OK: OK 3/YEAR left 2", "OK: OK 3/YEAR left 2"}},
		{"closed", "  - {key: a, limit: 3}\n", []string{"OVER_LIMIT: OVER_LIMIT 3/YEAR left 0", "OVER_LIMIT: OVER_LIMIT 3/YEAR left 0"}},
		{"local", "  - {key: a, limit: 3}\n", []string{
			"OK: OK 3/YEAR left 1", "OK: OK 3/YEAR left 0", "OVER_LIMIT: OVER_LIMIT 3/YEAR left 0",
		}},
		{"error", "  - {key: a, rate_limit: {unit: year, requests_per_unit: 3, on_failure: open}}\n", []string{"OK: OK 3/YEAR left 2"}},
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
						t.Errorf("response %d:\ngot  %s\nwant %s", i+1, got, want)
					}
				}
				if n := s.stats.RedisError.Load(); n != uint64(len(tt.want)) {
					t.Errorf("%d store errors are counted, want %d", n, len(tt.want))
				}
				store.away.Store(false)
				if got := s.ask("a=2"); !strings.HasPrefix(got, "OK: OK 3/YEAR left 2") {
					t.Errorf("after the recovery of the store: %s", got)
				}
			})
		})
	}
}

// With fail mode open an unknown count is 0 and is still compared: a limit of 0 and hits that exceed the limit are over the
// limit, as in the reference with Memcached. The statistics are those of the reference too.
func TestOpenCompares(t *testing.T) {
	for _, tt := range []struct {
		rules, ask, want, stats string
		environ                 []string
	}{
		{rules: "  - {key: a, limit: 0}\n", ask: "a=1", want: "OVER_LIMIT: OVER_LIMIT 0/YEAR left 0", stats: "over_limit 1, total_hits 1"},
		{rules: "  - {key: a, limit: 0}\n", ask: "a=1 hits:0", want: "OK: OK 0/YEAR left 0"},
		{rules: "  - {key: a, limit: 0, shadow_mode: true}\n", ask: "a=1", want: "OK: OK 0/YEAR left 0", stats: "over_limit 1, shadow_mode 1, total_hits 1"},
		{
			rules: "  - {key: a, limit: 40}\n", ask: "a=1 hits:1000", want: "OVER_LIMIT: OVER_LIMIT 40/YEAR left 0",
			stats: "near_limit 8, over_limit 960, total_hits 1000",
		},
		{rules: "  - {key: a, limit: 40}\n", ask: "a=1 hits:41", want: "OVER_LIMIT: OVER_LIMIT 40/YEAR left 0", stats: "near_limit 8, over_limit 1, total_hits 41"},
		{rules: "  - {key: a, limit: 40}\n", ask: "a=1 hits:40", want: "OK: OK 40/YEAR left 0", stats: "near_limit 8, total_hits 40, within_limit 40"},
		{rules: "  - {key: a, limit: 40}\n", ask: "a=1", want: "OK: OK 40/YEAR left 39", stats: "total_hits 1, within_limit 1"},
		{rules: "  - {key: a, limit: 40}\n", ask: "a=1 hits:0", want: "OK: OK 40/YEAR left 40"},
		{rules: "  - {key: a, limit: 40}\n", ask: "a=1 give:1000", want: "OK: OK 40/YEAR left 40", stats: "total_negative_hits 1000"},
		{rules: "  - {key: a, limit: 40}\n", ask: "a=1 hits:18446744073709551615", want: "OVER_LIMIT: OVER_LIMIT 40/YEAR left 0"},
		{rules: "  - {key: a, limit: 40}\n", ask: "a=1 limit:0/YEAR", want: "OVER_LIMIT: OVER_LIMIT 0/YEAR left 0"},
		{
			rules: "  - {key: a, limit: 40}\n  - {key: b, limit: 0}\n", ask: "a=1 hits:3 | b=1", want: "OVER_LIMIT: OK 40/YEAR left 40 | OVER_LIMIT 0/YEAR left 0",
			environ: []string{"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true"},
		},
	} {
		for _, keys := range []string{"sluice", "envoy"} {
			t.Run(keys+"/"+tt.ask, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := &flaky{Store: memstore.New()}
					store.away.Store(true)
					s := &tested{t: t, Service: newServiceOn(t, store, tt.rules, append(tt.environ, "SLUICE_ON_FAILURE=open", "SLUICE_KEY_FORMAT="+keys)...)}
					if got := s.ask(tt.ask); got != tt.want {
						t.Errorf("%s%s:\ngot  %s\nwant %s", tt.rules, tt.ask, got, tt.want)
					}
					if got := s.counts("d.a"); tt.stats != "" && got != tt.stats {
						t.Errorf("%s%s: the statistics are\n%s, want\n%s", tt.rules, tt.ask, got, tt.stats)
					}
				})
			})
		}
	}
}

// With local fallback each instance admits its share of the limit.
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
				t.Errorf("one of %d instances admits %d of a limit of %d, want %d", tt.nodes, admitted, tt.limit, tt.want)
			}
		}
	})
}

// A cancelled request is not counted as a store error.
func TestCallerLeaves(t *testing.T) {
	s := newTested(t, "  - {key: a, limit: 1}\n")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := s.askWith(ctx, "a=1"); !strings.Contains(got, "code = Canceled") {
		t.Error(got)
	}
	if n := s.stats.RedisError.Load(); n != 0 {
		t.Errorf("%d store errors", n)
	}
}
