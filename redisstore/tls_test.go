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

// TestTLS: by TLS both sides are who they say, or nothing is connected and the error tells why.
func TestTLS(t *testing.T) {
	server := redistest.StartTLS(t)
	secure := "rediss://" + server.Secure
	certs := []tls.Certificate{server.Client}
	for _, c := range []struct {
		name   string
		config redisstore.Config
		says   string // "": it works
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

// TestNoCertificate: a server that wants a certificate says so after the handshake, and hangs up. Whether it is heard before
// depends on who is quicker.
func TestNoCertificate(t *testing.T) {
	server := redistest.StartTLS(t)
	store, err := redisstore.Open(redisstore.Config{URL: "rediss://" + server.Secure, TLS: &tls.Config{RootCAs: server.Roots}})
	if err == nil {
		defer store.Close()
		await(t, func() error {
			if err = try(store); err != nil && strings.Contains(err.Error(), "Config.TLS.Certificates") {
				return nil
			}
			return errors.Join(errors.New("no word of certificates"), err)
		})
	}
	if !strings.Contains(err.Error(), "Config.TLS.Certificates") {
		t.Error(err)
	}
}

// TestNoTLSThere: Redis says nothing to who speaks TLS on its other port, which could also be a slow network.
func TestNoTLSThere(t *testing.T) {
	store := open(t, redisstore.Config{URL: "rediss://" + redistest.Shared(t).Addr})
	refusal(t, store, "is this the server's TLS port?", false)
}
