package upstream

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/pemfile"
)

// A dialError is a connection that could not be made: not a byte of any request was sent.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// dial connects to the server, whatever address the transport asks for.
func (s *server) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.group.cfg.Timeouts.Connect)
	defer cancel()
	conn, err := s.group.cfg.dial(ctx, "tcp", s.url.Host)
	if err != nil {
		return nil, &dialError{err}
	}
	return conn, nil
}

// A tlsDialer makes connections with TLS, by certificates as they are in their files at the time.
type tlsDialer struct {
	server *server
	offers []string // protocols, the best first

	mu   sync.Mutex
	last *tls.Config // the last that could be read
}

func newTLSDialer(s *server, offers ...string) (*tlsDialer, error) {
	d := &tlsDialer{server: s, offers: offers}
	_, err := d.config()
	return d, err
}

// config reads the files. When they cannot be read, as while they are being replaced, the last that could is used.
func (d *tlsDialer) config() (*tls.Config, error) {
	c, err := d.read()
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		d.last = c
	} else if d.last == nil {
		return nil, err
	} else {
		d.server.group.log.warn("certificates of an upstream cannot be read; the last ones are used", d.server.group, d.server, err)
	}
	return d.last, nil
}

func (d *tlsDialer) read() (*tls.Config, error) {
	from := d.server.group.cfg.TLS
	// No sessions are kept: one that is resumed goes on with the certificates it began with.
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: d.offers, ServerName: from.ServerName}
	if c.ServerName == "" {
		c.ServerName = d.server.url.Hostname()
	}
	if from.CA != "" {
		var err error
		if c.RootCAs, err = pemfile.Pool(from.CA); err != nil {
			return nil, fmt.Errorf("tls: ca: %w", err)
		}
	}
	if from.Cert != "" {
		pair, err := pemfile.Pair(from.Cert, from.Key)
		if err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

func (d *tlsDialer) dial(ctx context.Context, network, address string) (*tls.Conn, error) {
	c, err := d.config()
	if err != nil {
		return nil, &dialError{err}
	}
	conn, err := d.server.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, d.server.group.cfg.Timeouts.TLS)
	defer cancel()
	secured := tls.Client(conn, c)
	if err := secured.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, &dialError{err}
	}
	_ = conn.SetDeadline(time.Time{})
	return secured, nil
}
