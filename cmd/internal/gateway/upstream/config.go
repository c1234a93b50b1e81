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

// Load balancing algorithms.
const (
	RoundRobin   = "round_robin"
	LeastRequest = "least_request"
	Hash         = "hash"
)

// Config is the configuration of a group of servers. Zero durations and counts mean the defaults.
type Config struct {
	Name string
	// Servers are http://host:port, https://host:port, with HTTP/2 if the server supports it, or h2c://host:port, which is
	// HTTP/2 without TLS, as gRPC servers use it inside a network.
	Servers []string
	// Weights are the relative shares of requests per server; nil means equal shares.
	Weights []int
	// LoadBalancing is RoundRobin, the default, LeastRequest or Hash.
	LoadBalancing string
	// HashBy returns the key of a request: requests with equal keys go to the same server. Hash requires it.
	HashBy func(*http.Request) string

	HealthCheck      *HealthCheck // nil: none
	OutlierDetection OutlierDetection
	Timeouts         Timeouts
	// Retries is the maximum number of retries of a request; the default is 1, negative means none.
	Retries int
	TLS     TLS
	// MaxIdleConns is the maximum number of idle connections per server; the default is 256.
	MaxIdleConns int

	// Merge adds the upstream's header, without hop-by-hop fields, to the header of the response, in which fields may already
	// be set. The default adds all fields.
	Merge func(response, upstream http.Header)
	// OnServerChosen is called with the server that a request is sent to, and again for each retry.
	OnServerChosen func(r *http.Request, server string)
	// Client returns the client's address of the request with the context, for its share of connections; the zero Prefix means
	// unknown.
	Client func(context.Context) netip.Prefix
	Log    *slog.Logger

	// Set by tests:
	dial        func(ctx context.Context, network, address string) (net.Conn, error)
	disablePool bool
	slow        *slowWriters
}

// HealthCheck is the configuration of active health checks.
type HealthCheck struct {
	Path     string        // path of the GET request; default "/"
	Host     string        // Host header of the request; default the server's
	Interval time.Duration // between two checks, ± 10 % jitter; default 5 s
	Timeout  time.Duration // of a check; default 1 s
	// HealthyThreshold and UnhealthyThreshold are the numbers of consecutive checks that change the state; the defaults are 2
	// and 3. The first check after the start changes it alone.
	HealthyThreshold, UnhealthyThreshold int
	// Status is the expected status; 0 means 200 to 399.
	Status int
}

// OutlierDetection configures when a server that fails requests is ejected.
type OutlierDetection struct {
	// ConsecutiveFailures is the number of consecutive failures before a server is ejected; the default is 5, negative disables
	// ejection. After an ejection one failure is enough until a request succeeds. Failures are failed connections, connections
	// that end without a response, and responses that do not start in time or are truncated.
	ConsecutiveFailures int
	// EjectionTime is the duration of the first ejection; the default is 10 s. It doubles with each further ejection, up to a
	// factor of 32, until the server has not been ejected for 10 × EjectionTime. At most 50 % of the servers are ejected, so a
	// single server never is.
	EjectionTime time.Duration
}

// Timeouts are the timeouts of a request.
type Timeouts struct {
	Connect time.Duration // to open a connection; default 1 s
	TLS     time.Duration // of the TLS handshake; default 5 s
	Header  time.Duration // from the end of the request to the start of the response; default 30 s
	Idle    time.Duration // between two parts of a body, in either direction; default 90 s
	Upgrade time.Duration // without data on an upgraded connection; default 10 min
	Total   time.Duration // of the whole request; 0: none
}

// TLS is the TLS configuration for https:// servers. The files are read again for each connection.
type TLS struct {
	CA         string // file with the CA certificates of the servers; default the system's
	Cert, Key  string // files of the client certificate, for servers that require one
	ServerName string // name in the servers' certificates; default the host
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

// check returns the first error of the configuration.
func (c *Config) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("upstream %q: %w", c.Name, fmt.Errorf(format, args...))
	}
	if len(c.Servers) == 0 {
		return bad("servers: is empty; add at least one, such as http://127.0.0.1:9001")
	}
	switch c.LoadBalancing {
	case RoundRobin, LeastRequest:
	case Hash:
		if c.HashBy == nil {
			return bad("load_balancing: hash needs hash_by, which says what requests of the same server share")
		}
	default:
		return bad("load_balancing: %q is not known; write %s, %s or %s", c.LoadBalancing, RoundRobin, LeastRequest, Hash)
	}
	if c.Weights != nil && len(c.Weights) != len(c.Servers) {
		return bad("weights: %d for %d servers; set one for each", len(c.Weights), len(c.Servers))
	}
	for _, w := range c.Weights {
		if w < 1 || w > maxWeight {
			return bad("weights: %d is not between 1 and %d", w, maxWeight)
		}
	}
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		return bad("tls: cert_file and key_file belong together; one is missing")
	}
	t := c.Timeouts
	for name, d := range map[string]time.Duration{
		"connect": t.Connect, "tls": t.TLS, "response_header": t.Header, "idle": t.Idle, "upgrade": t.Upgrade, "total": t.Total, "ejection_time": c.OutlierDetection.EjectionTime,
	} {
		if d < 0 {
			return bad("%s: %v is negative", name, d)
		}
	}
	if h := c.HealthCheck; h != nil {
		switch {
		case !strings.HasPrefix(h.Path, "/"):
			return bad("health_check: path: %q does not begin with a slash", h.Path)
		case h.Interval < 0 || h.Timeout < 0 || h.HealthyThreshold < 0 || h.UnhealthyThreshold < 0:
			return bad("health_check: interval, timeout, healthy_threshold and unhealthy_threshold cannot be negative")
		}
	}
	return nil
}

// parseServer parses the URL of a server. Its scheme selects TLS and HTTP/2 without TLS.
func parseServer(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("servers: %q is not a URL; use scheme://host:port, such as http://127.0.0.1:9001", text)
	}
	port := ""
	switch u.Scheme {
	case "http", "h2c":
		port = "80"
	case "https":
		port = "443"
	default:
		return nil, fmt.Errorf("servers: %q: scheme is not http, https or h2c", text)
	}
	if u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || (u.Path != "" && u.Path != "/") {
		return nil, fmt.Errorf("servers: %q: use scheme://host:port only; paths belong to routes", text)
	}
	if u.Port() != "" {
		port = u.Port()
	}
	u.Host, u.Path = net.JoinHostPort(u.Hostname(), port), ""
	return u, nil
}
