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

// upstream is a simulated upstream: a number of servers, a bounded or unbounded queue, and random service times.
type upstream struct {
	places  chan struct{} // one per server
	service func() time.Duration
	queue   int64 // maximum length, beyond which requests fail at once; 0: unbounded
	inside  atomic.Int64
	served  atomic.Int64
	fails   atomic.Bool
	slower  atomic.Int64 // factor of the service time; 0: 1
	broken  func() bool  // reports whether a request fails; nil: none
}

func newUpstream(servers int, service func() time.Duration) *upstream {
	return &upstream{places: make(chan struct{}, servers), service: service}
}

// serve blocks for the service time and reports whether the request succeeded.
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

// traffic is a period of random arrivals, with a fraction of each priority.
type traffic struct {
	rate  float64 // per second
	parts [4]float64
	lasts time.Duration
}

// seen holds the outcomes of a period's requests by priority.
type seen struct {
	mu              sync.Mutex
	offered, served [4]int
	shed            [4]int
	took            []time.Duration // latencies of served requests
	most            int             // maximum in flight
	goodput         float64         // served per second, including requests that arrived before
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

// world is an adaptive limiter in front of an upstream, in a bubble.
type world struct {
	t       *testing.T
	limiter *AdaptiveLimiter
	up      *upstream
	rand    *rand.Rand
	wait    sync.WaitGroup
}

// simulate runs f in a bubble and fails the test if requests are in flight at its end.
func simulate(t *testing.T, cfg Config, servers int, mean time.Duration, f func(w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(7, 7))
		w := &world{t: t, limiter: NewAdaptiveLimiter(cfg), up: newUpstream(servers, exponential(rand.New(rand.NewPCG(1, 2)), mean)), rand: r}
		w.limiter.SetChance(rand.New(rand.NewPCG(3, 4)).Float64) // only one goroutine calls Acquire
		f(w)
		w.wait.Wait()
		if n := w.limiter.InFlight(); n != 0 {
			t.Errorf("%d in flight at the end", n)
		}
	})
}

// run sends a period of traffic. Requests served by its end count.
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
		if !w.limiter.Acquire(p, ticket) {
			s.mu.Lock()
			s.shed[p]++
			s.mu.Unlock()
			continue
		}
		s.mu.Lock()
		s.most = max(s.most, w.limiter.InFlight())
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

// service is the mean latency without load.
const service = 20 * time.Millisecond

var bounds = Config{Min: 10, Max: 500}

// capacity returns the number of requests per second that the servers can serve.
func capacity(servers int) float64 { return float64(servers) / service.Seconds() }

func (w *world) report(name string, s *seen) (goodput float64) {
	w.t.Logf("%-12s offered %v shed %v goodput %.0f/s p50 %v p99 %v most %d limit %d", name, s.offered, s.shed, s.goodput,
		s.quantile(0.5).Round(time.Millisecond), s.quantile(0.99).Round(time.Millisecond), s.most, w.limiter.Limit())
	return s.goodput
}
