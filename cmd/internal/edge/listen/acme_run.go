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
	// CAs allow few failures per hour, and the manager returns a cached failure for one minute.
	minACMERetry, maxACMERetry = 61 * time.Second, time.Hour
	acmeLook                   = time.Hour // interval of checks of existing certificates
)

// run requests missing certificates and logs those that are not renewed, until ctx is done.
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

// pause waits for d and reports whether ctx was not done before.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// obtain requests the missing certificates and reports whether all are there.
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
				log.Error("ACME certificate request failed", "domain", domain, "error", err)
			}
			continue
		}
		a.ready[domain].Store(true)
		log.Info("ACME certificate obtained", "domain", domain, "not_after", leaf(c).NotAfter.UTC())
	}
	return all
}

// look logs certificates that expire soon. The manager renews them long before, but does not report failures.
func (a *acmeManager) look(log *slog.Logger, now time.Time) {
	for _, domain := range a.cfg.Domains {
		c, err := a.manager.GetCertificate(asked(domain))
		if err != nil {
			log.Error("ACME certificate unavailable", "domain", domain, "error", err)
			continue
		}
		if expiresSoon(leaf(c), now) {
			log.Error("ACME certificate not renewed", "domain", domain, "not_after", leaf(c).NotAfter.UTC())
		}
	}
}

// expiresSoon reports whether less than 1/6 of a certificate's lifetime is left. The manager renews it when 1/3 is left.
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

// listenACME adds the listeners for HTTP-01 challenges.
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

// withoutPort removes the port from the Host header, which a CA that connects to another port than 80 includes. Otherwise the
// manager would not recognise its domains.
func withoutPort(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host, _, err := net.SplitHostPort(r.Host); err == nil {
			r.Host = host
		}
		next.ServeHTTP(w, r)
	})
}
