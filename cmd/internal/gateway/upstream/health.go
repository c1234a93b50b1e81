package upstream

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// Run runs the health checks until ctx is done. Without health checks it returns at once.
func (g *Group) Run(ctx context.Context) {
	if g.cfg.HealthCheck == nil {
		return
	}
	var all sync.WaitGroup
	for _, s := range g.servers {
		all.Go(func() { s.runHealthChecks(ctx, g.cfg.HealthCheck) })
	}
	all.Wait()
}

// runHealthChecks checks one server periodically.
func (s *server) runHealthChecks(ctx context.Context, h *HealthCheck) {
	failures, first := 0, true
	for {
		err := s.checkHealth(ctx, h)
		if ctx.Err() != nil {
			return
		}
		down := s.down.Load()
		switch well := err == nil; {
		case well != down: // unchanged
			failures = 0
		default:
			failures++
			if first || (down && failures >= h.HealthyThreshold) || (!down && failures >= h.UnhealthyThreshold) {
				failures = 0
				why := ""
				if err != nil {
					why = err.Error()
				}
				s.group.setDown(s, !down, why)
			}
		}
		first = false
		// ± 10 % jitter, so that the checks of many gateways are not synchronized.
		wait := time.Duration(float64(h.Interval) * (0.9 + 0.2*rand.Float64()))
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// checkHealth makes one health check.
func (s *server) checkHealth(ctx context.Context, h *HealthCheck) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url.Scheme+"://"+s.url.Host+h.Path, http.NoBody)
	if err != nil {
		return err
	}
	r.Host = h.Host
	r.Header.Set("User-Agent", "sluice-health")
	res, err := s.roundTrip(r, 0, stop, new(resend))
	if err != nil {
		return err
	}
	// A connection can be reused if its response is read to the end; up to 64 KiB are worth it. After a 101, reading would not
	// end with ctx.
	if res.StatusCode != http.StatusSwitchingProtocols {
		_, _ = io.CopyN(io.Discard, res.Body, 64<<10)
	}
	res.Body.Close()
	if res.StatusCode == h.Status || (h.Status == 0 && res.StatusCode >= 200 && res.StatusCode <= 399) {
		return nil
	}
	return fmt.Errorf("status %d", res.StatusCode)
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
		g.cfg.Log.Warn("upstream server unhealthy", "upstream", g.cfg.Name, "server", s.name, "reason", why)
	} else {
		g.cfg.Log.Info("upstream server healthy", "upstream", g.cfg.Name, "server", s.name)
	}
}
