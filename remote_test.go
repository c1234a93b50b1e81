package sluice_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

// farStore is a store behind a network that tests disturb. Calls that reach it are counted, and decided by a memstore.
type farStore struct {
	*memstore.Store
	servers int
	calls   atomic.Int64
	asked   atomic.Int64 // number of takes
	fault   atomic.Pointer[fault]
}

// fault returns the error of a take that does not reach the store.
type fault func(ctx context.Context, t *sluice.Take) error

// disturb sets the state of the network; nil means no failures. It may be called while a limiter calls the store in the
// background.
func (s *farStore) disturb(f fault) { s.fault.Store(&f) }

func (s *farStore) disturbed(ctx context.Context, t *sluice.Take) error {
	if f := s.fault.Load(); f != nil && *f != nil {
		return (*f)(ctx, t)
	}
	return nil
}

func (s *farStore) Shards() int { return max(1, s.servers) }

func (s *farStore) Shard(t *sluice.Take) int {
	if len(t.Key) == 0 {
		return 0
	}
	return int(t.Key[len(t.Key)-1]) % s.Shards()
}

func (s *farStore) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	s.calls.Add(1)
	s.asked.Add(int64(len(takes)))
	for i := range takes {
		if err := s.disturbed(ctx, &takes[i]); err != nil {
			return err
		}
	}
	return s.Store.Apply(ctx, takes, out)
}

var errAway = errors.Join(errors.New("connection refused"), sluice.ErrUnavailable)

func refuses(context.Context, *sluice.Take) error { return errAway }

// hangs does not reply before ctx is done.
func hangs(ctx context.Context, _ *sluice.Take) error {
	<-ctx.Done()
	return ctx.Err()
}

func after(d time.Duration) func(ctx context.Context, _ *sluice.Take) error {
	return func(ctx context.Context, _ *sluice.Take) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// pause sleeps. Under the race detector, timers of one bubble must not fire at the same instant.
func pause(d time.Duration) {
	if d <= 0 {
		runtime.Gosched()
		return
	}
	<-time.After(d)
}

func newFar() *farStore { return &farStore{Store: memstore.New()} }

func farLimiter(t *testing.T, s *farStore, mode sluice.FailMode, opts ...sluice.Option) *sluice.Limiter {
	t.Helper()
	rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.Per(1_000_000, time.Hour).WithAlgorithm(sluice.FixedWindow), OnFailure: mode})
	return sluice.Must(sluice.NewWithRules(s, []*sluice.Rule{rule}, opts...))
}

// An unavailable store delays a caller by at most the store timeout; then the fail mode decides.
func TestBudget(t *testing.T) {
	for budget, opts := range map[time.Duration][]sluice.Option{
		sluice.DefaultStoreTimeout: nil,
		3 * time.Millisecond:       {sluice.WithStoreTimeout(3 * time.Millisecond)},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newFar()
			s.disturb(hangs)
			l := farLimiter(t, s, sluice.FailOpen, opts...)
			start := time.Now()
			d, err := l.Allow(t.Context(), "k")
			if took := time.Since(start); err != nil || !d.Allowed || d.Source != sluice.SourceFailOpen || took != budget {
				t.Errorf("%+v, %v after %v, want fail open after %v", d, err, took, budget)
			}
		})
	}
}

// A caller with a shorter deadline gets its own error, and the breaker does not count it as a failure.
func TestCallersWhoLeaveDoNotOpenTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		s.disturb(hangs)
		l := farLimiter(t, s, sluice.FailOpen)
		for range 50 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if _, err := l.Allow(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			cancel()
		}
		if n := s.calls.Load(); n != 50 {
			t.Errorf("%d calls reached the store, want 50", n)
		}
	})
}

func TestBreakerOpensProbesAndRampsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		s.disturb(refuses)
		var away, back atomic.Int64
		l := farLimiter(t, s, sluice.FailOpen, sluice.WithEvents(sluice.Events{
			OnShardUnavailable: func(context.Context, int, error) { away.Add(1) },
			OnShardRecovered:   func(context.Context, int) { back.Add(1) },
		}))
		ask := func(n int) (degraded int) {
			for range n {
				if d := mustAllow(t, l, "k", 1); d.Source.Degraded() {
					degraded++
				}
			}
			return degraded
		}
		if ask(100); s.calls.Load() != 20 || away.Load() != 1 {
			t.Fatalf("%d calls reached a failing store, want 20; breaker opened %d times", s.calls.Load(), away.Load())
		}
		// Probes start after 250 ms ± 50 %; the interval doubles up to 1 s.
		for _, want := range []time.Duration{250, 500, 1000, 1000, 1000} {
			start, calls := time.Now(), s.calls.Load()
			for s.calls.Load() == calls {
				pause(time.Millisecond)
				ask(1)
				synctest.Wait()
			}
			took := time.Since(start)
			if want *= time.Millisecond; took < want/2 || took > 3*want/2+2*time.Millisecond {
				t.Errorf("probed after %v, want %v give or take half", took, want)
			}
		}
		// After recovery a part of the calls pass, and all after 2 s.
		s.disturb(nil)
		for back.Load() == 0 {
			pause(10 * time.Millisecond)
			ask(1)
			synctest.Wait()
		}
		since := time.Now()
		for _, step := range []struct {
			later    time.Duration
			degraded int
		}{{0, 90}, {600 * time.Millisecond, 75}, {500 * time.Millisecond, 50}, {time.Second, 0}} {
			pause(step.later)
			if got := ask(100); got < step.degraded-2 || got > step.degraded+2 {
				t.Errorf("%v after it came back %d of 100 are degraded, want %d", time.Since(since), got, step.degraded)
			}
		}
	})
}

// A server that replies later than the timeout opens the breaker like one that does not reply.
func TestBreakerOpensForSlowServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		s.disturb(after(12 * time.Millisecond))
		l := farLimiter(t, s, sluice.FailClosed)
		for range 40 {
			if d := mustAllow(t, l, "k", 1); d.Allowed || d.Source != sluice.SourceFailClosed {
				t.Fatalf("%+v", d)
			}
		}
		if n := s.calls.Load(); n != 20 {
			t.Errorf("%d calls reached a slow store, want 20", n)
		}
	})
}

// Occasional errors do not open the breaker.
func TestBreakerToleratesSomeErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		n := 0
		s.disturb(func(context.Context, *sluice.Take) error {
			if n++; n%3 == 0 {
				return errAway
			}
			return nil
		})
		l := farLimiter(t, s, sluice.FailOpen)
		for range 300 {
			mustAllow(t, l, "k", 1)
			pause(10 * time.Millisecond)
		}
		if got := s.calls.Load(); got != 300 {
			t.Errorf("%d of 300 calls reached the store", got)
		}
	})
}

// Only the keys of the unavailable shard are degraded.
func TestBreakerPerServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		s.servers = 2
		s.disturb(func(_ context.Context, k *sluice.Take) error {
			if s.Shard(k) == 1 {
				return errAway
			}
			return nil
		})
		l := farLimiter(t, s, sluice.FailOpen)
		for range 40 {
			mustAllow(t, l, "1", 1) // "1" is on the odd shard
		}
		rule := l.Rules()[0]
		takes := []sluice.Take{{Rule: rule, Key: "0", Cost: 1}, {Rule: rule, Key: "1", Cost: 1}, {Rule: rule, Key: "2", Cost: 1}}
		out := make([]sluice.Decision, 3)
		if ok, err := l.Decide(t.Context(), takes, out); err != nil || !ok {
			t.Fatal(ok, err)
		}
		for i, want := range []sluice.Source{sluice.SourceStore, sluice.SourceFailOpen, sluice.SourceStore} {
			if out[i].Source != want {
				t.Errorf("take %d was answered by %v, want %v", i, out[i].Source, want)
			}
		}
	})
}

func TestDenialsAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.PerMinute(6)}) // one every 10 s
		l := sluice.Must(sluice.NewWithRules(s, []*sluice.Rule{rule}))
		if d := mustAllow(t, l, "k", 5); !d.Allowed {
			t.Fatal("5 of 6 were denied")
		}
		if d := mustAllow(t, l, "k", 2); d.Allowed || d.Source != sluice.SourceStore {
			t.Fatalf("%+v", d)
		}
		calls := s.calls.Load()
		pause(400 * time.Millisecond)
		if d := mustAllow(t, l, "k", 2); d.Allowed || d.Source != sluice.SourceDenyCache || d.RetryAfter != 9600*time.Millisecond {
			t.Errorf("the same cost: %+v", d)
		}
		if s.calls.Load() != calls {
			t.Error("the store was called for a cached denial")
		}
		if d := mustAllow(t, l, "k", 3); d.Allowed || d.RetryAfter != 19600*time.Millisecond {
			t.Errorf("a larger cost, which has to wait for longer: %+v", d)
		}
		if d := mustAllow(t, l, "k", 7); d.Allowed || !d.ExceedsLimit || d.RetryAfter != 0 {
			t.Errorf("a cost that can never fit: %+v", d)
		}
		if d := mustAllow(t, l, "k", 1); !d.Allowed {
			t.Errorf("a smaller cost: %+v", d)
		}
		mustAllow(t, l, "k", 2)
		if d := mustAllow(t, l, "other", 2); !d.Allowed {
			t.Errorf("another key: %+v", d)
		}
		larger := sluice.Must(sluice.PerMinute(60).Build())
		takes, out := []sluice.Take{{Rule: rule, Key: "k", Cost: 2, Limit: larger}}, make([]sluice.Decision, 1)
		if _, err := l.Decide(t.Context(), takes, out); err != nil || out[0].Source != sluice.SourceStore {
			t.Errorf("the deny cache decided for another limit: %+v %v", out[0], err)
		}
		pause(time.Second)
		calls = s.calls.Load()
		if mustAllow(t, l, "k", 2); s.calls.Load() != calls+1 {
			t.Error("a denial was remembered for more than a second")
		}
	})
}

// Denials under a ChargeDenied rule are charged, cached or not; and a shorter RetryAfter is not exceeded.
func TestDenialsThatAreNotRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		counting := mustRule(t, sluice.Rule{Name: "c", Limit: sluice.PerHour(1).WithAlgorithm(sluice.FixedWindow), ChargeDenied: true})
		l := sluice.Must(sluice.NewWithRules(s, []*sluice.Rule{counting}))
		for range 10 {
			mustAllow(t, l, "k", 1)
		}
		if n := s.calls.Load(); n != 10 {
			t.Errorf("%d of 10 calls were counted", n)
		}
		quick := mustRule(t, sluice.Rule{Name: "q", Limit: sluice.PerSecond(10).WithBurst(1)})
		l = sluice.Must(sluice.NewWithRules(s, []*sluice.Rule{quick}))
		mustAllow(t, l, "k", 1)
		if d := mustAllow(t, l, "k", 1); d.Allowed {
			t.Fatal("not denied")
		}
		pause(100 * time.Millisecond)
		if d := mustAllow(t, l, "k", 1); !d.Allowed {
			t.Errorf("denied after its RetryAfter: %+v", d)
		}
	})
}

