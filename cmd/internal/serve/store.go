package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/pemfile"
	"github.com/sluiceproject/sluice/internal/plainfile"
	"github.com/sluiceproject/sluice/memcachestore"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/redisstore"
)

// servedStore is a store with what belongs to it.
type servedStore struct {
	sluice.Store
	options   []sluice.Option           // of the limiter
	run       func(ctx context.Context) // beside the service, until the context ends
	close     func()
	instances func() int // that share the store; 0: not known
}

// openStore opens the store. A server that is away is no error: the rules' fail modes answer until it is there.
func (s *Service) openStore() (servedStore, error) {
	c := &s.cfg.Store
	o := servedStore{
		options: []sluice.Option{sluice.WithBudget(c.Budget)}, run: func(context.Context) {}, close: func() {},
		instances: func() int { return max(1, int(c.Instances)) },
	}
	secure, err := storeTLS(&c.TLS)
	if err != nil {
		return o, storeError(err)
	}
	switch c.Kind {
	case config.Redis:
		cfg := redisstore.Config{URL: c.URL, PasswordFile: c.PasswordFile, TLS: secure, Prefix: c.Prefix}
		if s.dry {
			err = cfg.Check()
			break
		}
		r, err := redisstore.Open(cfg)
		if err != nil {
			return o, storeError(err)
		}
		o.Store, o.close = r, r.Close
		o.run = func(ctx context.Context) { _ = r.Heartbeat(ctx) }
		o.instances = func() int {
			if n := r.Nodes(); n > 0 {
				return n
			}
			return int(c.Instances)
		}
		o.options = append(o.options, sluice.WithNodes(o.instances))
		s.await(r.Join)
	case config.Memcached:
		m, err := memcachestore.Open(memcachestore.Config{Addrs: c.Servers, TLS: secure, Prefix: c.Prefix})
		if err != nil {
			return o, storeError(err)
		}
		o.Store, o.close = m, func() { _ = m.Close() }
		if c.Instances > 0 {
			o.options = append(o.options, sluice.WithNodes(o.instances))
		}
		if !s.dry {
			s.await(m.Connect)
		}
	default:
		m, err := memstore.Open(memstore.Config{Bytes: c.Bytes, Snapshot: c.Snapshot})
		if err != nil {
			return o, storeError(err)
		}
		o.Store = m
		if c.Snapshot != "" && !s.dry {
			o.close = func() {
				if err := m.Save(); err != nil {
					s.log.Error("the store cannot be saved", "error", err)
				}
			}
		}
	}
	if err != nil {
		return o, storeError(err)
	}
	return o, nil
}

// storeError is an error of a store with the names of settings instead of those of Go.
func storeError(err error) error {
	text := strings.NewReplacer("Config.PasswordFile", "store.password_file", "Config.URL", "store.url", "Config.TLS", "store.tls").Replace(err.Error())
	if text == err.Error() {
		return fmt.Errorf("store: %w", err)
	}
	return errors.New("store: " + text)
}

// firstAnswer is how long the service waits for the store before it serves. It is longer than a decision has, because
// connections are made meanwhile.
const firstAnswer = time.Second

// await waits for the store's first answer, and says so if there is none.
func (s *Service) await(answer func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), firstAnswer)
	defer cancel()
	if err := answer(ctx); err != nil {
		s.log.Error("the store does not answer yet: rules' on_failure does", "error", storeError(err))
	}
}

// storeTLS is how a store's servers are spoken to, or nil if nothing is said about it.
func storeTLS(c *config.StoreTLS) (*tls.Config, error) {
	if *c == (config.StoreTLS{}) {
		return nil, nil
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		b, err := plainfile.Read(c.CA, pemfile.MaxBytes)
		if err != nil {
			return nil, err
		}
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("%s: there is no certificate in it", c.CA)
		}
	}
	if c.Cert != "" {
		if _, err := pemfile.Pair(c.Cert, c.Key); err != nil {
			return nil, err
		}
		// Read for each connection, so that they can be replaced.
		secure.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := pemfile.Pair(c.Cert, c.Key)
			return &pair, err
		}
	}
	return secure, nil
}
