package redisstore_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/redisstore"
)

// TestTLS checks that both sides are verified, and that a failed verification returns an error with the reason.
func TestTLS(t *testing.T) {
	server := redistest.StartTLS(t)
	secure := "rediss://" + server.Secure
	certs := []tls.Certificate{server.Client}
	for _, c := range []struct {
		name   string
		config redisstore.Config
		says   string // "": no error
	}{
		{"right", redisstore.Config{URL: secure, TLS: &tls.Config{RootCAs: server.Roots, Certificates: certs}}, ""},
		{"right name", redisstore.Config{URL: secure, TLS: &tls.Config{RootCAs: server.Roots, Certificates: certs, ServerName: redistest.ServerName}}, ""},
		{"unverified by wish", redisstore.Config{URL: secure, TLS: &tls.Config{InsecureSkipVerify: true, Certificates: certs}}, ""},
		{"the system's authorities", redisstore.Config{URL: secure}, "Config.TLS.RootCAs"},
		{"no authority", redisstore.Config{URL: secure, TLS: &tls.Config{RootCAs: x509.NewCertPool(), Certificates: certs}}, "Config.TLS.RootCAs"},
		{"wrong name", redisstore.Config{URL: secure, TLS: &tls.Config{RootCAs: server.Roots, Certificates: certs, ServerName: "other.test"}}, "ServerName"},
		{"no TLS in the URL", redisstore.Config{URL: server.URL(), TLS: &tls.Config{RootCAs: server.Roots}}, "rediss://"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.says != "" {
				misconfigured(t, c.config, c.says)
				return
			}
			store := open(t, c.config)
			await(t, func() error { return try(store) })
		})
	}
}

// TestNoCertificate: a server that requires a client certificate sends an alert after the handshake and closes the
// connection. Whether the client reads the alert before the close is a race.
func TestNoCertificate(t *testing.T) {
	server := redistest.StartTLS(t)
	store, err := redisstore.Open(redisstore.Config{URL: "rediss://" + server.Secure, TLS: &tls.Config{RootCAs: server.Roots}})
	if err == nil {
		defer store.Close()
		await(t, func() error {
			if err = try(store); err != nil && strings.Contains(err.Error(), "Config.TLS.Certificates") {
				return nil
			}
			return errors.Join(errors.New("error does not mention certificates"), err)
		})
	}
	if !strings.Contains(err.Error(), "Config.TLS.Certificates") {
		t.Error(err)
	}
}

// TestNoTLSThere: Redis does not reply to a TLS handshake on its plain port, which looks like a slow network.
func TestNoTLSThere(t *testing.T) {
	store := open(t, redisstore.Config{URL: "rediss://" + redistest.Shared(t).Addr})
	refusal(t, store, "check that the port is the server's TLS port", false)
}
