package step_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sluiceproject/sluice/internal/step"
)

// How often is the sliding counter wrong? Cloudflare measured 0.003 % over 400 million requests of 270,000 sources,
// with a counter that counts refused requests too. The figure says as much about the traffic as about the algorithm:
// whoever is far below the limit, or far above it, is decided rightly by any algorithm, and only who is near it can be
// decided wrongly. So the traffic here is modelled on what limits are set for, and the answer is measured with and
// without clients who overdo it.
//
// The traffic: 50,000 clients whose rates follow a Zipf law with a flattened head (rank + 100), as crowds behind an
// address limit do. A client comes to look at pages, as a Poisson process; a page is a handful of requests (a geometric
// number, 4 on average) within about a second. The limit is 600 a minute: the busiest client's mean is 70 % of that,
// the median client's a three-hundredth. Now and then one of the busiest still comes near it, and those are the
// decisions that can go wrong.
//
// Tight: the same with a busiest client at 85 % of the limit. Limits should not be set so, and the figure shows why.
//
// Abusers: 15 more clients who send a steady stream of 1.2 to 20 times the limit; a fifth of all traffic is theirs.
//
// A decision is wrong if it is not the one that an exact log would make of the same history: of what the counter
// admitted or, if refused requests are charged too, of everything that came.

type traffic struct {
	clients int
	abusers int
	minutes float64
	busiest float64 // requests a minute
	page    float64 // requests
}

// stream is when a client's requests arrive, in microseconds since the start.
func (m *traffic) stream(rnd *rand.Rand, client int, limit float64) []int64 {
	rate, page := m.busiest*100/(float64(client)+100), m.page
	if client >= m.clients {
		n := float64(client-m.clients) / max(1, float64(m.abusers-1))
		rate, page = limit*1.2*math.Pow(20/1.2, n), 1
	}
	var times []int64
	for at := 0.0; ; {
		at += rnd.ExpFloat64() * page / rate
		if at >= m.minutes {
			break
		}
		when := at
		times = append(times, int64(when*minute))
		for rnd.Float64() > 1/page {
			when += rnd.ExpFloat64() * 0.25 / 60
			times = append(times, int64(when*minute))
		}
	}
	slices.Sort(times)
	return times
}

type score struct{ requests, refused, wrong, wronglyRefused int }

func (s *score) share(n int) float64 { return 100 * float64(n) / float64(max(1, s.requests)) }

// play has the counter decide all of the traffic and compares it with an exact log.
func (m *traffic) play(p step.Params, charge bool) (s score) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var log []int64
	for client := range m.clients + m.abusers {
		k := newKey(p)
		log = log[:0]
		start := int64(epoch) + rnd.Int64N(p.Length)
		first := 0 // of the log that is still in the window
		for _, at := range m.stream(rnd, client, float64(p.Count)) {
			now := start + at
			for first < len(log) && log[first] <= now-p.Length {
				first++
			}
			exact := int64(len(log)-first) < p.Count
			got := k.take(now, step.Request{Cost: 1, Charge: charge}).Allowed
			if got || charge {
				log = append(log, now)
			}
			s.requests++
			if !got {
				s.refused++
			}
			if got != exact {
				s.wrong++
				if exact {
					s.wronglyRefused++
				}
			}
		}
	}
	return s
}

func TestCounterAccuracy(t *testing.T) {
	natural := traffic{clients: 50_000, minutes: 8, busiest: 420, page: 4}
	if raceEnabled {
		natural.minutes = 1.5 // the race detector makes it slow and has nothing to find
	}
	tight, abused := natural, natural
	tight.busiest = 510
	abused.abusers = 15
	counter := step.Params{Kind: step.Counter, Count: 600, Length: minute}
	sixths, seconds := counter, counter
	sixths.Kind, sixths.Slices = step.Slices, 6
	seconds.Kind, seconds.Slices = step.Slices, 60
	for _, c := range []struct {
		name   string
		mix    traffic
		limit  step.Params
		charge bool
		most   float64 // per cent
	}{
		{"counter, natural", natural, counter, false, 0.003},
		{"counter, natural, refused requests charged", natural, counter, true, 0.003},
		{"6 sub-windows, natural", natural, sixths, false, 0.003},
		{"60 sub-windows, natural", natural, seconds, false, 0.003},
		{"counter, tight", tight, counter, false, 100},
		{"60 sub-windows, tight", tight, seconds, false, 100},
		// Clients who stay near their limit are decided wrongly now and then, by whole per cents of their requests.
		{"counter, with abusers", abused, counter, false, 100},
		{"counter, with abusers, refused requests charged", abused, counter, true, 0.2},
		{"60 sub-windows, with abusers", abused, seconds, false, 100},
	} {
		s := c.mix.play(c.limit, c.charge)
		t.Logf("%-50s %8d requests, %.4f %% refused, %.4f %% decided wrongly (%.4f %% wrongly refused)",
			c.name, s.requests, s.share(s.refused), s.share(s.wrong), s.share(s.wronglyRefused))
		if s.share(s.wrong) > c.most {
			t.Errorf("%s: %.4f %% wrong, want at most %v %%", c.name, s.share(s.wrong), c.most)
		}
	}
}
