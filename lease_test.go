package sluice_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
)

// leaseNodes returns instances that share a store with AccuracyLease.
func leaseNodes(t *testing.T, s *farStore, limit sluice.Limit, n int, opts ...sluice.Option) []*sluice.Limiter {
	t.Helper()
	var nodes []*sluice.Limiter
	for range n {
		rule := mustRule(t, sluice.Rule{Name: "r", Limit: limit, Accuracy: sluice.AccuracyLease, OnFailure: sluice.FailClosed})
		opts := append([]sluice.Option{sluice.WithInstances(func() int { return n })}, opts...)
		l := sluice.Must(sluice.NewWithRules(s, []*sluice.Rule{rule}, opts...))
		nodes = append(nodes, l)
		t.Cleanup(func() {
			if err := l.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	return nodes
}

// Eight instances are offered 10 × limit for some windows: they admit at most the limit in each, nearly all of it, with
// many decisions per store call.
func TestLeasesOfWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		s.disturb(after(500 * time.Microsecond))
		const limit, windows, nodes = 4000, 3, 8
		all := leaseNodes(t, s, sluice.PerSecond(limit).WithAlgorithm(sluice.FixedWindow), nodes)
		pause(time.Second - time.Duration(time.Now().UnixNano())%time.Second)
		admitted, offered := [windows]int64{}, int64(0)
		var mu sync.Mutex
		var wait sync.WaitGroup
		start := time.Now()
		for i, l := range all {
			wait.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 7))
				for {
					d := mustAllow(t, l, "hot", 1)
					window := int(time.Since(start) / time.Second)
					if window >= windows {
						return
					}
					mu.Lock()
					offered++
					if d.Allowed {
						admitted[window]++
					}
					mu.Unlock()
					pause(time.Duration(random.Int64N(int64(2 * nodes * time.Second / (10 * limit)))))
				}
			})
		}
		wait.Wait()
		calls := s.calls.Load()
		sum := int64(0)
		for w, n := range admitted {
			// A call around the end of a window may be decided in one window and counted by the test in the next. So
			// the sum is compared exactly, and each window with a tolerance for such calls.
			sum += n
			if n > limit+nodes {
				t.Errorf("window %d admitted %d of %d", w, n, limit)
			}
			if n < limit*98/100 {
				t.Errorf("window %d admitted only %d of %d", w, n, limit)
			}
		}
		if sum > windows*limit {
			t.Errorf("%d windows admitted %d of %d each", windows, sum, limit)
		}
		t.Logf("admitted %v, offered %d, %d calls: %.0f decisions a call", admitted, offered, calls, float64(offered)/float64(calls))
		if offered < 50*calls {
			t.Errorf("%d decisions cost %d calls of the store, want at least 50 for each", offered, calls)
		}
	})
}

// Leases are part of a bucket's burst: in no interval do all instances together admit more than burst + rate × time. A
// crashed instance wastes its lease, and nothing else.
func TestLeasesOfBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		s.disturb(after(300 * time.Microsecond))
		const rate, burst, nodes = 1000, 400, 4
		all := leaseNodes(t, s, sluice.PerSecond(rate).WithBurst(burst), nodes)
		type event struct {
			at time.Duration
			n  int64
		}
		var events []event
		var offered atomic.Int64
		var mu sync.Mutex
		var wait sync.WaitGroup
		start := time.Now()
		for i, l := range all {
			wait.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 9))
				for time.Since(start) < 4*time.Second {
					if i == 0 && time.Since(start) > 2*time.Second {
						return // crashed, with its lease
					}
					asked := time.Since(start)
					offered.Add(1)
					if d := mustAllow(t, l, "hot", 1); d.Allowed {
						mu.Lock()
						events = append(events, event{asked, 1})
						mu.Unlock()
					}
					if random.IntN(400) == 0 {
						pause(300 * time.Millisecond) // refills the bucket
					}
					pause(time.Duration(random.Int64N(int64(800 * time.Microsecond))))
				}
			})
		}
		wait.Wait()
		// Computes the maximum of count(s,t) - rate × (t-s) over all intervals in one pass.
		worst, level, last := 0.0, 0.0, time.Duration(0)
		for _, e := range events {
			level = max(0, level-float64(rate)*max(0, e.at-last).Seconds()) + float64(e.n)
			last = max(last, e.at)
			worst = max(worst, level)
		}
		t.Logf("%d of %d admitted in 4 s, worst burst %.1f of %d, %d calls", len(events), offered.Load(), worst, burst, s.calls.Load())
		if worst > burst+nodes {
			t.Errorf("a burst of %.1f, want at most %d", worst, burst)
		}
		if len(events) < 4*rate*98/100 {
			t.Errorf("%d admitted in 4 s of %d a second", len(events), rate)
		}
		if calls := s.calls.Load(); offered.Load() < 25*calls {
			t.Errorf("%d decisions cost %d calls of the store", offered.Load(), calls)
		}
	})
}