// Local fallback grants no fresh quota: each instance admits its share of the store's remaining quota.
func TestLocalIsWarm(t *testing.T) {
	for _, limit := range []sluice.Limit{
		sluice.PerHour(10), sluice.PerHour(10).WithAlgorithm(sluice.FixedWindow), sluice.PerHour(10).WithAlgorithm(sluice.SlidingWindowLog),
		sluice.PerHour(10).WithAlgorithm(sluice.SlidingWindowCounter),
		{Count: 10, Window: time.Hour, Refill: sluice.RefillInterval},
		{Count: 10, Window: time.Hour, Algorithm: sluice.SlidingWindowCounter, SubWindows: 6},
	} {
		for nodes, want := range map[int]struct{ known, fresh int }{1: {4, 10}, 2: {2, 5}, 3: {1, 4}, 20: {0, 1}} {
			s := newFar()
			rule := mustRule(t, sluice.Rule{Name: "r", Limit: limit})
			l := sluice.Must(sluice.NewWithRules(s, []*sluice.Rule{rule}, sluice.WithInstances(func() int { return nodes })))
			if d := mustAllow(t, l, "known", 6); !d.Allowed || d.Source != sluice.SourceStore {
				t.Fatalf("%+v", d)
			}
			s.disturb(refuses)
			admitted := func(key string) (n int) {
				for range 15 {
					d := mustAllow(t, l, key, 1)
					if d.Source != sluice.SourceFailLocal {
						t.Fatalf("%+v", d)
					}
					if d.Allowed {
						n++
					}
				}
				return n
			}
			if known, fresh := admitted("known"), admitted("fresh"); known != want.known || fresh != want.fresh {
				t.Errorf("%v, %d nodes: %d admitted of a key with 4 left, %d of one never seen, want %+v", limit, nodes, known, fresh, want)
			}
		}
	}
}

// A cost that exceeds the instance's share of the limit, but not the limit, does not return ExceedsLimit.
func TestLocalPartsAndLargeCosts(t *testing.T) {
	s := newFar()
	s.disturb(refuses)
	rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.PerHour(10)})
	l := sluice.Must(sluice.NewWithRules(s, []*sluice.Rule{rule}, sluice.WithInstances(func() int { return 5 })))
	if d := mustAllow(t, l, "k", 8); d.Allowed || d.ExceedsLimit || d.RetryAfter <= 0 {
		t.Errorf("8 of a limit of 10 that five share: %+v", d)
	}
	if d := mustAllow(t, l, "k", 11); !d.ExceedsLimit {
		t.Errorf("11 of a limit of 10: %+v", d)
	}
}

func TestSuspend(t *testing.T) {
	for name, store := range map[string]sluice.Store{"near": memstore.New(), "far": newFar()} {
		one := mustRule(t, sluice.Rule{Name: "one", Limit: sluice.PerHour(1)})
		second := mustRule(t, sluice.Rule{Name: "one#2", Limit: sluice.PerDay(1)})
		other := mustRule(t, sluice.Rule{Name: "other", Limit: sluice.PerHour(3)})
		l := sluice.Must(sluice.NewWithRules(store, []*sluice.Rule{one}))
		mustAllow(t, l, "k", 1)
		if d := mustAllow(t, l, "k", 1); d.Allowed {
			t.Fatalf("%s: %+v", name, d)
		}
		l.Suspend("one", "nobody")
		if got := l.SuspendedRules(); len(got) != 2 || got[1] != "one" {
			t.Errorf("%s: suspended: %q", name, got)
		}
		if d := mustAllow(t, l, "k", 1); !d.Allowed || d.Source != sluice.SourceSuspended {
			t.Errorf("%s: %+v", name, d)
		}
		takes := []sluice.Take{{Rule: one, Key: "k", Cost: 1}, {Rule: other, Key: "k", Cost: 1}, {Rule: second, Key: "k", Cost: 1}}
		out := make([]sluice.Decision, 3)
		for i, want := range []bool{true, true, true, false} { // the other rules still count
			ok, err := l.Decide(t.Context(), takes, out)
			if err != nil || ok != want || out[0].Source != sluice.SourceSuspended || out[1].Source.Degraded() {
				t.Errorf("%s: call %d: %v %v %+v", name, i, ok, err, out)
			}
		}
		l.Resume("one", "nobody")
		if d := mustAllow(t, l, "k", 1); d.Allowed || l.SuspendedRules() != nil {
			t.Errorf("%s: resumed: %+v", name, d)
		}
	}
}
