package upstream

import (
	"math"
	"net/http"
	"slices"
	"time"
)

// pick returns a server that has not been tried, or any if all have.
func (g *Group) pick(r *http.Request, tried []*server) *server {
	if len(g.servers) == 1 {
		return g.servers[0]
	}
	set := g.current()
	var s *server
	switch g.cfg.LoadBalancing {
	case LeastRequest:
		s = g.leastBusy(set.usable, tried)
	case Hash:
		s = set.rendezvous(hashOf(g.cfg.HashBy(r)), tried)
	default:
		s = g.next(set.order, tried)
	}
	if s != nil {
		return s
	}
	// All usable servers have been tried: use one of the others, and at last the first again.
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

// leastBusy returns the server with the fewest requests in flight relative to its weight. The start of the search rotates, so
// that equal servers take turns.
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

// rendezvous returns the server of a key by rendezvous hashing: each server has a hash for the key, and the highest wins. When
// a server leaves, only its keys move, evenly to all others; when it comes back, they return. Every gateway computes the same
// hashes.
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

// hashOf returns the FNV-1a hash, mixed. It is the same in every process.
func hashOf(text string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return mix(h)
}

// mix is the finalizer of splitmix64: every bit of x changes half of the bits on average.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// A serverSet is an immutable set of the usable servers.
type serverSet struct {
	usable []*server
	order  []*server     // for round robin: every server as often as its weight, spread evenly
	until  time.Duration // time since the start of the group when the next ejection ends; 0: none
	even   bool          // all weights are equal
}

// current returns the usable servers.
func (g *Group) current() *serverSet {
	set := g.serverSet.Load()
	if set != nil && (set.until == 0 || time.Since(g.startedAt) < set.until) {
		return set
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.rebuildLocked()
}

// rebuildLocked computes and stores the set.
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

// spread returns a list with every server as often as its weight, spread evenly. It is the smooth weighted round robin of
// nginx: at each step every server gains its weight as credit, and the one with the most credit is chosen and loses the total.
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

// succeeded resets the consecutive failures.
func (g *Group) succeeded(s *server) {
	// Reading first avoids writes to shared memory for servers without failures.
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

// maxEjectionFactor is the ratio of the longest to the first ejection time.
const maxEjectionFactor = 32

// eject ejects a server, unless more than 50 % of the group would be ejected.
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
	g.cfg.Log.Warn("upstream server ejected", "upstream", g.cfg.Name, "server", s.name, "ejected_for", ejectedFor.String())
}