// A window's lease cannot be used in the next window, whose quota another instance has used up.
func TestLeaseEndsWithItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		const limit = 1000
		l := leaseNodes(t, s, sluice.PerSecond(limit).WithAlgorithm(sluice.FixedWindow), 1)[0]
		next := func() { pause(time.Second - time.Duration(time.Now().UnixNano())%time.Second) }
		next()
		last := sluice.Decision{}
		for range 333 { // until the end of the window
			last = mustAllow(t, l, "k", 1)
			pause(3 * time.Millisecond)
		}
		if last.Source != sluice.SourceLease {
			t.Fatalf("%+v", last)
		}
		next()
		out := make([]sluice.Decision, 1)
		if err := s.Store.Apply(t.Context(), []sluice.Take{{Rule: l.Rules()[0], Key: "k", Cost: limit}}, out); err != nil || !out[0].Allowed {
			t.Fatalf("%+v %v", out[0], err)
		}
		if d := mustAllow(t, l, "k", 1); d.Allowed {
			t.Errorf("lease of the previous window used: %+v", d)
		}
	})
}

// At any instant at most the burst is available, leases included.
func TestLeaseIsPartOfTheBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		const burst, nodes = 400, 2
		all := leaseNodes(t, s, sluice.PerSecond(1000).WithBurst(burst), nodes)
		for range 200 {
			for _, l := range all {
				mustAllow(t, l, "k", 1)
			}
			pause(3 * time.Millisecond)
		}
		pause(500 * time.Millisecond) // the store's bucket refills while leases are held
		admitted, leased := 0, 0
		for _, l := range all {
			for d := mustAllow(t, l, "k", 1); d.Allowed; d = mustAllow(t, l, "k", 1) {
				if admitted++; d.Source == sluice.SourceLease {
					leased++
				}
			}
		}
		t.Logf("%d admitted at once, %d of them from leases", admitted, leased)
		if admitted > burst || leased == 0 {
			t.Errorf("%d admitted at once of a burst of %d, %d from leases", admitted, burst, leased)
		}
	})
}

// Unused leases are returned.
func TestLeasesAreReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		l := leaseNodes(t, s, sluice.PerHour(1000).WithAlgorithm(sluice.FixedWindow), 1)[0]
		for range 200 {
			if d := mustAllow(t, l, "k", 1); !d.Allowed {
				t.Fatalf("%+v", d)
			}
			pause(time.Millisecond)
		}
		synctest.Wait()
		rule := l.Rules()[0]
		left := func() int64 {
			out := make([]sluice.Decision, 1)
			if err := s.Store.Apply(t.Context(), []sluice.Take{{Rule: rule, Key: "k"}}, out); err != nil {
				t.Fatal(err)
			}
			return out[0].Remaining
		}
		if left() >= 800 {
			t.Fatalf("%d are left at the store: nothing was leased", left())
		}
		pause(3 * time.Second)
		synctest.Wait()
		if left() != 800 {
			t.Errorf("%d are left at the store after a pause, want 800", left())
		}
		for range 100 {
			mustAllow(t, l, "k", 1)
			pause(time.Millisecond)
		}
		if err := l.Close(t.Context()); err != nil || left() != 700 {
			t.Errorf("%d are left at the store after Close, want 700 (%v)", left(), err)
		}
		if d := mustAllow(t, l, "k", 1); d.Source != sluice.SourceStore || left() != 699 {
			t.Errorf("after Close: %+v, %d left", d, left())
		}
	})
}

