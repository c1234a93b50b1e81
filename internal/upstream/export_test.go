package upstream

import (
	"context"
	"net"
)

// WithDial has a group connect by another way than the network.
func (c Config) WithDial(dial func(ctx context.Context, network, address string) (net.Conn, error)) Config {
	c.dial = dial
	return c
}

// WithoutLanes has http.Transport do everything.
func (c Config) WithoutLanes() Config {
	c.noLane = true
	return c
}

// Owner is the server of a key among those that may be chosen.
func (g *Group) Owner(key string) string { return g.current().owner(hashOf(key), nil).name }

// SetDown is a verdict of the health check.
func (g *Group) SetDown(i int, down bool) { g.setDown(g.servers[i], down, "a test says so") }

// KeptLines is how many connections of lanes wait for requests.
func (g *Group) KeptLines() (n int) {
	for _, s := range g.servers {
		s.lane.mu.Lock()
		n += len(s.lane.idle)
		s.lane.mu.Unlock()
	}
	return n
}
