package upstream

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// How a group chooses among its servers.
const (
	RoundRobin    = "round_robin"
	LeastRequests = "least_requests"
	Hash          = "hash"
)

// Config describes a group of servers. Durations and counts of zero are the defaults.
type Config struct {
	Name string
	// Servers are http://host:port, https://host:port, where HTTP/2 is spoken if the server offers it, or h2c://host:port,
	// which is HTTP/2 in plain text, as gRPC servers speak it inside a network.
	Servers []string
	// Weights are how much of the requests each server gets, beside the others; nil gives all the same.
	Weights []int
	// LoadBalancing is RoundRobin, the default, LeastRequests or Hash.
	LoadBalancing string
	// HashBy is what requests that belong on the same server share; Hash needs it.
	HashBy func(*http.Request) string

	HealthCheck      *HealthCheck // nil: none
	OutlierDetection OutlierDetection
	Timeouts         Timeouts
	// Retries is how often a request that may be repeated is, 1 by default; negative: never.
	Retries int
	TLS     TLS
	// MaxIdleConns is how many unused connections to each server are kept for the next requests, 256 by default.
	MaxIdleConns int

	// Merge decides what of the upstream's header goes into the answer's, which may have been written to before; by
	// default all is added. Hop-by-hop fields are gone by then.
	Merge func(answer, upstream http.Header)
	// OnServerChosen is called with the server that a request goes to, again if it goes to another.
	OnServerChosen func(r *http.Request, server string)
	// Client is the address of the client whose request has the context, by which it gets its share; zero: not known.
	Client func(context.Context) netip.Prefix
	Log    *slog.Logger

	// Of tests:
	dial        func(ctx context.Context, network, address string) (net.Conn, error)
	disablePool bool
	slow        *slowWriters
}

// HealthCheck is how the health of servers is checked.
type HealthCheck struct {
	Path     string        // asked with GET; "/" by default
	Host     string        // the Host that is asked for; the server's by default
	Interval time.Duration // between two questions, a tenth more or less; 5s by default
	Timeout  time.Duration // for an answer; 1s by default
	// HealthyThreshold and UnhealthyThreshold are how many checks in a row change the state, 2 and 3 by default. The first check after
	// the start decides alone.
	HealthyThreshold, UnhealthyThreshold int
	// Status is the answer that is expected; by default anything from 200 to 399.
	Status int
}

// OutlierDetection is when a server that fails requests is ejected.
type OutlierDetection struct {
	// ConsecutiveFailures, 5 by default, eject a server; after it one failure is enough until a request succeeds. A failure is
	// a connection that cannot be made or ends without an answer, or an answer that does not begin in time or breaks off.
	// Negative: servers are never ejected.
	ConsecutiveFailures int
	// EjectionTime is how long the first ejection is, 10s by default. Each further one is twice as long, up to 32 times, until the
	// server has been healthy for ten times EjectionTime. At most half of a group is ejected at a time, so a single server never is.
	EjectionTime time.Duration
}

// Timeouts of a request.
type Timeouts struct {
	Connect time.Duration // for a connection, 1s by default
	TLS     time.Duration // for its handshake, 5s by default
	Header  time.Duration // from the end of the request until the answer begins, 30s by default
	Idle    time.Duration // between two parts of a body, in either direction, 90s by default
	Upgrade time.Duration // without a byte on an upgraded connection, 10m by default
	Total   time.Duration // for everything; 0: no bound
}

// TLS is how servers named https:// are spoken to. The files are read anew for each connection.
type TLS struct {
	CA         string // file of the authorities that sign servers' certificates; the system's by default
	Cert, Key  string // files of our own certificate, for servers that ask for one
	ServerName string // the name in servers' certificates; the host by default
}

