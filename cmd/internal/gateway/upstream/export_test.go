package upstream

import (
	"context"
	"fmt"
	"net"
	"time"
)

// WithDial replaces the function that opens connections.
func (c Config) WithDial(dial func(ctx context.Context, network, address string) (net.Conn, error)) Config {
	c.dial = dial
	return c
}

// With sets the servers.
func (c Config) With(servers []string) Config {
	c.Servers = servers
	return c
}

// WithSlow sets the maximum number of HTTP/2 responses that wait for their clients.
func (c Config) WithSlow(most int) Config {
	c.slow = &slowWriters{limit: most}
	return c
}

// WithoutPool sends every request with http.Transport.
func (c Config) WithoutPool() Config {
	c.disablePool = true
	return c
}

// Owner returns the server of a key among the usable ones.
func (g *Group) Owner(key string) string { return g.current().rendezvous(hashOf(key), nil).name }

// SetDown sets the result of the health check.
func (g *Group) SetDown(i int, down bool) { g.setDown(g.servers[i], down, "set by a test") }

// IdleConns returns the number of idle connections in pools.
func (g *Group) IdleConns() (n int) {
	for _, s := range g.servers {
		s.pool.mu.Lock()
		n += len(s.pool.idle)
		s.pool.mu.Unlock()
	}
	return n
}

// IdleConnFaults returns the state that round trips have left on idle connections. The connections must be those of tests, which
// record their deadlines.
func (g *Group) IdleConnFaults() (faults []string) {
	for _, s := range g.servers {
		s.pool.mu.Lock()
		for _, c := range s.pool.idle {
			if c.use != (connUse{}) {
				faults = append(faults, fmt.Sprintf("%+v", c.use))
			}
			if n := c.in.Buffered(); n > 0 {
				faults = append(faults, fmt.Sprintf("%d bytes are buffered", n))
			}
			if d := c.Conn.(interface{ Deadlines() [2]time.Time }).Deadlines(); d != [2]time.Time{} {
				faults = append(faults, fmt.Sprintf("deadlines %v", d))
			}
		}
		s.pool.mu.Unlock()
	}
	return faults
}

// HTTP2InUse reports whether HTTP/2 connections have requests or dials in progress.
func (g *Group) HTTP2InUse() bool {
	for _, s := range g.servers {
		for _, p := range []*h2Pool{s.h2, s.alone} {
			p.mu.Lock()
			used := len(p.dials) > 0 || p.held.Load() != 0
			for _, c := range p.conns {
				used = used || c.users != 0 || c.busy != 0 || c.unsent != 0 || c.held != 0
			}
			p.mu.Unlock()
			if used {
				return true
			}
		}
	}
	return false
}
