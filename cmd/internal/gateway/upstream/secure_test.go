package upstream_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
	"github.com/sluiceproject/sluice/internal/testenv/certtest"
)

// secureOrigin starts a TLS server with a certificate of the authority that responds with the protocol and the client certificate
// of the request.
func secureOrigin(t *testing.T, a *certtest.Authority, http2 bool) string {
	t.Helper()
	pair := a.Issue(t, "inner.example.com")
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(a.PEM)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, r.Proto, " ", r.TLS.PeerCertificates[0].DNSNames[0])
	}))
	s.EnableHTTP2 = http2
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // it logs clients without a certificate, which some tests use
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

func write(t *testing.T, file string, b []byte) string {
	t.Helper()
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The certificates of servers and of the gateway are verified, as they are in the files when a connection is opened.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	a, other := certtest.New(t), certtest.New(t)
	ours := a.Issue(t, "gateway-1")
	cfg := upstream.Config{TLS: upstream.TLS{
		CA:   write(t, filepath.Join(dir, "ca.pem"), a.PEM),
		Cert: write(t, filepath.Join(dir, "cert.pem"), ours.Cert), Key: write(t, filepath.Join(dir, "key.pem"), ours.Key),
		ServerName: "inner.example.com",
	}}
	for _, http2 := range []bool{true, false} {
		proto := map[bool]string{true: "HTTP/2.0", false: "HTTP/1.1"}[http2]
		cfg.Servers = []string{secureOrigin(t, a, http2)}
		gw, g := gateway(t, cfg)
		if got := get(t, gw.URL); got.status != 200 || got.body != proto+" gateway-1" {
			t.Errorf("%+v", got)
		}
		renewed := a.Issue(t, "gateway-2")
		write(t, cfg.TLS.Cert, renewed.Cert)
		write(t, cfg.TLS.Key, renewed.Key)
		// Open connections keep their certificates, and one may still be in use for a moment.
		got := get(t, gw.URL)
		for range 1000 {
			if got.body == proto+" gateway-2" {
				break
			}
			g.Close()
			got = get(t, gw.URL)
		}
		if got.status != 200 || got.body != proto+" gateway-2" {
			t.Errorf("renewed: %+v", got)
		}
		write(t, cfg.TLS.Key, []byte("half a k"))
		g.Close()
		if got := get(t, gw.URL); got.status != 200 || got.body != proto+" gateway-2" {
			t.Errorf("while files are being replaced: %+v", got)
		}
		write(t, cfg.TLS.Cert, ours.Cert)
		write(t, cfg.TLS.Key, ours.Key)

		for name, spoil := range map[string]func(*upstream.TLS){
			"another authority": func(c *upstream.TLS) { c.CA = write(t, filepath.Join(dir, "other.pem"), other.PEM) },
			"another name":      func(c *upstream.TLS) { c.ServerName = "outer.example.com" },
			"the host's name":   func(c *upstream.TLS) { c.ServerName = "" },
			"no certificate":    func(c *upstream.TLS) { c.Cert, c.Key = "", "" },
		} {
			wrong := cfg
			spoil(&wrong.TLS)
			gw, _ := gateway(t, wrong)
			if got := get(t, gw.URL); got.status != 502 {
				t.Errorf("%s: %+v", name, got)
			}
		}
	}
}
