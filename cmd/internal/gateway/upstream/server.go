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
	StateDown    = "down"    // by its health check
	StateEjected = "resting" // because requests failed
)

// ServerStatus is what is known of a server.
type ServerStatus struct {
	Server     string        `json:"server"`
	State      string        `json:"state"`
	EjectedFor time.Duration `json:"rest,omitempty"` // how much longer it is ejected
	Requests   int64         `json:"requests"`       // that were sent to it, retries included
	InFlight   int64         `json:"in_flight"`
	Upgraded   int64         `json:"upgraded"` // connections that became something else, such as WebSocket
	Failures   int64         `json:"failures"` // requests that it failed
	Retries    int64         `json:"retries"`  // of those, how many were given to another
	Ejections  int64         `json:"ejections"`
}

// A server is one of a group.
type server struct {
	group  *Group
	name   string   // as configured
	url    *url.URL // the scheme is http or https
	weight int
	hash   uint64
	wire   *http.Transport // of HTTP/1; nil if the server is called by HTTP/2 without TLS
	h2     *h2Pool         // nil if it speaks HTTP/1 in plain text
	alone  *h2Pool         // for requests that travel alone; nil like h2
	pool   *connPool       // nil if it does not

	requests, inFlight, upgraded, failures, retried, ejections atomic.Int64

	down                atomic.Bool  // by its health check
	consecutiveFailures atomic.Int64 // failures
	onProbation         atomic.Bool  // it was ejected, and no request has succeeded since
	ejectedUntil        atomic.Int64 // since the group started
	ejectionsInRow      int          // in a row; the group's mutex guards it
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
		// No Proxy: where requests go is the configuration's choice, not the environment's.
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

// roundTrip sends a request that does not take the pool, with a head of a length, and returns the head of its response. A
// request is sent once, or twice if resend allows it. Cancel has to end the request's context.
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
	// http.Transport repeats what it takes for harmless by itself: also a POST with an idempotency key, and as often as
	// there are unused connections.
	var tries int
	var wrote atomic.Pointer[time.Time] // when it was first sent
	res, err := s.wire.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(c httptrace.GotConnInfo) {
			tries++
			sent := wrote.Load()
			if tries > 2 || tries == 2 && sent != nil && (!idempotent(r) || !again.may(*sent)) {
				cancel(errAgain)
				c.Conn.Close() // what is written to it fails, and the transport gives up
			}
		},
		WroteHeaders: func() { now := time.Now(); wrote.CompareAndSwap(nil, &now) },
	})))
	if upgrade && err != nil && strings.Contains(err.Error(), "tls: no application protocol") { // it speaks HTTP/2 alone
		err = &requestError{err: errNoUpgrade}
	}
	if s.h2 != nil && errors.As(err, new(*dialError)) {
		s.h2.http1Until.Store(0) // it may have changed
		s.alone.http1Until.Store(0)
	}
	return res, err
}

// overHTTP2 sends a request with a head of a length, and returns the head of its response.
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
	errAgain     = errors.New("it ended connections that were waiting unused, more than once")
	errNoUpgrade = errors.New("the upstream speaks HTTP/2, which has no upgrades")
)

const (
	// keepIdle is how long an unused connection is kept: shorter than most servers do, so that they seldom close one that
	// is just being used.
	keepIdle = 30 * time.Second
	// maxHeader bounds the header of an answer.
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
