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

// A dialError is the error of a failed connection: no byte of a request was sent.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// dial connects to the server. It ignores the address that the transport passes.
func (s *server) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.group.cfg.Timeouts.Connect)
	defer cancel()
	conn, err := s.group.cfg.dial(ctx, "tcp", s.url.Host)
	if err != nil {
		return nil, &dialError{err}
	}
	return conn, nil
}

// A tlsDialer opens TLS connections. It reads the certificate files for each connection.
type tlsDialer struct {
	server *server
	offers []string // ALPN protocols, preferred first

	mu   sync.Mutex
	last *tls.Config // the last valid configuration
}

func newTLSDialer(s *server, offers ...string) (*tlsDialer, error) {
	d := &tlsDialer{server: s, offers: offers}
	_, err := d.config()
	return d, err
}

// config reads the files. If they cannot be read, for example while they are being replaced, it returns the last valid
// configuration.
func (d *tlsDialer) config() (*tls.Config, error) {
	c, err := d.read()
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		d.last = c
	} else if d.last == nil {
		return nil, err
	} else {
		d.server.group.log.warn("reading upstream certificates failed, previous ones in use", d.server.group, d.server, err)
	}
	return d.last, nil
}

func (d *tlsDialer) read() (*tls.Config, error) {
	from := d.server.group.cfg.TLS
	// Sessions are not resumed, because a resumed session would keep the certificates of the first handshake.
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: d.offers, ServerName: from.ServerName}
	if c.ServerName == "" {
		c.ServerName = d.server.url.Hostname()
	}
	if from.CA != "" {
		var err error
		if c.RootCAs, err = pemfile.Pool(from.CA); err != nil {
			return nil, fmt.Errorf("tls.ca_file: %w", err)
		}
	}
	if from.Cert != "" {
		pair, err := pemfile.Pair(from.Cert, from.Key)
		if err != nil {
			return nil, fmt.Errorf("tls.%s: %w", pemfile.PairSetting(err, from.Key), err)
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