// Leases granted to calls in progress during Close are returned, too.
func TestLeasesAreReturnedAmidCalls(t *testing.T) {
	for round := range 15 {
		synctest.Test(t, func(t *testing.T) {
			const limit, callers = 1_000_000, 8
			s := newFar()
			s.disturb(func(context.Context, *sluice.Take) error {
				pause(time.Millisecond)
				return nil
			})
			l := leaseNodes(t, s, sluice.PerHour(limit).WithAlgorithm(sluice.FixedWindow), 1)[0]
			var all sync.WaitGroup
			var admitted atomic.Int64
			for i := range callers {
				all.Go(func() {
					for range 300 {
						if mustAllow(t, l, "k", 1).Allowed {
							admitted.Add(1)
						}
						pause(time.Duration(50+i) * time.Microsecond)
					}
				})
			}
			pause(5*time.Millisecond + time.Duration(round)*97*time.Microsecond)
			if err := l.Close(t.Context()); err != nil {
				t.Error(err)
			}
			all.Wait()
			synctest.Wait()
			out := make([]sluice.Decision, 1)
			if err := s.Store.Apply(t.Context(), []sluice.Take{{Rule: l.Rules()[0], Key: "k"}}, out); err != nil {
				t.Fatal(err)
			}
			if spent := limit - out[0].Remaining; spent != admitted.Load() {
				t.Errorf("round %d: usage at the store is %d, %d were admitted", round, spent, admitted.Load())
			}
		})
	}
}

// While the store is unavailable a lease is used up, and then the fail mode decides.
func TestLeaseOutlastsTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		l := leaseNodes(t, s, sluice.PerHour(1000).WithAlgorithm(sluice.FixedWindow), 1)[0]
		for range 100 {
			mustAllow(t, l, "k", 1)
			pause(time.Millisecond)
		}
		synctest.Wait()
		s.disturb(refuses)
		leased := 0
		for range 1000 {
			d := mustAllow(t, l, "k", 1)
			if d.Allowed != (d.Source == sluice.SourceLease) {
				t.Fatalf("%+v", d)
			}
			if d.Allowed {
				leased++
			}
		}
		if leased == 0 || leased > 900 {
			t.Errorf("%d were answered from the lease", leased)
		}
	})
}

// Takes decided from a lease can be refunded, and settled at more than the estimate.
func TestLeaseIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limit := range []sluice.Limit{sluice.PerHour(1000).WithAlgorithm(sluice.FixedWindow), sluice.Per(1000, 1000*time.Hour)} {
			s := newFar()
			l := leaseNodes(t, s, limit, 1)[0]
			leased := 0
			for i := range 200 {
				r, err := l.Reserve(t.Context(), "k", 2)
				if err != nil || !r.Allowed {
					t.Fatalf("%+v %v", r, err)
				}
				if r.Source == sluice.SourceLease {
					leased++
				}
				actual := int64(0)
				if i%4 == 0 {
					actual = 3
				}
				if err := r.Settle(t.Context(), actual); err != nil {
					t.Fatal(err)
				}
				pause(time.Millisecond)
			}
			if err := l.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			d, err := l.Peek(t.Context(), "k")
			// Replenishment in the meantime changes a bucket by less than 1.
			if err != nil || leased == 0 || d.Remaining < 849 || d.Remaining > 850 {
				t.Errorf("%v: %d left of 1000 after spending 150, %d answered from the lease (%v)", limit, d.Remaining, leased, err)
			}
		}
	})
}

