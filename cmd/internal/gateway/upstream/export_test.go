package upstream

import (
	"context"
	"fmt"
	"net"
	"time"
)

// WithDial has a group connect by another way than the network.
func (c Config) WithDial(dial func(ctx context.Context, network, address string) (net.Conn, error)) Config {
	c.dial = dial
	return c
}

// With names the servers.
func (c Config) With(servers []string) Config {
	c.Servers = servers
	return c
}

// WithSlow bounds the responses of HTTP/2 that wait for their clients.
func (c Config) WithSlow(most int) Config {
	c.slow = &slowWriters{limit: most}
	return c
}

// WithoutPool sends every request with http.Transport.
func (c Config) WithoutPool() Config {
	c.disablePool = true
	return c
}

// Owner is the server of a key among those that may be chosen.
func (g *Group) Owner(key string) string { return g.current().rendezvous(hashOf(key), nil).name }

// SetDown is a verdict of the health check.
func (g *Group) SetDown(i int, down bool) { g.setDown(g.servers[i], down, "a test says so") }

// IdleConns is how many connections of pools wait for requests.
func (g *Group) IdleConns() (n int) {
	for _, s := range g.servers {
		s.pool.mu.Lock()
		n += len(s.pool.idle)
		s.pool.mu.Unlock()
	}
	return n
}

// IdleConnFaults lists what round trips have left on the connections that wait for requests. Connections of tests tell their
// deadlines.
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

// HTTP2InUse reports whether anything is counted for requests on connections of HTTP/2.
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
