package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/rlstest"
	"github.com/sluiceproject/sluice/internal/testenv/certtest"
)

// askers send requests from several goroutines until they are stopped.
type askers struct {
	asked   atomic.Int64
	stop    context.CancelFunc
	workers sync.WaitGroup
	steps   chan struct{} // one for each response, if more is waiting
}

// startLoad sends requests until stopped. A failed request fails the test.
func startLoad(t *testing.T, ask func(ctx context.Context) error) *askers {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &askers{stop: cancel, steps: make(chan struct{}, 1)}
	for range 4 {
		l.workers.Go(func() {
			for ctx.Err() == nil {
				if err := ask(context.WithoutCancel(ctx)); err != nil {
					t.Errorf("request %d failed: %v", l.asked.Load(), err)
					cancel()
				}
				l.asked.Add(1)
				select {
				case l.steps <- struct{}{}:
				default:
				}
			}
		})
	}
	t.Cleanup(l.end)
	return l
}

func (l *askers) end() {
	l.stop()
	l.workers.Wait()
}

// more waits for n more responses, or until a request fails.
func (l *askers) more(t *testing.T, n int64) {
	t.Helper()
	for until := l.asked.Load() + n; l.asked.Load() < until && !t.Failed(); {
		<-l.steps
	}
}

// A graceful shutdown under load fails no request of clients that switch to another instance when a response asks them to.
func TestServeDrainUnderLoad(t *testing.T) {
	directory := rulesDir(t, "  - {key: k, rate_limit: {unit: year, requests_per_unit: 1000000}}\n")
	cfg := fmt.Sprintf("rules: {paths: [%q]}", directory)
	first, second := startServe(t, cfg), startServe(t, cfg)
	r := manual.NewBuilderWithScheme("both")
	r.InitialState(resolver.State{Addresses: []resolver.Address{{Addr: first.grpc}, {Addr: second.grpc}}})
	conn := connect(t, r.Scheme()+":///", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithResolvers(r))
	client := pb.NewRateLimitServiceClient(conn)
	req, err := rlstest.Ask("d", "k=v")
	if err != nil {
		t.Fatal(err)
	}
	l := startLoad(t, func(ctx context.Context) error {
		_, err := client.ShouldRateLimit(ctx, req)
		return err
	})
	l.more(t, 100)
	first.signal(t, syscall.SIGTERM)
	l.more(t, 100)
	<-first.ended
	l.more(t, 100)
	l.end()
	got := rlstest.Answer(t.Context(), client, "d", "k=v hits:0")
	if got == "OK: OK 1000000/YEAR left 1000000" {
		t.Error("the second instance got no requests")
	}
}

// Certificates are replaced repeatedly under load, and no connection fails.
func TestServeCertificatesUnderLoad(t *testing.T) {
	directory := t.TempDir()
	in := func(name string) string { return filepath.Join(directory, name) }
	clients := certtest.New(t)
	pool := x509.NewCertPool()
	var authorities []*certtest.Authority
	for range 4 {
		a := certtest.New(t)
		pool.AppendCertsFromPEM(a.PEM)
		authorities = append(authorities, a)
	}
	install := func(a *certtest.Authority) {
		pair := a.Issue(t, "localhost")
		for name, b := range map[string][]byte{"key": pair.Key, "crt": pair.Cert} {
			if err := os.WriteFile(in(name+".new"), b, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(in(name+".new"), in(name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(in("ca"), clients.PEM, 0o600); err != nil {
		t.Fatal(err)
	}
	install(authorities[0])
	p := startServe(t, fmt.Sprintf(`
rules: {paths: [%q]}
listeners:
  grpc: {address: '127.0.0.1:0', tls: {cert_file: %q, key_file: %q, client_ca_file: %q}}
  http: {address: '127.0.0.1:0'}
rls: {client_domains: {web: [d]}}
`, rulesDir(t, "  - {key: k, rate_limit: {unit: year, requests_per_unit: 1000000}}\n"), in("crt"), in("key"), in("ca")))

	web, other := clients.Issue(t, "web"), clients.Issue(t, "other")
	ask := func(ctx context.Context, domain string, pair certtest.Pair) (string, error) {
		own, err := tls.X509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			return "", err
		}
		conn, err := grpc.NewClient(p.grpc, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS12, RootCAs: pool, ServerName: "localhost", Certificates: []tls.Certificate{own},
		})))
		if err != nil {
			return "", err
		}
		defer conn.Close()
		req, err := rlstest.Ask(domain, "k=v")
		if err != nil {
			return "", err
		}
		resp, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, req)
		return resp.GetOverallCode().String(), err
	}
	l := startLoad(t, func(ctx context.Context) error { _, err := ask(ctx, "d", web); return err })
	for _, a := range authorities[1:] {
		l.more(t, 10)
		install(a)
		p.signal(t, syscall.SIGHUP)
		p.await(t, "certificates reloaded")
	}
	l.more(t, 10)
	l.end()
	if got, err := ask(t.Context(), "other", web); err == nil {
		t.Errorf("client web may query another domain: %s", got)
	}
	if got, err := ask(t.Context(), "d", other); err == nil {
		t.Errorf("another client may query the domain: %s", got)
	}
}

// A client that does not read its response, an open WebSocket and a hanging delivery do not delay the exit beyond drain.timeout and
// 5 s. Aborted requests are logged, and the exit code is 0, because the shutdown was requested.
func TestServeDrainCutsOff(t *testing.T) {
	t.Parallel()
	arrived := make(chan string, 16)
	released := make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Upgrade") != "":
			arrived <- "socket"
			echoSocket(w)
		case r.Header.Get("Sluice-Attempt") != "":
			arrived <- "delivery"
			<-released
		case r.URL.Path == "/download":
			arrived <- "download"
			for chunk := make([]byte, 64<<10); ; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}
	}))
	t.Cleanup(upstream.Close)
	t.Cleanup(func() { close(released) })
	p, address := startGatewayOn(t, "{address: '127.0.0.1:0'}, drain: {timeout: 1s}",
		fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{upstream: api}]}", upstream.URL),
		"rules: [{name: queued, match: {path: /queued}, limit: {rate: 1/s, burst: 1}, on_limit: queue}]",
		fmt.Sprintf("queue: {directory: %q}", memoryDir(t)))
	for range 2 {
		resp, err := http.Post("http://"+address+"/queued", "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	for _, head := range []string{"GET /download HTTP/1.1\r\nHost: a\r\n\r\n", "GET /socket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := io.WriteString(conn, head); err != nil {
			t.Fatal(err)
		}
	}
	for seen := map[string]bool{}; len(seen) < 3; {
		seen[<-arrived] = true
	}
	p.signal(t, syscall.SIGTERM)
	p.await(t, "msg=draining")
	p.await(t, "drain timeout exceeded: connections closed")
	p.await(t, "msg=stopped")
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		t.Fatal("the process is still running a minute after the drain")
	}
	if p.err != nil {
		t.Errorf("the process exited with %v", p.err)
	}
}

// sluice reload prints the position of an error as far as it is known.
func TestReloadPlaces(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, file, "rules: [{name: a, limit: 1/s}]\n")
	p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}", file))
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	code, out, stderr := sluiceRun(t, "reload", "--admin-url", "http://"+p.admin)
	if code != term.ExitFindings || !strings.Contains(out, file+": ") || strings.Contains(out, ":0:0") {
		t.Errorf("exit %d\n%s%s", code, out, stderr)
	}
}
