package listen_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/edge/listen"
	"github.com/sluiceproject/sluice/internal/testenv/certtest"
)

// A gateway serves HTTP/1 and HTTP/2 with TLS, rejects headers that are too large, and shuts down when no requests are left,
// including those on hijacked connections, which http.Server does not track.
func TestGateway(t *testing.T) {
	a := certtest.New(t)
	pair, d := a.Issue(t, "localhost"), t.TempDir()
	files := listen.TLS{Cert: filepath.Join(d, "crt"), Key: filepath.Join(d, "key")}
	for name, b := range map[string][]byte{files.Cert: pair.Cert, files.Key: pair.Key} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	left, waiting, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
	r := start(t, listen.Config{Gateway: listen.Gateway{
		Endpoint: listen.Endpoint{Address: "127.0.0.1:0", TLS: files}, MaxHeaderBytes: 8 << 10,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }),
		OnDrain: func() { close(left) },
		Wait: func(context.Context) error {
			close(waiting)
			<-gone
			return nil
		},
	}})
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(a.PEM)
	for _, want := range []string{"HTTP/1.1", "HTTP/2.0"} {
		p := new(http.Protocols)
		p.SetHTTP1(want == "HTTP/1.1")
		p.SetHTTP2(want == "HTTP/2.0")
		client := &http.Client{Transport: &http.Transport{
			Protocols: p, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, ServerName: "localhost"},
		}}
		ask := func(header string) (int, string) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+r.GatewayAddr().String()+"/livez", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Large", header)
			resp, err := client.Do(req)
			if err != nil {
				return 0, err.Error()
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Error(err)
			}
			return resp.StatusCode, string(b)
		}
		if status, got := ask("x"); status != 200 || got != want {
			t.Errorf("%d %s, want %s", status, got, want)
		}
		if status, got := ask(strings.Repeat("x", 64<<10)); status != http.StatusRequestHeaderFieldsTooLarge && status != 0 {
			t.Errorf("a large header: %d %s", status, got)
		}
		client.CloseIdleConnections()
	}
	r.stop()
	<-left
	select {
	case <-waiting:
	case <-r.done:
		t.Fatal("shut down with a request in flight")
	}
	select {
	case <-r.done:
		t.Error("shut down with a request in flight")
	default:
	}
	close(gone)
	r.ended(t)
}
