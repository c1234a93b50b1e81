package listen_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/edge/listen"
	"github.com/sluiceproject/sluice/internal/testenv/certtest"
)

// Requesting certificates from a real ACME server is tested in cmd/interop/acme. Here they are in the cache.

func acmeListener(t *testing.T, edit func(*listen.TLS)) *running {
	t.Helper()
	ca := certtest.New(t)
	cache := filepath.Join(t.TempDir(), "acme")
	if err := os.Mkdir(cache, 0o700); err != nil {
		t.Fatal(err)
	}
	pair := ca.Issue(t, "a.example.com")
	if err := os.WriteFile(filepath.Join(cache, "a.example.com"), append(pair.Key, pair.Cert...), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := listen.TLS{ACME: &listen.ACME{
		// No server listens there, so the other domain never gets a certificate.
		Domains: []string{"a.example.com", "b.example.com"}, Cache: cache, Directory: "http://127.0.0.1:1/dir",
	}}
	if edit != nil {
		edit(&cfg)
	}
	r := start(t, listen.Config{HTTP: listen.HTTP{Endpoint: listen.Endpoint{Address: "127.0.0.1:0", TLS: cfg}}})
	for !r.logs.has("ACME certificate request failed") || !r.logs.has("ACME certificate obtained") {
		if t.Context().Err() != nil {
			t.Fatal("the cache is not looked at")
		}
	}
	return r
}

func TestACMECached(t *testing.T) {
	fallback := listen.Pair{Cert: filepath.Join(t.TempDir(), "crt"), Key: filepath.Join(t.TempDir(), "key")}
	install(t, fallback, certtest.New(t).Issue(t, "fallback.example.com"))
	for name, tt := range map[string]struct {
		files []listen.Pair
		want  map[string]string
	}{
		"alone": {nil, map[string]string{
			"a.example.com": "a.example.com", "A.EXAMPLE.COM": "a.example.com", "b.example.com": "refused", "c.example.com": "refused", "": "refused",
		}},
		"with files": {[]listen.Pair{fallback}, map[string]string{
			"a.example.com": "a.example.com", "b.example.com": "fallback.example.com", "c.example.com": "fallback.example.com", "": "fallback.example.com",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := acmeListener(t, func(c *listen.TLS) { c.Certificates = tt.files })
			for name, want := range tt.want {
				if got, _ := shown(t, r.HTTPAddr().String(), name, "h2", "http/1.1"); !strings.HasPrefix(got, want) {
					t.Errorf("who asks for %q is shown %s, want %s", name, got, want)
				}
			}
		})
	}
}

// Challenges need no client certificate, and cannot be used to bypass the one that clients need.
func TestACMEIsNoWayAround(t *testing.T) {
	ca := certtest.New(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, ca.PEM, 0o600); err != nil {
		t.Fatal(err)
	}
	r := acmeListener(t, func(c *listen.TLS) { c.ClientCA = file })
	for _, protocols := range [][]string{{"acme-tls/1"}, {"acme-tls/1", "http/1.1"}, {"http/1.1"}} {
		raw, err := net.Dial("tcp", r.HTTPAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		conn := tls.Client(raw, &tls.Config{ServerName: "a.example.com", InsecureSkipVerify: true, NextProtos: protocols}) //nolint:gosec // as above
		_, _ = io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: a.example.com\r\nConnection: close\r\n\r\n")
		if b, _ := io.ReadAll(conn); len(b) > 0 {
			t.Errorf("%q: a client without a certificate is answered: %s", protocols, b)
		}
		raw.Close()
	}
}

// The listener for HTTP-01 challenges redirects other requests to https.
func TestACMEHTTP(t *testing.T) {
	r := acmeListener(t, func(c *listen.TLS) { c.ACME.HTTP = "127.0.0.1:0" })
	address := r.Addr("ACME").String()
	for path, want := range map[string]int{"/x?y=1": http.StatusFound, "/.well-known/acme-challenge/none": http.StatusNotFound} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "a.example.com"
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %s", path, resp.Status)
		}
		if to := resp.Header.Get("Location"); want == http.StatusFound && to != "https://a.example.com/x?y=1" {
			t.Errorf("it leads to %s", to)
		}
	}
}

func TestWrongACME(t *testing.T) {
	open := t.TempDir()
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(t.TempDir(), "a", "b")
	for want, cfg := range map[string]listen.ACME{
		"there are no domains":                       {Cache: own},
		"wildcard certificates need a DNS challenge": {Cache: own, Domains: []string{"*.example.com"}},
		`"localhost" is not a domain`:                {Cache: own, Domains: []string{"localhost"}},
		`"../../x.example" is not a domain`:          {Cache: own, Domains: []string{"../../x.example"}},
		"set cache":                                  {Domains: []string{"a.example.com"}},
		"chmod 700":                                  {Cache: open, Domains: []string{"a.example.com"}},
		"no such file":                               {Cache: own, Domains: []string{"a.example.com"}, CA: "/nowhere"},
		"no certificate found":                       {Cache: own, Domains: []string{"a.example.com"}, CA: "acme_test.go"},
	} {
		s, err := listen.New(listen.Config{HTTP: listen.HTTP{Endpoint: listen.Endpoint{Address: "127.0.0.1:0", TLS: listen.TLS{ACME: &cfg}}}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
			if s != nil {
				s.Close()
			}
		}
	}
	if info, err := os.Stat(own); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the cache is made with %v, %v", info.Mode(), err)
	}
	_, err := listen.New(listen.Config{GRPC: listen.GRPC{Endpoint: listen.Endpoint{Address: "127.0.0.1:0", TLS: listen.TLS{
		ACME: &listen.ACME{Cache: own, Domains: []string{"a.example.com"}},
	}}}})
	if err == nil || !strings.Contains(err.Error(), "ACME is for HTTP listeners only") {
		t.Errorf("gRPC: %v", err)
	}
}
