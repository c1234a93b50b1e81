package overload_test

import (
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/sluiceproject/sluice/internal/overload"
)

func TestLoads(t *testing.T) {
	for _, c := range []struct {
		name    string
		servers int
		offered float64 // as a multiple of the capacity
	}{
		{"half", 20, 0.5},
		{"full", 20, 1},
		{"twice", 20, 2},
		{"tenfold", 20, 10},
		{"half of few", 2, 0.5},
		{"tenfold of few", 4, 10},
		{"tenfold of many", 60, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			simulate(t, bounds, c.servers, service, func(w *world) {
				tr := traffic{rate: c.offered * capacity(c.servers), lasts: 2 * time.Second}
				s := w.run(tr)
				w.report("first", s)
				tr.lasts = time.Duration(min(10, 5e4/tr.rate) * float64(time.Second)) // simulated requests take time too
				s = w.run(tr)
				goodput := w.report("then", s)
				if s.most > bounds.Max {
					t.Errorf("%d in flight, maximum %d", s.most, bounds.Max)
				}
				if least := 0.9 * min(1, c.offered) * capacity(c.servers); goodput < least {
					t.Errorf("%.0f/s served, want at least %.0f/s", goodput, least)
				}
				if c.offered <= 0.5 && s.all(s.shed) > 0 {
					t.Errorf("%v shed without overload", s.shed)
				}
				if limit := 5 * service; s.quantile(0.5) > limit && c.servers > 10 {
					t.Errorf("median latency %v", s.quantile(0.5))
				}
			})
		})
	}
}

// A temporary overload: before it all requests are served, during it as many as the capacity allows, and a few seconds after
// it no request is shed.
func TestSteps(t *testing.T) {
	const servers = 20
	for _, times := range []float64{2, 10} {
		t.Run("", func(t *testing.T) {
			simulate(t, bounds, servers, service, func(w *world) {
				calm := traffic{rate: 0.5 * capacity(servers), lasts: 5 * time.Second}
				rush := traffic{rate: times * capacity(servers), lasts: 5 * time.Second}
				if s := w.run(calm); s.all(s.shed) > 0 {
					t.Errorf("%v shed before the overload", s.shed)
				}
				w.report("onset", w.run(traffic{rate: rush.rate, lasts: 2 * time.Second}))
				s := w.run(rush)
				goodput := w.report("rush", s)
				if goodput < 0.9*capacity(servers) || s.quantile(0.5) > 3*service || s.quantile(0.99) > 10*service {
					t.Errorf("%.0f/s served, median latency %v, 99th percentile %v", goodput, s.quantile(0.5), s.quantile(0.99))
				}
				calm.lasts = 2 * time.Second
				w.report("after", w.run(calm))
				calm.lasts = 5 * time.Second
				if s := w.run(calm); s.all(s.shed) > 0 {
					t.Errorf("%v shed 2 s after the overload", s.shed)
				}
				w.report("calm", w.run(calm))
				if w.limiter.Limit() != bounds.Max {
					t.Errorf("limit %d, want %d", w.limiter.Limit(), bounds.Max)
				}
			})
		})
	}
}

// A permanently higher latency is not an overload as long as the upstream has idle servers.
func TestSlowerIsNotOverload(t *testing.T) {
	const servers = 100
	simulate(t, bounds, servers, service, func(w *world) {
		tr := traffic{rate: 0.1 * capacity(servers), lasts: 5 * time.Second}
		w.report("before", w.run(tr))
		w.up.slower.Store(5)
		tr.lasts = 4 * time.Second
		w.report("slower", w.run(tr))
		tr.lasts = 20 * time.Second
		s := w.run(tr)
		w.report("then", s)
		if s.all(s.shed) > s.all(s.offered)/200 {
			t.Errorf("%v of %v shed because the latency has risen", s.shed, s.offered)
		}
	})
}

