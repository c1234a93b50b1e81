package listen_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/sluiceproject/sluice/cmd/internal/edge/listen"
	"github.com/sluiceproject/sluice/internal/testenv/certtest"
)

// files writes the certificates of a listener to files.
func files(t *testing.T) listen.TLS {
	d := t.TempDir()
	return listen.TLS{
		Cert: filepath.Join(d, "tls.crt"), Key: filepath.Join(d, "tls.key"), ClientCA: filepath.Join(d, "ca.crt"),
	}
}

func write(t *testing.T, to listen.TLS, pair certtest.Pair, ca *certtest.Authority) {
	t.Helper()
	for name, b := range map[string][]byte{to.Cert: pair.Cert, to.Key: pair.Key, to.ClientCA: ca.PEM} {
		if name == "" {
			continue
		}
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// secure returns the credentials of a client that trusts ca, with a client certificate if pair is not nil.
func secure(t *testing.T, ca *certtest.Authority, pair *certtest.Pair) grpc.DialOption {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.PEM)
	cfg := &tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS12}
	if pair != nil {
		c, err := tls.X509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Certificates = []tls.Certificate{c}
	}
	return grpc.WithTransportCredentials(credentials.NewTLS(cfg))
}

func TestMutualTLS(t *testing.T) {
	ca, other := certtest.New(t), certtest.New(t)
	to := files(t)
	to.ClientNames = []string{"web.example.com", "spiffe://x/web"}
	write(t, to, ca.Issue(t, "localhost"), ca)
	r := start(t, listen.Config{GRPC: listen.GRPC{Endpoint: listen.Endpoint{Address: "127.0.0.1:0", TLS: to}}})
	issue := func(from *certtest.Authority, names ...string) *certtest.Pair {
		pair := from.Issue(t, names...)
		return &pair
	}
	for name, tt := range map[string]struct {
		pair *certtest.Pair
		want string
	}{
		"with the name":             {issue(ca, "web.example.com"), "SERVING"},
		"with the name among more":  {issue(ca, "a.example.com", "spiffe://x/web"), "SERVING"},
		"with another name":         {issue(ca, "a.example.com"), "Unavailable"},
		"of another authority":      {issue(other, "web.example.com"), "Unavailable"},
		"without a certificate":     {nil, "Unavailable"},
		"with a name of its own CA": {issue(other, "localhost"), "Unavailable"},
	} {
		if got := health(t, dial(t, r.GRPCAddr().String(), secure(t, ca, tt.pair)), ""); got != tt.want {
			t.Errorf("a client %s gets %s, want %s", name, got, tt.want)
		}
	}
}

// Certificates are reloaded when they change; invalid ones do not replace valid ones.
func TestCertificatesChange(t *testing.T) {
	old, next := certtest.New(t), certtest.New(t)
	to := files(t)
	to.ClientCA = ""
	write(t, to, old.Issue(t, "localhost"), old)
	r := start(t, listen.Config{GRPC: listen.GRPC{Endpoint: listen.Endpoint{Address: "127.0.0.1:0", TLS: to}}})
	trust := func(ca *certtest.Authority) string {
		return health(t, dial(t, r.GRPCAddr().String(), secure(t, ca, nil)), "")
	}
	if a, b := trust(old), trust(next); a != "SERVING" || b != "Unavailable" {
		t.Fatalf("before: %s, %s", a, b)
	}
	kept := dial(t, r.GRPCAddr().String(), secure(t, old, nil))
	if got := health(t, kept, ""); got != "SERVING" {
		t.Fatal(got)
	}
	pair := next.Issue(t, "localhost")
	if err := os.WriteFile(to.Cert, pair.Cert, 0o600); err != nil { // the key is still the old one
		t.Fatal(err)
	}
	r.Reload()
	if a, b := trust(old), trust(next); a != "SERVING" || b != "Unavailable" || !r.logs.has("certificate reload failed") {
		t.Errorf("with half of a pair: %s, %s", a, b)
	}
	write(t, to, pair, next)
	r.Reload()
	if a, b := trust(old), trust(next); a != "Unavailable" || b != "SERVING" {
		t.Errorf("after: %s, %s", a, b)
	}
	if got := health(t, kept, ""); got != "SERVING" {
		t.Errorf("a connection that was open: %s", got)
	}
	if err := os.Remove(to.Cert); err != nil {
		t.Fatal(err)
	}
	r.Reload()
	if got := trust(next); got != "SERVING" {
		t.Errorf("without files: %s", got)
	}
}

func TestHTTPS(t *testing.T) {
	ca := certtest.New(t)
	to := files(t)
	to.ClientCA = ""
	write(t, to, ca.Issue(t, "localhost"), ca)
	r := start(t, listen.Config{HTTP: listen.HTTP{Endpoint: listen.Endpoint{Address: "127.0.0.1:0", TLS: to}}})
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.PEM)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+r.HTTPAddr().String()+"/livez", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("got %s", resp.Status)
	}
}

func TestWrongCertificates(t *testing.T) {
	ca := certtest.New(t)
	to := files(t)
	write(t, to, ca.Issue(t, "localhost"), ca)
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, cfg := range map[string]listen.TLS{
		"set cert_file and key_file": {Cert: to.Cert},
		"tls.cert_file: ":            {Cert: empty, Key: to.Key},
		"no certificate found":       {Cert: to.Cert, Key: to.Key, ClientCA: empty},
		"no such file":               {Cert: "/nowhere", Key: to.Key},
		"set client_ca_file":         {Cert: to.Cert, Key: to.Key, ClientNames: []string{"a"}},
	} {
		for _, c := range []listen.Config{
			{GRPC: listen.GRPC{Endpoint: listen.Endpoint{Address: "127.0.0.1:0", TLS: cfg}}}, {HTTP: listen.HTTP{Endpoint: listen.Endpoint{Address: "127.0.0.1:0", TLS: cfg}}},
		} {
			if s, err := listen.New(c); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
				if s != nil {
					s.Close()
				}
			}
		}
	}
}
