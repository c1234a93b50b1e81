package upstream

import "time"

// maxEjectionFactor is how many times the first ejection time the longest is.
const maxEjectionFactor = 32

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

// setDown sets the result of the health check.
func (g *Group) setDown(s *server, down bool, why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.down.Swap(down) == down {
		return
	}
	g.rebuildLocked()
	if down {
		g.cfg.Log.Warn("an upstream server is down", "upstream", g.cfg.Name, "server", s.name, "because", why)
	} else {
		g.cfg.Log.Info("an upstream server is up", "upstream", g.cfg.Name, "server", s.name)
	}
}