func (c *Config) setDefaults() {
	c.LoadBalancing = cmp.Or(c.LoadBalancing, RoundRobin)
	c.Retries = cmp.Or(c.Retries, 1)
	c.MaxIdleConns = cmp.Or(c.MaxIdleConns, 256)
	c.OutlierDetection.ConsecutiveFailures = cmp.Or(c.OutlierDetection.ConsecutiveFailures, 5)
	c.OutlierDetection.EjectionTime = cmp.Or(c.OutlierDetection.EjectionTime, 10*time.Second)
	t := &c.Timeouts
	t.Connect = cmp.Or(t.Connect, time.Second)
	t.TLS = cmp.Or(t.TLS, 5*time.Second)
	t.Header = cmp.Or(t.Header, 30*time.Second)
	t.Idle = cmp.Or(t.Idle, 90*time.Second)
	t.Upgrade = cmp.Or(t.Upgrade, 10*time.Minute)
	if c.HealthCheck != nil {
		h := *c.HealthCheck
		h.Path = cmp.Or(h.Path, "/")
		h.Interval = cmp.Or(h.Interval, 5*time.Second)
		h.Timeout = cmp.Or(h.Timeout, time.Second)
		h.HealthyThreshold = cmp.Or(h.HealthyThreshold, 2)
		h.UnhealthyThreshold = cmp.Or(h.UnhealthyThreshold, 3)
		c.HealthCheck = &h
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.slow == nil {
		c.slow = allSlow
	}
	if c.dial == nil {
		c.dial = (&net.Dialer{Timeout: c.Timeouts.Connect, KeepAlive: 30 * time.Second}).DialContext
	}
}

const maxWeight = 100

// check returns what is wrong with a configuration, in words for its author.
func (c *Config) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("upstream %q: %w", c.Name, fmt.Errorf(format, args...))
	}
	if len(c.Servers) == 0 {
		return bad("servers: there is none; write at least one, such as http://127.0.0.1:9001")
	}
	switch c.LoadBalancing {
	case RoundRobin, LeastRequests:
	case Hash:
		if c.HashBy == nil {
			return bad("balance: hash needs hash_by, which says what requests of the same server share")
		}
	default:
		return bad("balance: %q is not known; write %s, %s or %s", c.LoadBalancing, RoundRobin, LeastRequests, Hash)
	}
	if c.Weights != nil && len(c.Weights) != len(c.Servers) {
		return bad("weights: %d for %d servers; write one for each", len(c.Weights), len(c.Servers))
	}
	for _, w := range c.Weights {
		if w < 1 || w > maxWeight {
			return bad("weights: %d is not between 1 and %d", w, maxWeight)
		}
	}
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		return bad("tls: cert and key belong together; one is missing")
	}
	t := c.Timeouts
	for name, d := range map[string]time.Duration{
		"connect": t.Connect, "tls": t.TLS, "header": t.Header, "idle": t.Idle, "upgrade": t.Upgrade, "total": t.Total, "rest": c.OutlierDetection.EjectionTime,
	} {
		if d < 0 {
			return bad("%s: %v is negative", name, d)
		}
	}
	if h := c.HealthCheck; h != nil {
		switch {
		case !strings.HasPrefix(h.Path, "/"):
			return bad("health: path: %q does not begin with a slash", h.Path)
		case h.Interval < 0 || h.Timeout < 0 || h.HealthyThreshold < 0 || h.UnhealthyThreshold < 0:
			return bad("health: interval, timeout, healthy and unhealthy cannot be negative")
		}
	}
	return nil
}

// parseServer reads a server's address. TLS and plain HTTP/2 are told apart by the scheme.
func parseServer(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("servers: %q is no address; write scheme://host:port, such as http://127.0.0.1:9001", text)
	}
	port := ""
	switch u.Scheme {
	case "http", "h2c":
		port = "80"
	case "https":
		port = "443"
	default:
		return nil, fmt.Errorf("servers: %q: begin with http://, https:// or h2c://", text)
	}
	if u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || (u.Path != "" && u.Path != "/") {
		return nil, fmt.Errorf("servers: %q: write scheme://host:port and nothing else; paths are routes' business", text)
	}
	if u.Port() != "" {
		port = u.Port()
	}
	u.Host, u.Path = net.JoinHostPort(u.Hostname(), port), ""
	return u, nil
}
