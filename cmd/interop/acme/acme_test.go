package acme

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/letsencrypt/challtestsrv"
	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"

	"github.com/sluiceproject/sluice/cmd/internal/edge/listen"
)

// authority is a Pebble server. Its address is known from the start; it responds once open is called.
type authority struct {
	*httptest.Server
	ca     string // file of the CA of its own certificate
	dns    string // resolves every name to loopback
	root   *x509.CertPool
	opened chan struct{}
	front  http.Handler
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	t.Setenv("PEBBLE_VA_NOSLEEP", "1")
	a := &authority{dns: freeAddress(t), opened: make(chan struct{}), ca: filepath.Join(t.TempDir(), "ca.pem")}
	a.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-a.opened
		a.front.ServeHTTP(w, r)
	}))
	t.Cleanup(a.Close)
	if err := os.WriteFile(a.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	resolver, err := challtestsrv.New(challtestsrv.Config{DNSAddrs: []string{a.dns}, Log: log.New(io.Discard, "", 0)})
	if err != nil {
		t.Fatal(err)
	}
	resolver.SetDefaultDNSIPv4("127.0.0.1")
	resolver.SetDefaultDNSIPv6("")
	go resolver.Run()
	t.Cleanup(resolver.Shutdown)
	return a
}

// open starts the authority. It validates domains on these ports.
func (a *authority) open(httpPort, tlsPort int) {
	quiet, store := log.New(io.Discard, "", 0), db.NewMemoryStore()
	signer := ca.New(quiet, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {}})
	checker := va.New(quiet, httpPort, tlsPort, true, a.dns, store)
	front := wfe.New(quiet, store, checker, signer, []string{"pebble.example"}, true, false, 0, 0)
	a.front = front.Handler()
	a.root = x509.NewCertPool()
	a.root.AppendCertsFromPEM(signer.GetRootCert(0).PEM())
	close(a.opened)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func port(a net.Addr) int { return a.(*net.TCPAddr).Port }

// logs collects log messages.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() {
		select {
		case l.more <- struct{}{}:
		default:
		}
	}()
	return l.text.Write(b)
}

// await waits until a text was logged this many times.
func (l *logs) await(t *testing.T, text string, times int) {
	t.Helper()
	for {
		l.mu.Lock()
		all := l.text.String()
		l.mu.Unlock()
		if strings.Count(all, text) >= times {
			return
		}
		select {
		case <-l.more:
		case <-t.Context().Done():
			t.Fatalf("%q was not logged:\n%s", text, all)
		}
	}
}

// serveACME returns a server with certificates from an authority. The returned function runs it until the test ends.
func serveACME(t *testing.T, cfg listen.TLS) (s *listen.Server, l *logs, run func() (stop func())) {
	t.Helper()
	l = &logs{more: make(chan struct{}, 1)}
	s, err := listen.New(listen.Config{
		HTTP: listen.HTTP{Endpoint: listen.Endpoint{Address: "127.0.0.1:0", TLS: cfg}}, Log: slog.New(slog.NewTextHandler(l, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, l, func() func() {
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		end := sync.OnceFunc(func() {
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(end)
		return end
	}
}

// ask sends a request to the server under a name, and verifies its certificate against root.
func ask(t *testing.T, s *listen.Server, name string, root *x509.CertPool) {
	t.Helper()
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: root, ServerName: name}, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, s.HTTPAddr().String())
		},
	}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("https://" + name + "/livez")
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 || resp.TLS.PeerCertificates[0].DNSNames[0] != name {
		t.Errorf("%s: %s over %s, as %q", name, resp.Status, resp.Proto, resp.TLS.PeerCertificates[0].DNSNames)
	}
}

const obtained = "ACME certificate obtained"

// TestOnTheListener checks that the authority can validate on the listener itself, and that certificates are available
// after a restart without the authority.
func TestOnTheListener(t *testing.T) {
	a := newAuthority(t)
	domains := []string{"api.example.com", "www.example.com"}
	cache := filepath.Join(t.TempDir(), "acme")
	cfg := listen.TLS{ACME: &listen.ACME{
		Domains: domains, Email: "ops@example.com", Directory: a.URL + "/dir", CA: a.ca, Cache: cache,
	}}
	s, l, run := serveACME(t, cfg)
	a.open(1, port(s.HTTPAddr())) // port 1 is closed
	stop := run()
	l.await(t, obtained, len(domains))
	for _, name := range domains {
		ask(t, s, name, a.root)
	}
	stop()
	a.Close()
	files, err := os.ReadDir(cache)
	if err != nil || len(files) < 3 { // the account's key, and one file per domain
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s is %v, %v", f.Name(), info.Mode(), err)
		}
	}
	s, l, run = serveACME(t, cfg)
	run()
	l.await(t, obtained, len(domains))
	for _, name := range domains {
		ask(t, s, name, a.root)
	}
}

// TestBehindClientCertificates: the listener requires client certificates, which the authority does not have.
func TestBehindClientCertificates(t *testing.T) {
	a := newAuthority(t)
	s, l, run := serveACME(t, listen.TLS{ClientCA: a.ca, ACME: &listen.ACME{
		Domains: []string{"api.example.com"}, Directory: a.URL + "/dir", CA: a.ca, Cache: filepath.Join(t.TempDir(), "acme"),
	}})
	a.open(1, port(s.HTTPAddr()))
	run()
	l.await(t, obtained, 1)
}

// TestOverHTTP: port 443 is not reachable, and port 80 is.
func TestOverHTTP(t *testing.T) {
	a := newAuthority(t)
	s, l, run := serveACME(t, listen.TLS{ACME: &listen.ACME{
		Domains: []string{"api.example.com"}, Directory: a.URL + "/dir", CA: a.ca, Cache: filepath.Join(t.TempDir(), "acme"), HTTP: "127.0.0.1:0",
	}})
	a.open(port(s.Addr("ACME")), 1)
	run()
	l.await(t, obtained, 1)
	ask(t, s, "api.example.com", a.root)
}

// TestNoCertificate checks that an untrusted authority, or one that cannot reach the server, results in an error in the
// log and no certificate. Shutdown does not wait for it.
func TestNoCertificate(t *testing.T) {
	a := newAuthority(t)
	for name, ca := range map[string]string{"untrusted": "", "cannot reach the server": a.ca} {
		s, l, run := serveACME(t, listen.TLS{ACME: &listen.ACME{
			Domains: []string{"api.example.com"}, Directory: a.URL + "/dir", CA: ca, Cache: filepath.Join(t.TempDir(), "acme"),
		}})
		if ca != "" {
			a.open(1, 1)
		}
		stop := run()
		l.await(t, "ACME certificate request failed", 1)
		if _, err := tls.Dial("tcp", s.HTTPAddr().String(), &tls.Config{ServerName: "api.example.com", InsecureSkipVerify: true}); err == nil {
			t.Errorf("%s: got a certificate", name)
		}
		stop()
	}
	silent := newAuthority(t) // it never responds
	defer silent.open(1, 1)   // otherwise its shutdown waits for the server
	_, _, run := serveACME(t, listen.TLS{ACME: &listen.ACME{
		Domains: []string{"api.example.com"}, Directory: silent.URL + "/dir", CA: silent.ca, Cache: filepath.Join(t.TempDir(), "acme"),
	}})
	run()()
}
