package overload_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/sluiceproject/sluice/internal/overload"
)

// upstream is a simulated one: so many servers, a queue without end or with one, and times of service that are drawn.
type upstream struct {
	places  chan struct{} // the servers
	service func() time.Duration
	queue   int64 // longest; more is answered with a failure at once; 0: no end
	inside  atomic.Int64
	served  atomic.Int64
	fails   atomic.Bool
	slower  atomic.Int64 // by how many times; 0: not
	broken  func() bool  // for each request; nil: none is
}

func newUpstream(servers int, service func() time.Duration) *upstream {
	return &upstream{places: make(chan struct{}, servers), service: service}
}

// serve takes as long as the upstream does, and tells whether it served.
func (u *upstream) serve() bool {
	if u.fails.Load() || u.broken != nil && u.broken() {
		return false
	}
	if n := u.inside.Add(1); u.queue > 0 && n > u.queue+int64(cap(u.places)) {
		u.inside.Add(-1)
		return false
	}
	u.places <- struct{}{}
	<-time.After(u.service() * time.Duration(max(1, u.slower.Load())))
	<-u.places
	u.inside.Add(-1)
	u.served.Add(1)
	return true
}

func exponential(r *rand.Rand, mean time.Duration) func() time.Duration {
	var mu sync.Mutex
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(r.ExpFloat64() * float64(mean))
	}
}

// traffic is a stretch of arrivals at random, a part of each priority.
type traffic struct {
	rate  float64 // a second
	parts [4]float64
	lasts time.Duration
}

// seen is what became of a stretch's requests, by priority.
type seen struct {
	mu              sync.Mutex
	offered, served [4]int
	shed            [4]int
	took            []time.Duration // of those that were served
	most            int             // in flight
	goodput         float64         // served a second, whenever it had come
}

func (s *seen) all(counts [4]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

func (s *seen) quantile(q float64) time.Duration {
	slices.Sort(s.took)
	if len(s.took) == 0 {
		return 0
	}
	return s.took[int(q*float64(len(s.took)-1))]
}

// world is a gate before an upstream, in a bubble.
type world struct {
	t    *testing.T
	gate *AdaptiveLimiter
	up   *upstream
	rand *rand.Rand
	wait sync.WaitGroup
}

// simulate runs in a bubble; all requests have left at its end.
func simulate(t *testing.T, cfg Config, servers int, mean time.Duration, f func(w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(7, 7))
		w := &world{t: t, gate: NewAdaptiveLimiter(cfg), up: newUpstream(servers, exponential(rand.New(rand.NewPCG(1, 2)), mean)), rand: r}
		w.gate.SetChance(rand.New(rand.NewPCG(3, 4)).Float64) // only one goroutine enters
		f(w)
		w.wait.Wait()
		if n := w.gate.InFlight(); n != 0 {
			t.Errorf("%d are in flight at the end", n)
		}
	})
}

// run has a stretch of traffic arrive. What is served by its end counts.
func (w *world) run(tr traffic) *seen {
	s, before := &seen{}, w.up.served.Load()
	if tr.parts == ([4]float64{}) {
		tr.parts[Normal] = 1
	}
	end := time.Now().Add(tr.lasts)
	next := time.Now()
	for {
		next = next.Add(time.Duration(w.rand.ExpFloat64() / tr.rate * float64(time.Second)))
		if next.After(end) {
			break
		}
		<-time.After(time.Until(next))
		p := w.draw(tr.parts)
		s.mu.Lock()
		s.offered[p]++
		s.mu.Unlock()
		ticket := new(Ticket)
		if !w.gate.Acquire(p, ticket) {
			s.mu.Lock()
			s.shed[p]++
			s.mu.Unlock()
			continue
		}
		s.mu.Lock()
		s.most = max(s.most, w.gate.InFlight())
		s.mu.Unlock()
		w.wait.Go(func() { w.request(s, p, ticket) })
	}
	<-time.After(time.Until(end))
	s.mu.Lock()
	defer s.mu.Unlock()
	return &seen{
		offered: s.offered, served: s.served, shed: s.shed, took: slices.Clone(s.took), most: s.most, goodput: float64(w.up.served.Load()-before) / tr.lasts.Seconds(),
	}
}

func (w *world) draw(parts [4]float64) Priority {
	x := w.rand.Float64()
	for p := Low; p < Critical; p++ {
		if x -= parts[p]; x < 0 {
			return p
		}
	}
	return Critical
}

func (w *world) request(s *seen, p Priority, ticket *Ticket) {
	began := time.Now()
	ok := w.up.serve()
	outcome := Responded
	if !ok {
		outcome = Failed
	}
	ticket.Done(outcome)
	s.mu.Lock()
	defer s.mu.Unlock()
	if ok {
		s.served[p]++
		s.took = append(s.took, time.Since(began))
	}
}

// service is how long requests take on average without load.
const service = 20 * time.Millisecond

var bounds = Config{Min: 10, Max: 500}

// capacity is what so many servers can serve in a second.
func capacity(servers int) float64 { return float64(servers) / service.Seconds() }

func (w *world) report(name string, s *seen) (goodput float64) {
	w.t.Logf("%-12s offered %v shed %v goodput %.0f/s p50 %v p99 %v most %d limit %d", name, s.offered, s.shed, s.goodput,
		s.quantile(0.5).Round(time.Millisecond), s.quantile(0.99).Round(time.Millisecond), s.most, w.gate.Limit())
	return s.goodput
}
