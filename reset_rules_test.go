package sluice_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/memcachestore"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/redisstore"
)

// resetAll resets rules page by page and returns the number of removed buckets.
func resetAll(t *testing.T, l *sluice.Limiter, o sluice.ResetOptions) (removed int64) {
	t.Helper()
	for {
		page, err := l.ResetRules(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		removed += page.Removed
		if o.PageToken = page.NextPageToken; o.PageToken == "" {
			return removed
		}
	}
}

func openRedis(t *testing.T, url string) *redisstore.Store {
	t.Helper()
	s, err := redisstore.Open(redisstore.Config{URL: url, KeyPrefix: "it*[s:"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// All buckets of a rule start from zero, whatever their algorithm and hash tag, and blocks are lifted. Buckets of other
// rules are kept.
func TestResetRules(t *testing.T) {
	for name, open := range map[string]func(*testing.T) sluice.Store{
		"memory":  func(*testing.T) sluice.Store { return memstore.New() },
		"redis":   func(t *testing.T) sluice.Store { return openRedis(t, redistest.Start(t).URL()) },
		"cluster": func(t *testing.T) sluice.Store { return openRedis(t, redistest.StartCluster(t).URL()) },
	} {
		t.Run(name, func(t *testing.T) {
			store := open(t)
			l := sluice.Must(sluice.NewWithRules(store, nil, sluice.WithStoreTimeout(time.Minute)))
			reset := mustRule(t, sluice.Rule{Name: "reset", Limit: sluice.PerDay(10)})
			stays := mustRule(t, sluice.Rule{Name: "stays", Limit: sluice.PerDay(10)})
			var takes []sluice.Take
			for _, a := range []sluice.Algorithm{sluice.TokenBucket, sluice.FixedWindow, sluice.SlidingWindowLog, sluice.SlidingWindowCounter} {
				limit := sluice.Must(sluice.Per(10, 300*24*time.Hour).WithAlgorithm(a).Build())
				for i := range 20 {
					key := fmt.Sprintf("%v-%d-%s", a, i, string(make([]byte, 30*(i%2)))) // some keys are stored as digests
					takes = append(takes, sluice.Take{Rule: reset, Limit: limit, Key: key, Cost: 4, HashTag: []string{"", "tag"}[i%2]})
				}
			}
			n := len(takes)
			for _, t := range takes[:n:n] {
				t.Rule = stays
				takes = append(takes, t)
			}
			left := func(t sluice.Take) int64 {
				t.Cost, t.DryRun = 0, true
				var out [1]sluice.Decision
				if _, err := l.Decide(background, []sluice.Take{t}, out[:]); err != nil {
					panic(err)
				}
				return out[0].Remaining
			}
			for i := range takes {
				if _, err := l.Decide(t.Context(), takes[i:i+1], make([]sluice.Decision, 1)); err != nil {
					t.Fatal(err)
				}
			}
			for _, r := range []*sluice.Rule{reset, stays} {
				if err := l.BlockBuckets(t.Context(), time.Hour, sluice.Bucket{Rule: r, Key: "blocked"}); err != nil {
					t.Fatal(err)
				}
			}
			want := int64(n + 1)
			if name == "memory" {
				want = -1 // memstore does not count them
			}
			if got := resetAll(t, l, sluice.ResetOptions{Rules: []*sluice.Rule{reset}, DryRun: true}); got != want {
				t.Errorf("%d would be removed, want %d", got, want)
			}
			if got := left(takes[0]); got != 6 {
				t.Errorf("a dry run leaves %d", got)
			}
			if got := resetAll(t, l, sluice.ResetOptions{Rules: []*sluice.Rule{reset}}); got != want {
				t.Errorf("%d are removed, want %d", got, want)
			}
			for i := range takes {
				if got, want := left(takes[i]), int64(10-4*(i/n)); got != want {
					t.Errorf("%s of rule %s has %d left, want %d", takes[i].Key, takes[i].Rule.Name, got, want)
				}
			}
			for _, r := range []*sluice.Rule{reset, stays} {
				d, err := l.BlockedBucket(t.Context(), sluice.Bucket{Rule: r, Key: "blocked"})
				if err != nil || (d > 0) != (r == stays) {
					t.Errorf("rule %s is blocked for %v, %v", r.Name, d, err)
				}
			}
			if _, err := l.ResetRules(t.Context(), sluice.ResetOptions{}); !errors.Is(err, sluice.ErrInvalid) {
				t.Errorf("no rules: %v", err)
			}
			if _, err := l.ResetRules(t.Context(), sluice.ResetOptions{Rules: []*sluice.Rule{reset}, PageToken: "x"}); !errors.Is(err, sluice.ErrInvalid) {
				t.Errorf("a page token that is none: %v", err)
			}
		})
	}
}

// Memcached cannot list its keys, and the error says what to do instead.
func TestResetRulesUnsupported(t *testing.T) {
	store, err := memcachestore.Open(memcachestore.Config{Addrs: []string{memcachetest.Start(t).Addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	l := sluice.Must(sluice.New(store, "r", sluice.PerDay(10)))
	if _, err := l.ResetRules(t.Context(), sluice.ResetOptions{Rules: l.Rules()}); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}

// After a reset during decisions each bucket admits its limit once more, and not more than that.
func TestResetRulesAmidDecisions(t *testing.T) {
	for name, store := range map[string]sluice.Store{"memory": memstore.New(), "redis": openRedis(t, redistest.Start(t).URL())} {
		t.Run(name, func(t *testing.T) {
			const limit, workers = 50, 4
			l := sluice.Must(sluice.New(store, "r", sluice.Per(limit, 300*24*time.Hour), sluice.WithStoreTimeout(time.Minute)))
			var admitted atomic.Int64
			var all sync.WaitGroup
			half := make(chan struct{}, workers)
			for range workers {
				all.Go(func() {
					for i := range 60 {
						if i == 20 {
							half <- struct{}{}
						}
						if mustAllow(t, l, "k", 1).Allowed {
							admitted.Add(1)
						}
					}
				})
			}
			for range workers {
				<-half
			}
			before := admitted.Load()
			resetAll(t, l, sluice.ResetOptions{Rules: l.Rules()})
			all.Wait()
			for mustAllow(t, l, "k", 1).Allowed {
				admitted.Add(1)
			}
			if n := admitted.Load(); n > 2*limit || n < before+limit {
				t.Errorf("%d were admitted, %d before the reset began: of a limit of %d that was reset once", n, before, limit)
			}
		})
	}
}

// Buckets stay reset after a restart from a snapshot, and usage since the reset is kept.
func TestResetRulesSnapshot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	open := func() (*memstore.Store, *sluice.Limiter, *sluice.Limiter) {
		s, err := memstore.Open(memstore.Config{SnapshotFile: file})
		if err != nil {
			t.Fatal(err)
		}
		limit := sluice.Per(10, 300*24*time.Hour)
		return s, sluice.Must(sluice.New(s, "reset", limit)), sluice.Must(sluice.New(s, "stays", limit))
	}
	s, reset, stays := open()
	for _, l := range []*sluice.Limiter{reset, stays} {
		mustAllow(t, l, "k", 7)
	}
	for range 2 {
		resetAll(t, reset, sluice.ResetOptions{Rules: reset.Rules()})
		mustAllow(t, reset, "k", 4)
		if err := s.SaveSnapshot(); err != nil {
			t.Fatal(err)
		}
		s, reset, stays = open()
		if d := mustAllow(t, reset, "k", 1); d.Remaining != 5 {
			t.Errorf("of the rule that was reset %d are left, want 5", d.Remaining)
		}
		if d, err := stays.Peek(t.Context(), "k"); err != nil || d.Remaining != 3 {
			t.Errorf("of the other %d are left, want 3: %v", d.Remaining, err)
		}
	}
}

// ResetRules resets all local state of the rule's keys: deny cache, leases, estimates and local fallback.
func TestResetRulesHere(t *testing.T) {
	for _, accuracy := range []sluice.Accuracy{sluice.AccuracyExact, sluice.AccuracyLease, sluice.AccuracyEventual} {
		t.Run(fmt.Sprint(accuracy), func(t *testing.T) {
			server := redistest.Start(t)
			limit := sluice.Per(10, 300*24*time.Hour).WithAlgorithm(sluice.FixedWindow)
			rule := mustRule(t, sluice.Rule{Name: "reset", Limit: limit, Accuracy: accuracy})
			other := mustRule(t, sluice.Rule{Name: "stays", Limit: limit, Accuracy: accuracy})
			store := openRedis(t, server.URL())
			l := sluice.Must(sluice.NewWithRules(store, []*sluice.Rule{rule}, sluice.WithStoreTimeout(time.Minute)))
			defer l.Close(t.Context())
			takes := []sluice.Take{{Rule: other, Key: "k", Cost: 10}}
			if ok, err := l.Decide(t.Context(), takes, make([]sluice.Decision, 1)); !ok || err != nil {
				t.Fatal(ok, err)
			}
			for mustAllow(t, l, "k", 1).Allowed {
			}
			resetAll(t, l, sluice.ResetOptions{Rules: l.Rules()})
			if d := mustAllow(t, l, "k", 4); !d.Allowed || d.Source != sluice.SourceStore {
				t.Errorf("after the reset: %+v", d)
			}
			resetAll(t, l, sluice.ResetOptions{Rules: l.Rules()})
			server.Kill()
			if d := mustAllow(t, l, "k", 10); !d.Allowed || d.Source != sluice.SourceFailLocal {
				t.Errorf("without the store: %+v", d)
			}
		})
	}
}
