package upstream

import (
	"math"
	"net/http"
	"slices"
	"time"
)

// pick chooses a server that has not been tried, or any if all have.
func (g *Group) pick(r *http.Request, tried []*server) *server {
	if len(g.servers) == 1 {
		return g.servers[0]
	}
	set := g.current()
	var s *server
	switch g.cfg.LoadBalancing {
	case LeastRequests:
		s = g.leastBusy(set.usable, tried)
	case Hash:
		s = set.rendezvous(hashOf(g.cfg.HashBy(r)), tried)
	default:
		s = g.next(set.order, tried)
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
	return set.usable[0]
}

func (g *Group) next(order, tried []*server) *server {
	for range order {
		s := order[g.nextServer.Add(1)%uint64(len(order))]
		if len(tried) == 0 || !slices.Contains(tried, s) {
			return s
		}
	}
	return nil
}

// leastBusy has the fewest requests in flight for its weight. Where it begins to look moves on, so that equals take
// turns.
func (g *Group) leastBusy(usable, tried []*server) (best *server) {
	from, least := g.nextServer.Add(1), math.Inf(1)
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

// rendezvous is the server of a key by rendezvous hashing: each server draws a number for the key, and the highest has it.
// When a server leaves, its keys alone move, to all others alike; when it comes back, they return. Every gateway draws
// the same numbers.
func (set *serverSet) rendezvous(key uint64, tried []*server) (best *server) {
	var most uint64
	highest := math.Inf(-1)
	for _, s := range set.usable {
		if slices.Contains(tried, s) {
			continue
		}
		drawn := mix(key ^ s.hash)
		if set.even {
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

// A serverSet is the servers that may be chosen, until that changes.
type serverSet struct {
	usable []*server
	order  []*server     // of round robin: every server as often as it weighs, spread evenly
	until  time.Duration // since the group started: when an ejection ends; 0 if none does
	even   bool          // all weigh the same
}

// current returns the servers that may be chosen now.
func (g *Group) current() *serverSet {
	set := g.serverSet.Load()
	if set != nil && (set.until == 0 || time.Since(g.startedAt) < set.until) {
		return set
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.rebuildLocked()
}

// rebuildLocked computes the set.
func (g *Group) rebuildLocked() *serverSet {
	set := &serverSet{even: true}
	now := time.Since(g.startedAt)
	for _, s := range g.servers {
		ejectedFor := time.Duration(s.ejectedUntil.Load())
		if ejectedFor > now && (set.until == 0 || ejectedFor < set.until) {
			set.until = ejectedFor
		}
		if ejectedFor <= now && !s.down.Load() {
			set.usable = append(set.usable, s)
		}
	}
	if len(set.usable) == 0 {
		set.usable = g.servers
	}
	for _, s := range set.usable {
		set.even = set.even && s.weight == set.usable[0].weight
	}
	set.order = set.usable
	if !set.even {
		set.order = spread(set.usable)
	}
	g.serverSet.Store(set)
	return set
}

// spread lists every server as often as it weighs, none many times in a row: at each step all earn their weight, and
// the richest pays for all. (nginx does the same.)
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

// succeeded ends a row of failures.
func (g *Group) succeeded(s *server) {
	// Reading is cheap, and that is all that happens to servers that are well.
	if s.consecutiveFailures.Load() != 0 {
		s.consecutiveFailures.Store(0)
	}
	if s.onProbation.Load() {
		s.onProbation.Store(false)
	}
}

// failed counts a failure, and ejects the server if it has failed too often.
func (g *Group) failed(s *server, f *failure) {
	if !f.fails() {
		return
	}
	s.failures.Add(1)
	failures := s.consecutiveFailures.Add(1)
	if most := g.cfg.OutlierDetection.ConsecutiveFailures; most < 0 || (failures < int64(most) && !s.onProbation.Load()) {
		return
	}
	g.eject(s)
}

// maxEjectionFactor is how many times the first ejection time the longest is.
const maxEjectionFactor = 32

// eject ejects a server, unless more than half of the group would be.
func (g *Group) eject(s *server) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Since(g.startedAt)
	ejected := 0
	for _, other := range g.servers {
		if time.Duration(other.ejectedUntil.Load()) > now {
			ejected++
		}
	}
	ended := time.Duration(s.ejectedUntil.Load())
	if ended > now || ejected+1 > len(g.servers)/2 {
		return // requests that were in flight when it was ejected fail too
	}
	first := g.cfg.OutlierDetection.EjectionTime
	if now-ended > 10*first {
		s.ejectionsInRow = 0
	}
	ejectedFor := first * time.Duration(min(1<<min(s.ejectionsInRow, 30), maxEjectionFactor))
	s.ejectionsInRow++
	s.ejections.Add(1)
	s.onProbation.Store(true)
	s.consecutiveFailures.Store(0)
	s.ejectedUntil.Store(int64(now + ejectedFor))
	g.rebuildLocked()
	g.cfg.Log.Warn("an upstream server rests", "upstream", g.cfg.Name, "server", s.name, "rest", ejectedFor.String())
}
