package sluice_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
)

// eventualNodes returns instances that share a store with AccuracyEventual.
func eventualNodes(t *testing.T, s *farStore, limit sluice.Limit, mode sluice.FailMode, n int, opts ...sluice.Option) []*sluice.Limiter {
	t.Helper()
	var nodes []*sluice.Limiter
	for range n {
		rule := mustRule(t, sluice.Rule{Name: "r", Limit: limit, Accuracy: sluice.AccuracyEventual, OnFailure: mode})
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

// load is the load offered to all instances together, in order of time.
type load struct {
	mu       sync.Mutex
	at       []time.Duration // times of admitted requests since the epoch
	offered  int64
	degraded int64
}

// offer sends requests for the key to each instance at random times, in total rate per second, for d.
func offer(t *testing.T, nodes []*sluice.Limiter, rate float64, d time.Duration) *load {
	t.Helper()
	all := &load{}
	var wait sync.WaitGroup
	start := time.Now()
	gap := 2 * float64(len(nodes)) / rate * float64(time.Second)
	for i, l := range nodes {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 3))
			for pause(time.Duration(random.Float64() * gap)); time.Since(start) < d; pause(time.Duration(random.Float64() * gap)) {
				d := mustAllow(t, l, "hot", 1)
				all.mu.Lock()
				all.offered++
				if d.Allowed {
					all.at = append(all.at, time.Duration(time.Now().UnixNano()))
				}
				if d.Source.Degraded() {
					all.degraded++
				}
				all.mu.Unlock()
			}
		})
	}
	wait.Wait()
	return all
}

// windows returns the admitted requests per window.
func (a *load) windows(window time.Duration) map[time.Duration]int64 {
	counts := make(map[time.Duration]int64)
	for _, at := range a.at {
		counts[at/window]++
	}
	return counts
}

// burst returns the maximum over all intervals of admitted requests − rate × length.
func (a *load) burst(rate float64) float64 {
	worst, level, last := 0.0, 0.0, time.Duration(0)
	for _, at := range a.at {
		level = max(0, level-rate*(at-last).Seconds()) + 1
		last = at
		worst = max(worst, level)
	}
	return worst
}

func toNextSecond() { pause(time.Second - time.Duration(time.Now().UnixNano())%time.Second) }

// Eight instances never admit more in a window than limit + offered load within MaxStaleness, and hardly more than the
// limit if they extrapolate the usage of others.
func TestEventualWindows(t *testing.T) {
	const limit, windows, nodes = 400, 6, 8
	staleness := sluice.MaxStaleness(sluice.DefaultStoreTimeout).Seconds()
	for _, of := range []sluice.Limit{
		sluice.PerSecond(limit).WithAlgorithm(sluice.FixedWindow), sluice.PerSecond(limit).WithAlgorithm(sluice.SlidingWindowCounter),
		sluice.PerSecond(limit).WithAlgorithm(sluice.FixedWindow).WithAlign(sluice.AlignFirstRequest),
	} {
		epoch := of.Algorithm == sluice.FixedWindow && of.Align == sluice.AlignEpoch
		for _, times := range []float64{0.5, 2, 10} {
			var mean [2]float64
			for i, opts := range [][]sluice.Option{nil, {sluice.WithoutForesight()}} {
				if i > 0 && !epoch {
					continue
				}
				synctest.Test(t, func(t *testing.T) {
					s := newFar()
					s.disturb(after(500 * time.Microsecond))
					all := eventualNodes(t, s, of, sluice.FailClosed, nodes, opts...)
					toNextSecond()
					got := offer(t, all, times*limit, windows*time.Second)
					counts, worst := got.windows(time.Second), int64(0)
					for _, n := range counts {
						mean[i] += float64(n-limit) / limit / windows
						worst = max(worst, n)
					}
					bound := limit + times*limit*staleness
					t.Logf("%v %v× foresight %v: mean excess %.1f%%, worst window %d, bound %.0f, %d offered, %d calls",
						of, times, i == 0, 100*mean[i], worst, bound, got.offered, s.calls.Load())
					if of.Align == sluice.AlignFirstRequest { // its windows start elsewhere
						worst = int64(len(got.at)) / windows
					}
					if float64(worst) > bound {
						t.Errorf("a window admitted %d, the bound is %.0f", worst, bound)
					}
					if least := min(1, times) * limit * windows * 94 / 100; float64(len(got.at)) < least {
						t.Errorf("%d were admitted, want at least %.0f", len(got.at), least)
					}
					if most := int64(12 * nodes * windows); s.calls.Load() > most {
						t.Errorf("%d calls of the store, want at most %d", s.calls.Load(), most)
					}
					if got.degraded > 0 {
						t.Errorf("%d answers were degraded", got.degraded)
					}
				})
			}
			if times > 1 && epoch && mean[0] > mean[1]/2 {
				t.Errorf("%v %v×: foresight leaves %.1f%% of excess of %.1f%%", of, times, 100*mean[0], 100*mean[1])
			}
		}
	}
}

// spent returns how far the store's bucket is from full, a negative balance included.
func spent(t *testing.T, s *farStore, l *sluice.Limiter, rate float64) float64 {
	t.Helper()
	out := make([]sluice.Decision, 1)
	if err := s.Store.Apply(t.Context(), []sluice.Take{{Rule: l.Rules()[0], Key: "hot"}}, out); err != nil {
		t.Fatal(err)
	}
	return out[0].ResetAfter.Seconds() * rate
}

// Eight instances on a bucket admit its rate in the long run, because a negative balance carries over, and no larger
// burst than the bound.
func TestEventualBuckets(t *testing.T) {
	const rate, nodes, seconds = 200, 8, 20
	staleness := sluice.MaxStaleness(sluice.DefaultStoreTimeout).Seconds()
	for _, test := range []struct {
		burst int64
		times float64
		opts  []sluice.Option
	}{{200, 2, nil}, {200, 10, nil}, {40, 10, nil}, {200, 2, []sluice.Option{sluice.WithoutForesight()}}} {
		synctest.Test(t, func(t *testing.T) {
			s := newFar()
			s.disturb(after(500 * time.Microsecond))
			all := eventualNodes(t, s, sluice.PerSecond(rate).WithBurst(test.burst), sluice.FailClosed, nodes, test.opts...)
			offer(t, all, test.times*rate, 2*time.Second) // uses up the burst
			owed := spent(t, s, all[0], rate)
			got := offer(t, all, test.times*rate, seconds*time.Second)
			owed = spent(t, s, all[0], rate) - owed // change of usage at the store, which later takes would make up for
			long := (float64(len(got.at)) - owed) / (rate * seconds)
			worst, bound := got.burst(rate), float64(test.burst)+test.times*rate*staleness
			t.Logf("burst %d, %v×: %.3f of the rate, worst burst %.0f, bound %.0f, %d calls",
				test.burst, test.times, long, worst, bound, s.calls.Load())
			if long < 0.97 || long > 1.03 {
				t.Errorf("%.3f of the rate was admitted in the long run", long)
			}
			if worst > bound {
				t.Errorf("a burst of %.0f, the bound is %.0f", worst, bound)
			}
		})
	}
}
