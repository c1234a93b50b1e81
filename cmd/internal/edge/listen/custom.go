package listen

import (
	"context"
	"crypto/tls"
	"net"
)

// Custom is how the server of a protocol is made that this package does not know.
type Custom struct {
	Name           string
	Address        string // host:port, or unix:///path/to.sock
	TLS            TLS
	MaxConnections int // at once; default [DefaultMaxConnections]
	MaxPerAddress  int // connections at once of one address, IPv6 by /64; 0: not bounded

	// Serve answers until the listener is closed.
	Serve func(net.Listener) error
	// Drain closes the listener, answers what was asked, and cuts off who is not done when the context ends; then it
	// returns an error.
	Drain func(ctx context.Context) error
}

func (s *Server) newCustom(cfg *Custom) (part, error) {
	p := part{serve: cfg.Serve, drain: cfg.Drain}
	if cfg.TLS.On() {
		c, err := newCertificates(cfg.TLS)
		if err != nil {
			return part{}, err
		}
		s.certificates = append(s.certificates, c)
		p.serve = func(l net.Listener) error { return cfg.Serve(tls.NewListener(l, c.config())) }
	}
	return p, nil
}