// A higher latency is an overload if the upstream has too few servers.
func TestSlowerAndOverloaded(t *testing.T) {
	const servers = 20
	simulate(t, bounds, servers, service, func(w *world) {
		tr := traffic{rate: 0.5 * capacity(servers), lasts: 5 * time.Second}
		w.run(tr)
		w.up.slower.Store(5)
		w.report("slower", w.run(tr))
		tr.lasts = 10 * time.Second
		s := w.run(tr)
		if goodput := w.report("then", s); goodput < 0.9*capacity(servers)/5 || s.quantile(0.5) > 3*5*service {
			t.Errorf("%.0f/s served, median latency %v", goodput, s.quantile(0.5))
		}
	})
}

// Latencies that vary by orders of magnitude, and few requests, are no overload.
func TestNaturalTails(t *testing.T) {
	for name, draw := range map[string]func(r *rand.Rand) time.Duration{
		"lognormal": func(r *rand.Rand) time.Duration { return time.Duration(float64(service) * math.Exp(2*r.NormFloat64())) },
		"two kinds": func(r *rand.Rand) time.Duration { return []time.Duration{time.Millisecond, time.Second}[r.IntN(2)] },
		"pareto": func(r *rand.Rand) time.Duration {
			return time.Duration(float64(service) / math.Pow(1-r.Float64(), 1/1.2))
		},
	} {
		for _, rate := range []float64{2, 50, 500} {
			t.Run(name, func(t *testing.T) {
				simulate(t, Config{Min: 10, Max: 2000}, 10_000, service, func(w *world) {
					r := rand.New(rand.NewPCG(5, 6))
					var mu sync.Mutex
					w.up.service = func() time.Duration {
						mu.Lock()
						defer mu.Unlock()
						return min(draw(r), time.Minute)
					}
					tr := traffic{rate: rate, lasts: 30 * time.Second}
					s := w.run(tr)
					w.report("tails", s)
					if s.all(s.shed) > 0 {
						t.Errorf("%v of %v shed", s.shed, s.offered)
					}
				})
			})
		}
	}
}

// Failures of an overloaded upstream lower the limit.
func TestFailuresByLoad(t *testing.T) {
	const servers = 20
	simulate(t, bounds, servers, service, func(w *world) {
		w.up.queue = 20
		tr := traffic{rate: 10 * capacity(servers), lasts: 3 * time.Second}
		w.run(tr)
		tr.lasts = 5 * time.Second
		s := w.run(tr)
		goodput := w.report("failing", s)
		failed := s.all(s.offered) - s.all(s.served) - s.all(s.shed)
		if goodput < 0.9*capacity(servers) || failed > s.all(s.served)/5 {
			t.Errorf("%.0f/s served, %d failed", goodput, failed)
		}
	})
}

// Failures unrelated to load do not lower the limit for long, and neither does an outage after its end.
func TestFailuresWithoutLoad(t *testing.T) {
	const servers = 100
	t.Run("some", func(t *testing.T) {
		simulate(t, bounds, servers, service, func(w *world) {
			tr := traffic{rate: 0.5 * capacity(servers), lasts: 5 * time.Second}
			broken := atomic.Int64{}
			w.up.broken = func() bool { return broken.Add(1)%5 == 0 }
			w.report("some", w.run(tr))
			s := w.run(tr)
			if w.report("then", s); s.all(s.shed) > 0 {
				t.Errorf("%v of %v shed because of a constant failure rate of 20 %%", s.shed, s.offered)
			}
		})
	})
	t.Run("outage", func(t *testing.T) {
		simulate(t, bounds, servers, service, func(w *world) {
			tr := traffic{rate: 0.5 * capacity(servers), lasts: 5 * time.Second}
			w.run(tr)
			w.up.fails.Store(true)
			w.report("outage", w.run(tr))
			w.up.fails.Store(false)
			tr.lasts = 3 * time.Second
			w.report("after", w.run(tr))
			s := w.run(tr)
			if w.report("then", s); s.all(s.shed) > 0 {
				t.Errorf("%v of %v shed after an outage", s.shed, s.offered)
			}
		})
	})
}

