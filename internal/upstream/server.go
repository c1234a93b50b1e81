package upstream

import (
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

// States of a server.
const (
	StateUp      = "up"
	StateDown    = "down"    // by its health check
	StateResting = "resting" // because requests failed
)

// ServerStatus is what is known of a server.
type ServerStatus struct {
	Server    string        `json:"server"`
	State     string        `json:"state"`
	Rest      time.Duration `json:"rest,omitempty"` // how much of its rest is left
	Requests  int64         `json:"requests"`       // that were sent to it, retries included
	InFlight  int64         `json:"in_flight"`
	Upgraded  int64         `json:"upgraded"` // connections that became something else, such as WebSocket
	Failures  int64         `json:"failures"` // requests that it failed
	Retries   int64         `json:"retries"`  // of those, how many were given to another
	Ejections int64         `json:"ejections"`
}

// A server is one of a group.
type server struct {
	group  *Group
	name   string   // as configured
	url    *url.URL // the scheme is http or https
	weight int
	hash   uint64
	wire   *http.Transport
	lane   *lane // nil if it does not speak HTTP/1 in plain text

	requests, inFlight, upgraded, failures, retried, ejections atomic.Int64

	down      atomic.Bool  // by its health check
	inRow     atomic.Int64 // failures
	onTrial   atomic.Bool  // it has rested, and no request has succeeded since
	restUntil atomic.Int64 // since the group was born
	rests     int          // in a row; the group's mutex guards it
}

func newServer(g *Group, name string, u *url.URL, weight int) (*server, error) {
	s := &server{group: g, name: name, url: u, weight: weight, hash: hashOf(u.Host)}
	t := g.cfg.Timeouts
	s.wire = &http.Transport{
		// No Proxy: where requests go is the configuration's choice, not the environment's.
		DialContext:            s.dial,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    g.cfg.KeptConnections,
		IdleConnTimeout:        keepIdle,
		ResponseHeaderTimeout:  t.Header,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxHeader,
		WriteBufferSize:        4 << 10,
		ReadBufferSize:         4 << 10,
		Protocols:              new(http.Protocols),
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second, WriteByteTimeout: t.Idle},
	}
	switch u.Scheme {
	case "http":
		s.wire.Protocols.SetHTTP1(true)
		if lanes && !g.cfg.noLane {
			s.lane = &lane{server: s}
		}
	case "h2c":
		u.Scheme = "http"
		s.wire.Protocols.SetUnencryptedHTTP2(true)
	case "https":
		s.wire.Protocols.SetHTTP1(true)
		s.wire.Protocols.SetHTTP2(true)
		d, err := newTLSDialer(s)
		if err != nil {
			return nil, err
		}
		s.wire.DialTLSContext = d.dial
	}
	return s, nil
}

const (
	// keepIdle is how long an unused connection is kept: shorter than most servers do, so that they seldom close one that
	// is just being used.
	keepIdle = 30 * time.Second
	// maxHeader bounds the header of an answer.
	maxHeader = 256 << 10
)

func (s *server) close() {
	s.wire.CloseIdleConnections()
	if s.lane != nil {
		s.lane.close()
	}
}