// In a call with other rules, a denial returns the call's charge to the lease.
func TestLeaseAmongOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		l := leaseNodes(t, s, sluice.PerHour(1000).WithAlgorithm(sluice.FixedWindow), 1)[0]
		few := mustRule(t, sluice.Rule{Name: "few", Limit: sluice.PerHour(150).WithAlgorithm(sluice.FixedWindow)})
		takes := []sluice.Take{{Rule: l.Rules()[0], Key: "k", Cost: 1}, {Rule: few, Key: "k", Cost: 1}}
		out := make([]sluice.Decision, 2)
		allowed := 0
		for range 300 {
			ok, err := l.Decide(t.Context(), takes, out)
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				allowed++
			}
			pause(time.Millisecond)
		}
		pause(3 * time.Second)
		synctest.Wait()
		d, err := l.Peek(t.Context(), "k")
		if allowed != 150 || err != nil || d.Remaining != 850 {
			t.Errorf("%d allowed, %d left of 1000 (%v)", allowed, d.Remaining, err)
		}
	})
}

// An instance that expects remaining quota that others have used calls the store twice and then caches the denial.
func TestLeaseOfWhatOthersTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		l := leaseNodes(t, s, sluice.PerHour(1000).WithAlgorithm(sluice.FixedWindow), 1)[0]
		for range 100 {
			mustAllow(t, l, "k", 1)
			pause(time.Millisecond)
		}
		synctest.Wait()
		rule := l.Rules()[0]
		for { // another instance uses the rest
			out := make([]sluice.Decision, 1)
			if err := s.Store.Apply(t.Context(), []sluice.Take{{Rule: rule, Key: "k", Cost: 1}}, out); err != nil {
				t.Fatal(err)
			}
			if !out[0].Allowed {
				break
			}
		}
		for mustAllow(t, l, "k", 1).Allowed {
		}
		calls := s.calls.Load()
		for range 500 {
			if d := mustAllow(t, l, "k", 1); d.Allowed {
				t.Fatalf("%+v", d)
			}
		}
		if more := s.calls.Load() - calls; more > 2 {
			t.Errorf("500 denials cost %d calls of the store", more)
		}
	})
}

func TestWhatCanBeLeased(t *testing.T) {
	for _, limit := range []sluice.Limit{
		sluice.PerSecond(5).WithAlgorithm(sluice.SlidingWindowLog), sluice.PerSecond(50).WithAlgorithm(sluice.SlidingWindowCounter),
		sluice.PerSecond(5).WithAlgorithm(sluice.LeakyQueue), sluice.PerSecond(5).WithAlgorithm(sluice.FixedWindow).WithSoftExcess(1, time.Second),
	} {
		if _, err := sluice.NewRule(sluice.Rule{Name: "r", Limit: limit, Accuracy: sluice.AccuracyLease}); err == nil {
			t.Errorf("%v can be leased", limit)
		}
	}
	// Keys with few requests are not leased, however many there are.
	synctest.Test(t, func(t *testing.T) {
		s := newFar()
		l := leaseNodes(t, s, sluice.PerHour(1000).WithAlgorithm(sluice.FixedWindow), 1)[0]
		for i := range 200 {
			mustAllow(t, l, fmt.Sprint(i%20), 1)
			pause(100 * time.Millisecond)
		}
		pause(5 * time.Second)
		for i := range 20 {
			if d, err := l.Peek(t.Context(), fmt.Sprint(i)); err != nil || d.Remaining != 990 {
				t.Errorf("key %d: %+v %v", i, d, err)
			}
		}
	})
}

// Remaining includes the instance's own lease, whether the store or the lease decides.
func TestLeaseRemains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 100_000
		l := leaseNodes(t, newFar(), sluice.PerSecond(limit).WithAlgorithm(sluice.FixedWindow), 1)[0]
		toNextSecond()
		sources := make(map[sluice.Source]int)
		for i := range int64(900) {
			d := mustAllow(t, l, "k", 1)
			if sources[d.Source]++; d.Remaining != limit-i-1 {
				t.Fatalf("%+v, want %d remaining", d, limit-i-1)
			}
			pause(time.Millisecond)
		}
		if sources[sluice.SourceStore] < 2 || sources[sluice.SourceLease] == 0 {
			t.Errorf("answered by %v", sources)
		}
	})
}
