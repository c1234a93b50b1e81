package upstream

import (
	"math"
	"net/http"
	"slices"
	"time"
)

// A view is who may be chosen, until that changes.
type view struct {
	usable []*server
	order  []*server     // of round robin: every server as often as it weighs, spread evenly
	until  time.Duration // since the group was born: when a rest ends; 0 if none does
	even   bool          // all weigh the same
}

// current is who may be chosen now.
func (g *Group) current() *view {
	v := g.seen.Load()
	if v != nil && (v.until == 0 || time.Since(g.born) < v.until) {
		return v
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lookLocked()
}

// lookLocked finds out anew.
func (g *Group) lookLocked() *view {
	v := &view{even: true}
	now := time.Since(g.born)
	for _, s := range g.servers {
		rest := time.Duration(s.restUntil.Load())
		if rest > now && (v.until == 0 || rest < v.until) {
			v.until = rest
		}
		if rest <= now && !s.down.Load() {
			v.usable = append(v.usable, s)
		}
	}
	if len(v.usable) == 0 {
		v.usable = g.servers
	}
	for _, s := range v.usable {
		v.even = v.even && s.weight == v.usable[0].weight
	}
	v.order = v.usable
	if !v.even {
		v.order = spread(v.usable)
	}
	g.seen.Store(v)
	return v
}

// spread lists every server as often as it weighs, none many times in a row: at each step all earn their weight, and
// the richest pays for everybody. (nginx does the same.)
func spread(servers []*server) (order []*server) {
	divisor, total := 0, 0
	for _, s := range servers {
		divisor = gcd(divisor, s.weight)
		total += s.weight
	}
	credit := make([]int, len(servers))
	for range total / divisor {
		best := 0
		for i, s := range servers {
			credit[i] += s.weight
			if credit[i] > credit[best] {
				best = i
			}
		}
		credit[best] -= total
		order = append(order, servers[best])
	}
	return order
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// pick chooses a server that has not been tried, or any if all have.
func (g *Group) pick(r *http.Request, tried []*server) *server {
	if len(g.servers) == 1 {
		return g.servers[0]
	}
	v := g.current()
	var s *server
	switch g.cfg.Balance {
	case LeastRequests:
		s = g.leastBusy(v.usable, tried)
	case Hash:
		s = v.owner(hashOf(g.cfg.HashBy(r)), tried)
	default:
		s = g.next(v.order, tried)
	}
	if s != nil {
		return s
	}
	// All that may be chosen have been tried; then one of the others, and at last the first again.
	for _, s := range g.servers {
		if !slices.Contains(tried, s) {
			return s
		}
	}
	return v.usable[0]
}

func (g *Group) next(order, tried []*server) *server {
	for range order {
		s := order[g.turn.Add(1)%uint64(len(order))]
		if len(tried) == 0 || !slices.Contains(tried, s) {
			return s
		}
	}
	return nil
}

// leastBusy has the fewest requests in flight for its weight. Where it begins to look moves on, so that equals take
// turns.
func (g *Group) leastBusy(usable, tried []*server) (best *server) {
	from, least := g.turn.Add(1), math.Inf(1)
	for i := range usable {
		s := usable[(from+uint64(i))%uint64(len(usable))]
		if slices.Contains(tried, s) {
			continue
		}
		if load := float64(s.inFlight.Load()+1) / float64(s.weight); load < least {
			best, least = s, load
		}
	}
	return best
}

// owner is the server of a key by rendezvous hashing: each server draws a number for the key, and the highest has it.
// When a server leaves, its keys alone move, to all others alike; when it comes back, they return. Every gateway draws
// the same numbers.
func (v *view) owner(key uint64, tried []*server) (best *server) {
	var most uint64
	highest := math.Inf(-1)
	for _, s := range v.usable {
		if slices.Contains(tried, s) {
			continue
		}
		drawn := mix(key ^ s.hash)
		if v.even {
			if best == nil || drawn > most {
				best, most = s, drawn
			}
			continue
		}
		// With weights: -w/ln(u), u between 0 and 1.
		u := (float64(drawn>>11) + 0.5) / (1 << 53)
		if score := -float64(s.weight) / math.Log(u); score > highest {
			best, highest = s, score
		}
	}
	return best
}

// hashOf is FNV-1a, well mixed. It is the same in every process.
func hashOf(text string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return mix(h)
}

// mix is the end of splitmix64: every bit of x changes half of the bits.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
