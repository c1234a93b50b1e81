package listen

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	// Authorities allow few failures an hour, and the manager remembers one for a minute.
	minACMERetry, maxACMERetry = 61 * time.Second, time.Hour
	acmeLook                   = time.Hour // at certificates that are there
)

// run has certificates asked for until the context ends, and says so when one is not renewed.
func (a *acmeManager) run(ctx context.Context, log *slog.Logger) {
	stop := context.AfterFunc(ctx, func() { close(a.client.stopped) })
	defer stop()
	defer a.client.next.CloseIdleConnections()
	wait := minACMERetry
	for {
		if a.obtain(ctx, log) {
			wait = minACMERetry
			a.look(log, time.Now())
			if !pause(ctx, acmeLook) {
				return
			}
			continue
		}
		if !pause(ctx, wait) {
			return
		}
		wait = min(2*wait, maxACMERetry)
	}
}

// pause tells whether it was not ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// obtain asks for the certificates that are missing, and tells whether there are all.
func (a *acmeManager) obtain(ctx context.Context, log *slog.Logger) (all bool) {
	all = true
	for _, domain := range a.cfg.Domains {
		if a.ready[domain].Load() {
			continue
		}
		if ctx.Err() != nil {
			return false
		}
		c, err := a.manager.GetCertificate(asked(domain))
		if err != nil {
			all = false
			if ctx.Err() == nil {
				log.Error("no certificate yet: the authority has to reach this domain on port 443, or 80 with acme.http", "domain", domain, "error", err)
			}
			continue
		}
		a.ready[domain].Store(true)
		log.Info("certificate from the authority", "domain", domain, "until", leaf(c).NotAfter.UTC())
	}
	return all
}

// look says so if a certificate ends soon: the manager renews it long before, and says nothing if it cannot.
func (a *acmeManager) look(log *slog.Logger, now time.Time) {
	for _, domain := range a.cfg.Domains {
		c, err := a.manager.GetCertificate(asked(domain))
		if err != nil {
			log.Error("the certificate cannot be used", "domain", domain, "error", err)
			continue
		}
		if expiresSoon(leaf(c), now) {
			log.Error("the authority does not renew the certificate: see that it reaches this domain", "domain", domain, "until", leaf(c).NotAfter.UTC())
		}
	}
}

// expiresSoon reports whether a certificate is valid for less than a sixth of its lifetime.
// The manager renews it when a third is left.
func expiresSoon(c *x509.Certificate, now time.Time) bool {
	return c.NotAfter.Sub(now) < c.NotAfter.Sub(c.NotBefore)/6
}

func leaf(c *tls.Certificate) *x509.Certificate {
	if c.Leaf != nil {
		return c.Leaf
	}
	parsed, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		return new(x509.Certificate)
	}
	return parsed
}

// listenACME adds listeners where authorities ask over HTTP.
func (s *Server) listenACME() error {
	for _, c := range s.certificates {
		if c.acme == nil || c.acme.cfg.HTTP == "" {
			continue
		}
		at := &Endpoint{Address: c.acme.cfg.HTTP, MaxPerAddress: DefaultMaxConnections / 4}
		err := s.add("ACME", at, func() (part, error) {
			server := &http.Server{
				Handler: withoutPort(c.acme.manager.HTTPHandler(nil)), ReadHeaderTimeout: readHeader, ReadTimeout: readAll, WriteTimeout: writeAll,
				IdleTimeout: readAll, MaxHeaderBytes: DefaultMaxHeaderBytes,
			}
			return part{serve: server.Serve, drain: func(ctx context.Context) error {
				return cmp.Or(server.Shutdown(ctx), server.Close())
			}}, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// withoutPort has the manager know its domains also where port 80 is another one on this machine, and the authority says so.
func withoutPort(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host, _, err := net.SplitHostPort(r.Host); err == nil {
			r.Host = host
		}
		next.ServeHTTP(w, r)
	})
}