// The lower priorities are shed first.
func TestPriorities(t *testing.T) {
	const servers = 20
	for _, c := range []struct {
		name  string
		parts [4]float64 // load as fractions of the capacity: low, normal, high, critical
		want  [4]float64 // minimum fraction served
	}{
		{"critical fits", [4]float64{6, 2, 1.5, 0.5}, [4]float64{Critical: 0.99}},
		{"high fits", [4]float64{8, 1.3, 0.4, 0.3}, [4]float64{High: 0.95, Critical: 0.99}},
		{"normal fits", [4]float64{9, 0.4, 0.2, 0.2}, [4]float64{Normal: 0.92, High: 0.98, Critical: 0.99}},
		{"all but some of the low", [4]float64{0.7, 0.3, 0.1, 0.1}, [4]float64{Low: 0.5, Normal: 0.97, High: 0.99, Critical: 0.99}},
	} {
		t.Run(c.name, func(t *testing.T) {
			simulate(t, bounds, servers, service, func(w *world) {
				sum := 0.0
				for _, p := range c.parts {
					sum += p
				}
				tr := traffic{rate: sum * capacity(servers), lasts: 3 * time.Second}
				for p := range c.parts {
					tr.parts[p] = c.parts[p] / sum
				}
				w.run(tr)
				tr.lasts = 6 * time.Second
				s := w.run(tr)
				goodput := w.report(c.name, s)
				if goodput < 0.9*capacity(servers) {
					t.Errorf("%.0f/s served", goodput)
				}
				last := -1.0
				for p := Low; p <= Critical; p++ {
					share := float64(s.served[p]) / float64(s.offered[p])
					if share < c.want[p] || share < last-0.01 {
						t.Errorf("%v: %.3f served, want %.2f and no less than of lower priorities", p, share, c.want[p])
					}
					last = share
				}
			})
		})
	}
}

// The limit returns to its maximum after an idle time.
func TestIdle(t *testing.T) {
	const servers = 4
	simulate(t, bounds, servers, service, func(w *world) {
		w.run(traffic{rate: 0.5 * capacity(servers), lasts: 3 * time.Second})
		w.run(traffic{rate: 10 * capacity(servers), lasts: 10 * time.Second})
		if w.limiter.Limit() > 100 {
			t.Errorf("limit %d with four servers", w.limiter.Limit())
		}
		<-time.After(time.Minute)
		tickets := make([]Ticket, 300)
		for i := range tickets {
			w.limiter.Acquire(Normal, &tickets[i])
		}
		if n := w.limiter.InFlight(); n != 300-int(w.limiter.Shed(Normal)) && n < 290 {
			t.Errorf("%d of 300 admitted after a minute", n)
		}
		for i := range tickets {
			tickets[i].Done(NotForwarded)
		}
	})
}

// Never more than the maximum are in flight, and a second Done has no effect.
func TestNeverAboveMax(t *testing.T) {
	t.Parallel()
	l := NewAdaptiveLimiter(Config{Min: 2, Max: 7})
	var wait sync.WaitGroup
	var inside, most atomic.Int64
	for range 16 {
		wait.Go(func() {
			for range 2000 {
				var ticket Ticket
				if !l.Acquire(Priority(rand.N(4)), &ticket) {
					continue
				}
				n := inside.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				runtime.Gosched()
				inside.Add(-1)
				ticket.Done(Outcome(rand.N(4)))
				ticket.Done(Responded)
			}
		})
	}
	wait.Wait()
	if n := most.Load(); n > 7 || n < 2 {
		t.Errorf("up to %d in flight, maximum 7", n)
	}
	if l.InFlight() != 0 {
		t.Errorf("%d in flight at the end", l.InFlight())
	}
}

// In shadow mode no request is shed, and requests that would be shed are counted.
func TestShadow(t *testing.T) {
	l := NewAdaptiveLimiter(Config{Min: 1, Max: 2, Shadow: true})
	tickets := make([]Ticket, 5)
	for i := range tickets {
		if !l.Acquire(High, &tickets[i]) {
			t.Fatal("shed in shadow mode")
		}
	}
	if l.Shed(High) != 3 || l.InFlight() != 5 {
		t.Errorf("%d would have been shed, %d in flight", l.Shed(High), l.InFlight())
	}
}

