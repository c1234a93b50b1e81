package upstream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// States of a server.
const (
	StateUp      = "up"
	StateDown    = "down"    // unhealthy
	StateEjected = "ejected" // by outlier detection
)

// ServerStatus is the status of a server.
type ServerStatus struct {
	Server     string        `json:"server"`
	State      string        `json:"state"`
	EjectedFor time.Duration `json:"ejected_for,omitempty"` // remaining time of the ejection
	Requests   int64         `json:"requests"`              // sent to it, retries included
	InFlight   int64         `json:"in_flight"`
	Upgraded   int64         `json:"upgraded"` // open upgraded connections, such as WebSockets
	Failures   int64         `json:"failures"` // failed requests
	Retries    int64         `json:"retries"`  // failed requests that were sent to another server
	Ejections  int64         `json:"ejections"`
}

// A server is a server of a group.
type server struct {
	group  *Group
	name   string   // as configured
	url    *url.URL // the scheme is http or https
	weight int
	hash   uint64
	wire   *http.Transport // for HTTP/1; nil for h2c
	h2     *h2Pool         // nil for http
	alone  *h2Pool         // for requests that need a connection for themselves; nil for http
	pool   *connPool       // only for http

	requests, inFlight, upgraded, failures, retried, ejections atomic.Int64

	down                atomic.Bool // unhealthy
	consecutiveFailures atomic.Int64
	onProbation         atomic.Bool  // it was ejected, and no request has succeeded since
	ejectedUntil        atomic.Int64 // time since the start of the group
	ejectionsInRow      int          // guarded by the group's mutex
}

func newServer(g *Group, name string, u *url.URL, weight int) (*server, error) {
	s := &server{group: g, name: name, url: u, weight: weight, hash: hashOf(u.Host)}
	switch u.Scheme {
	case "http":
		s.wire = s.transport()
		s.wire.Protocols.SetHTTP1(true)
		if canCheckConns && !g.cfg.disablePool {
			s.pool = &connPool{server: s}
		}
	case "h2c":
		u.Scheme = "http"
		s.h2, s.alone = newH2Pool(s, nil, false), newH2Pool(s, nil, true)
	case "https":
		either, err := newTLSDialer(s, "h2", "http/1.1")
		if err != nil {
			return nil, err
		}
		s.h2, s.alone = newH2Pool(s, either, false), newH2Pool(s, either, true)
		one, err := newTLSDialer(s, "http/1.1")
		if err != nil {
			return nil, err
		}
		s.wire = s.transport()
		s.wire.Protocols.SetHTTP1(true)
		s.wire.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			return one.dial(ctx, network, address)
		}
	}
	return s, nil
}

func (s *server) transport() *http.Transport {
	return &http.Transport{
		// No Proxy: the environment must not affect where requests are sent.
		DialContext:            s.dial,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    s.group.cfg.MaxIdleConns,
		IdleConnTimeout:        keepIdle,
		ResponseHeaderTimeout:  s.group.cfg.Timeouts.Header,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxHeader,
		WriteBufferSize:        4 << 10,
		ReadBufferSize:         4 << 10,
		Protocols:              new(http.Protocols),
	}
}

// roundTrip sends a request without the pool and returns the head of its response. head is the length of the request's head. The
// request is sent once, or twice if again allows it. cancel must cancel the request's context.
func (s *server) roundTrip(r *http.Request, head int, cancel context.CancelCauseFunc, again *resend) (*http.Response, error) {
	upgrade := len(r.Header["Upgrade"]) > 0
	if s.h2 != nil && (!upgrade || s.wire == nil) {
		if upgrade {
			return nil, &requestError{err: errNoUpgrade}
		}
		if res, err := s.overHTTP2(r, head); !errors.Is(err, errHTTP1) {
			return res, err
		}
	}
	// http.Transport itself retries requests that it considers idempotent: even a POST with an Idempotency-Key, and once for
	// every idle connection.
	var tries int
	var wrote atomic.Pointer[time.Time] // time of the first attempt
	res, err := s.wire.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(c httptrace.GotConnInfo) {
			tries++
			sent := wrote.Load()
			if tries > 2 || tries == 2 && sent != nil && (!idempotent(r) || !again.may(*sent)) {
				cancel(errAgain)
				c.Conn.Close() // writes fail, and the transport gives up
			}
		},
		WroteHeaders: func() { now := time.Now(); wrote.CompareAndSwap(nil, &now) },
	})))
	if upgrade && err != nil && strings.Contains(err.Error(), "tls: no application protocol") { // it supports only HTTP/2
		err = &requestError{err: errNoUpgrade}
	}
	if s.h2 != nil && errors.As(err, new(*dialError)) {
		s.h2.http1Until.Store(0) // it may now support HTTP/2
		s.alone.http1Until.Store(0)
	}
	return res, err
}

// overHTTP2 sends a request over HTTP/2 and returns the head of its response. head is the length of the request's head.
func (s *server) overHTTP2(r *http.Request, head int) (*http.Response, error) {
	ask := &h2Request{Request: r}
	if s.group.cfg.Client != nil {
		ask.from = s.group.cfg.Client(r.Context())
	}
	ask.body, _ = r.Body.(*sentBody)
	if ask.body == nil && r.Body != nil {
		ask.small = r.ContentLength
	}
	if head > acceptedHead || ask.body != nil || !s.h2.hold(ask.small) {
		return s.alone.roundTrip(ask)
	}
	res, err := s.h2.roundTrip(ask)
	if err != nil {
		s.h2.letGo(ask.small)
	}
	return res, err
}

var (
	errAgain     = errors.New("server closed idle connections more than once")
	errNoUpgrade = errors.New("HTTP/2 server does not support upgrades")
)

const (
	// keepIdle is the time for which an idle connection is kept. It is shorter than that of most servers, so that they seldom
	// close a connection that is just being used.
	keepIdle = 30 * time.Second
	// maxHeader is the maximum size of the header of a response.
	maxHeader = 256 << 10
)

func (s *server) close() {
	if s.wire != nil {
		s.wire.CloseIdleConnections()
	}
	if s.h2 != nil {
		s.h2.close()
		s.alone.close()
	}
	if s.pool != nil {
		s.pool.close()
	}
}
