package upstream

import "time"

// restLongest is how many times the first rest the longest is.
const restLongest = 32

// failed counts a failure, and gives the server rest if it has failed too often.
func (g *Group) failed(s *server, f *failure) {
	if !f.fails() {
		return
	}
	s.failures.Add(1)
	inRow := s.inRow.Add(1)
	if most := g.cfg.Eject.Failures; most < 0 || (inRow < int64(most) && !s.onTrial.Load()) {
		return
	}
	g.eject(s)
}

// succeeded ends a row of failures.
func (g *Group) succeeded(s *server) {
	// Reading is cheap, and that is all that happens to servers that are well.
	if s.inRow.Load() != 0 {
		s.inRow.Store(0)
	}
	if s.onTrial.Load() {
		s.onTrial.Store(false)
	}
}

// eject gives a server rest, unless half of the group would be more than half.
func (g *Group) eject(s *server) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Since(g.born)
	resting := 0
	for _, other := range g.servers {
		if time.Duration(other.restUntil.Load()) > now {
			resting++
		}
	}
	ended := time.Duration(s.restUntil.Load())
	if ended > now || resting+1 > len(g.servers)/2 {
		return // requests that were under way when it was sent to rest fail too
	}
	first := g.cfg.Eject.Rest
	if now-ended > 10*first {
		s.rests = 0
	}
	rest := first * time.Duration(min(1<<min(s.rests, 30), restLongest))
	s.rests++
	s.ejections.Add(1)
	s.onTrial.Store(true)
	s.inRow.Store(0)
	s.restUntil.Store(int64(now + rest))
	g.lookLocked()
	g.cfg.Log.Warn("an upstream server rests", "upstream", g.cfg.Name, "server", s.name, "rest", rest.String())
}

// setDown is the verdict of the health check.
func (g *Group) setDown(s *server, down bool, why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.down.Swap(down) == down {
		return
	}
	g.lookLocked()
	if down {
		g.cfg.Log.Warn("an upstream server is down", "upstream", g.cfg.Name, "server", s.name, "because", why)
	} else {
		g.cfg.Log.Info("an upstream server is up", "upstream", g.cfg.Name, "server", s.name)
	}
}