func TestConfigureKeepsWhatWasLearnt(t *testing.T) {
	const servers = 4
	simulate(t, bounds, servers, service, func(w *world) {
		w.run(traffic{rate: 0.5 * capacity(servers), lasts: 3 * time.Second})
		w.run(traffic{rate: 10 * capacity(servers), lasts: 10 * time.Second})
		learnt := w.limiter.Limit()
		w.limiter.Configure(Config{Min: 5, Max: 1000})
		if w.limiter.Limit() != learnt {
			t.Errorf("the limit was %d and is %d", learnt, w.limiter.Limit())
		}
		w.limiter.Configure(Config{Min: 2, Max: 5})
		if w.limiter.Limit() > 5 {
			t.Errorf("the limit is %d above its maximum of 5", w.limiter.Limit())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		l := NewAdaptiveLimiter(bounds)
		if l.Configure(Config{Min: 10, Max: 800}); l.Limit() != 800 {
			t.Errorf("a limit at its maximum is %d after the maximum was raised to 800", l.Limit())
		}
	})
}

func TestAcquireDoesNotAllocate(t *testing.T) {
	l := NewAdaptiveLimiter(bounds)
	var ticket Ticket
	if n := testing.AllocsPerRun(1000, func() {
		if l.Acquire(Normal, &ticket) {
			ticket.ResponseStarted()
			ticket.Done(Responded)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAdaptiveLimiter(b *testing.B) {
	l := NewAdaptiveLimiter(bounds)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		var ticket Ticket
		for pb.Next() {
			if l.Acquire(Normal, &ticket) {
				ticket.Done(Responded)
			}
		}
	})
}

// Requests that wait for their clients are not in flight, whatever their number and the order of Wait, Resume and Done, and
// the waiting time is not part of the latency.
func TestWaitingForClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewAdaptiveLimiter(Config{Min: 1, Max: 10})
		slow := make([]Ticket, 100)
		for i := range slow {
			if !l.Acquire(Normal, &slow[i]) {
				t.Fatalf("request %d is shed with %d in flight", i, l.InFlight())
			}
			slow[i].Wait()
			slow[i].Wait() // a client may send and read at the same time
			slow[i].Resume()
		}
		if n := l.InFlight(); n != 0 {
			t.Errorf("%d are in flight", n)
		}
		for i := range slow { // some resume, some are done while they wait, some wait again afterwards
			if i%2 == 0 {
				slow[i].Resume()
			}
		}
		if n := l.InFlight(); n != 50 {
			t.Errorf("%d in flight, 50 have resumed", n)
		}
		for i := range slow {
			slow[i].Done(Responded)
			slow[i].Wait()
			slow[i].Resume()
			if i%2 == 1 {
				slow[i].Resume()
			}
			slow[i].Done(Responded)
		}
		if n := l.InFlight(); n != 0 {
			t.Errorf("%d in flight at the end", n)
		}
	})
}

// Slow clients do not affect the limit.
func TestSlowClientsAreNoOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewAdaptiveLimiter(Config{Min: 10, Max: 100})
		var all sync.WaitGroup
		shed := 0
		for i := range 10_000 {
			<-time.After(time.Millisecond)
			ticket := new(Ticket)
			if !l.Acquire(Normal, ticket) {
				shed++
				continue
			}
			all.Go(func() {
				if i > 5000 { // from then on clients take a second to send
					ticket.Wait()
					<-time.After(time.Second)
					ticket.Resume()
				}
				<-time.After(20 * time.Millisecond)
				ticket.ResponseStarted()
				ticket.Done(Responded)
			})
		}
		all.Wait()
		if shed > 0 || l.Limit() != 100 {
			t.Errorf("%d were shed, the limit is %d", shed, l.Limit())
		}
	})
}
