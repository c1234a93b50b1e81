package generate

import (
	"container/heap"
	"math"
	"net/netip"
	"time"
)

// ordinary returns a request of an ordinary client.
func (g *generator) ordinary(micros int64, client int) event {
	e := event{micros: micros, client: address(18, client), status: 200}
	if client%3 > 0 {
		e.user = client + 1
	}
	switch n := g.rng.IntN(20); {
	case n < 10:
		e.path, e.item = "/items/", 1+g.rng.IntN(500)
	case n < 14:
		e.path = "/search"
	case n < 17:
		e.path = "/cart"
	case n < 18:
		e.path = "/login"
	default:
		e.path = "/"
	}
	return e
}

// client returns an ordinary client: of n clients the first 1/4 n send 1/2 of the requests.
func (g *generator) client() int {
	u := g.rng.Float64()
	return int(float64(g.Clients) * u * u)
}

// address returns an address of 198.18.0.0/16 or 198.19.0.0/16.
func address(network byte, n int) netip.Addr {
	return netip.AddrFrom4([4]byte{198, network, byte(n >> 8), byte(n)})
}

// wait returns an exponential time between events, in microseconds.
func (g *generator) wait(rate float64) int64 {
	return int64(min(g.rng.ExpFloat64()/rate*1e6, 1e18))
}

// shape is a factor of the rate at a time of the log.
type shape func(micros int64) float64

func constant(int64) float64 { return 1 }

// daily is 1 on average over a day.
func daily(micros int64) float64 {
	day := float64(micros%(24*time.Hour).Microseconds()) / float64((24 * time.Hour).Microseconds())
	return 1 - 0.8*math.Cos(2*math.Pi*(day-0.125))
}

// sale is 20 after 30 % of the log, and decays within 10 % of it by a factor of e.
func (g *generator) sale(micros int64) float64 {
	since := float64(micros)/float64(g.end) - 0.3
	if since < 0 {
		return 1
	}
	return 1 + 19*math.Exp(-since/0.1)
}

// arrivals is a Poisson process with a rate that varies by shape, which is at most most.
func (g *generator) arrivals(s shape, most float64) stream {
	at := int64(0)
	return streamFunc(func() event {
		for {
			at += g.wait(g.Rate * most)
			if at >= g.end || g.rng.Float64()*most < s(at) {
				return g.ordinary(at, g.client())
			}
		}
	})
}

type streamFunc func() event

func (f streamFunc) next() event { return f() }

// bot is one client that reads page after page at regular intervals.
func (g *generator) bot() stream {
	at, page := int64(0), 0
	return streamFunc(func() event {
		at += 190_000 + int64(g.rng.IntN(20_000))
		page++
		return event{micros: at, client: address(19, 1), path: "/items/", item: page, status: 200, agent: "bot/1.0"}
	})
}

// flood is 20 addresses that send 20 times the rate.
func (g *generator) flood() stream {
	at := g.end / 10 * 4
	return streamFunc(func() event {
		if at += g.wait(20 * g.Rate); at >= g.end/2 {
			at = g.end
		}
		return event{micros: at, client: address(19, 256+g.rng.IntN(20)), path: "/login", status: 401, agent: "flood/1.0"}
	})
}

// sessions are clients that send several requests in a row. At most most of them are in memory: later ones begin
// when others have ended.
type sessions struct {
	g       *generator
	waiting sessionHeap
	begin   int64 // of the next session
	start   func(s *session)
	every   float64 // sessions per second
	number  int64
	most    int
	each    func(s *session) event
}

// session is a client that sends left more requests.
type session struct {
	micros int64
	number int64 // so that sessions at the same time keep their order
	client int
	left   int
}

// maxSessions is the maximum number of sessions in memory.
const maxSessions = 1 << 16

func (s *sessions) next() event {
	for s.begin < s.g.end && len(s.waiting) < s.most && (len(s.waiting) == 0 || s.begin <= s.waiting[0].micros) {
		s.number++
		one := session{micros: s.begin, number: s.number, client: s.g.client(), left: 1}
		s.start(&one)
		heap.Push(&s.waiting, one)
		s.begin += s.g.wait(s.every)
	}
	if len(s.waiting) == 0 {
		return event{micros: s.g.end}
	}
	one := &s.waiting[0]
	e := s.each(one)
	if one.left--; one.left > 0 {
		heap.Fix(&s.waiting, 0)
	} else {
		heap.Pop(&s.waiting)
	}
	return e
}

// bursts are clients that send 1 to 40 requests, 20 on average, about 10 per second.
func (g *generator) bursts() stream {
	s := &sessions{g: g, every: g.Rate / 20.5, most: maxSessions}
	s.start = func(one *session) { one.left = 1 + g.rng.IntN(40) }
	s.each = func(one *session) event {
		e := g.ordinary(one.micros, one.client)
		one.micros += 50_000 + int64(g.rng.IntN(100_000))
		return e
	}
	s.begin = g.wait(s.every)
	return s
}

// retries is a Poisson process whose requests fail during an outage and are repeated.
func (g *generator) retries() stream {
	s := &sessions{g: g, every: g.Rate, most: maxSessions}
	down := func(micros int64) bool { return micros >= g.end/10*4 && micros < g.end/10*6 }
	s.start = func(one *session) {
		if down(one.micros) {
			one.left = 11
		}
	}
	s.each = func(one *session) event {
		e := g.ordinary(one.micros, one.client)
		if down(one.micros) {
			e.status = 503
		} else {
			one.left = 1 // the request succeeds: no further retry
		}
		one.micros += 20_000 + int64(g.rng.IntN(60_000))
		return e
	}
	s.begin = g.wait(s.every)
	return s
}

// sessionHeap orders sessions by their next request.
type sessionHeap []session

func (h sessionHeap) Len() int { return len(h) }

func (h sessionHeap) Less(i, j int) bool {
	return h[i].micros < h[j].micros || h[i].micros == h[j].micros && h[i].number < h[j].number
}

func (h sessionHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *sessionHeap) Push(one any) { *h = append(*h, one.(session)) }

func (h *sessionHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
