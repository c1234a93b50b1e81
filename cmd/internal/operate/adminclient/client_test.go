package adminclient_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminclient"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/internal/testenv/certtest"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func client(t *testing.T, cfg adminclient.Config) *adminclient.Client {
	t.Helper()
	if cfg.Service == "" {
		cfg.Service = cfg.Admin
	}
	c, err := adminclient.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s.URL
}

// The token is sent only to the admin API: not to the check API, and not to the target of a redirect.
func TestTokenGoesNowhereElse(t *testing.T) {
	elsewhere := serve(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("redirect followed, with headers %q", r.Header) })
	admin := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer swordfish" {
			t.Errorf("the admin API gets %q", got)
		}
		if r.Method != http.MethodGet && r.Header.Get("X-Sluice-Admin") == "" {
			t.Error("a change has no X-Sluice-Admin header")
		}
		http.Redirect(w, r, elsewhere, http.StatusTemporaryRedirect)
	})
	service := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "" {
			t.Errorf("the check API gets %q", got)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"allowed":true}`))
	})
	c := client(t, adminclient.Config{Admin: admin, Service: service, TokenFile: write(t, "token", "swordfish\n")})
	var problem *adminclient.ProblemError
	if _, err := c.Post(t.Context(), "/v1/reset", struct{}{}, new(any)); !errors.As(err, &problem) || problem.Status != http.StatusTemporaryRedirect {
		t.Errorf("a redirect returns %v", err)
	}
	if got, err := c.Check(t.Context(), struct{}{}); err != nil || !got.Result.Allowed {
		t.Errorf("%v, %v", got, err)
	}
}

func TestExposed(t *testing.T) {
	token := write(t, "token", "swordfish")
	for _, test := range []struct {
		admin, token string
		want         bool
	}{
		{"http://192.0.2.1:6070", token, true},
		{"http://sluice.example.com", token, true},
		{"http://sluice.example.com", "", false},
		{"https://sluice.example.com", token, false},
		{"http://127.0.0.1:6070", token, false},
		{"127.0.0.2:6070", token, false},
		{"http://[::1]:6070", token, false},
		{"http://localhost:6070", token, false},
		{"unix:///run/sluice.sock", token, false},
	} {
		if got := client(t, adminclient.Config{Admin: test.admin, TokenFile: test.token}).Exposed(); got != test.want {
			t.Errorf("%s: exposed is %v", test.admin, got)
		}
	}
}

func TestWrongSettings(t *testing.T) {
	const fine = "http://127.0.0.1:6070"
	empty := write(t, "empty", " \n")
	for want, cfg := range map[string]adminclient.Config{
		"URL of the admin API":          {Admin: "ftp://x", Service: fine},
		"URL of the service":            {Admin: fine, Service: "http://x?a=b"},
		"unix:///run/sluice/admin.sock": {Admin: "unix://", Service: fine},
		"no such file":                  {Admin: fine, Service: fine, TokenFile: "/nowhere"},
		"one word":                      {Admin: fine, Service: fine, TokenFile: empty},
		"ASCII letters":                 {Admin: fine, Service: fine, TokenFile: write(t, "two", "a b")},
		"BEGIN CERTIFICATE":             {Admin: fine, Service: fine, CA: empty},
		"CA certificates: /nowhere: there is no such file": {Admin: fine, Service: fine, CA: "/nowhere"},
		"both or neither":     {Admin: fine, Service: fine, Cert: empty},
		"client certificate:": {Admin: fine, Service: fine, Cert: empty, Key: empty},
	} {
		if _, err := adminclient.New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// The client connects over TLS with a custom CA and a client certificate, and over a Unix socket.
func TestWays(t *testing.T) {
	status := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"version":"x"}`)) })
	authority := certtest.New(t)
	pair := authority.Issue(t, "localhost")
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority.PEM)
	secure := httptest.NewUnstartedServer(status)
	secure.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	secure.StartTLS()
	defer secure.Close()
	_, port, _ := net.SplitHostPort(secure.Listener.Addr().String())

	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	local := httptest.NewUnstartedServer(status)
	local.Listener.Close()
	local.Listener = listener
	local.Start()
	defer local.Close()

	ca, certFile, keyFile := write(t, "ca", string(authority.PEM)), write(t, "cert", string(pair.Cert)), write(t, "key", string(pair.Key))
	for name, cfg := range map[string]adminclient.Config{
		"mutual TLS": {Admin: "https://localhost:" + port, CA: ca, Cert: certFile, Key: keyFile},
		"a socket":   {Admin: "unix://" + socket},
	} {
		var got adminmsg.Status
		if _, err := client(t, cfg).Get(t.Context(), "/v1/status", &got); err != nil || got.Version != "x" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	var unreachable *adminclient.UnreachableError
	if _, err := client(t, adminclient.Config{Admin: "https://localhost:" + port, CA: ca}).Get(t.Context(), "/", new(any)); !errors.As(err, &unreachable) {
		t.Errorf("without a certificate: %v", err)
	}
}

// A response that Sluice does not send is reported as foreign.
func TestForeignAnswers(t *testing.T) {
	for _, answer := range []struct {
		status int
		kind   string
		text   string
	}{
		{200, "text/html", "<html>"},
		{200, "application/json", "[1"},
		{200, "application/json", "{}"},
		{200, "application/json", "null"},
		{200, "application/json", `{"status":"ok"}`},
		{404, "text/plain", "404 page not found"},
		{500, "application/json", `{"error":"x"}`},
		{200, "application/problem+json", "x"},
		{101, "", ""}, // on a connection that stays open
	} {
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if answer.status == http.StatusSwitchingProtocols {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
				_, _ = io.Copy(io.Discard, conn)
				return
			}
			w.Header().Set("Content-Type", answer.kind)
			w.WriteHeader(answer.status)
			_, _ = w.Write([]byte(answer.text))
		})
		c := client(t, adminclient.Config{Admin: url})
		_, get := c.Get(t.Context(), "/v1/status", new(adminmsg.Status))
		_, check := c.Check(t.Context(), struct{}{})
		var watch error
		for _, watch = range c.Watch(t.Context(), time.Second) {
			break
		}
		for what, err := range map[string]error{"get": get, "check": check, "watch": watch} {
			var problem *adminclient.ProblemError
			if !errors.As(err, &problem) || !problem.Foreign || problem.Status != answer.status {
				t.Errorf("%s of %+v: %v", what, answer, err)
			}
		}
	}
}

// A response of another server is foreign for every kind of response: {} has none of its fields.
func TestForeignObjects(t *testing.T) {
	c := client(t, adminclient.Config{Admin: serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })})
	for _, response := range []any{
		new(adminmsg.Status), new(adminmsg.Rules), new(adminmsg.Top), new(adminmsg.KeyPage), new(adminmsg.QueuePage), new(adminmsg.QueueItem),
		new(adminmsg.Peeked), new(adminmsg.Changed), new(adminmsg.Blocked), new(adminmsg.RuleWasReset), new(adminmsg.Suspended), new(adminmsg.Reloaded),
	} {
		var problem *adminclient.ProblemError
		if _, err := c.Post(t.Context(), "/v1/x", struct{}{}, response); !errors.As(err, &problem) || !problem.Foreign {
			t.Errorf("%T: {} returns %v", response, err)
		}
	}
}

// Errors of calls neither repeat the URL, nor lose the text of a server that wants TLS.
func TestCallErrors(t *testing.T) {
	c := client(t, adminclient.Config{Admin: "http://127.0.0.1:1"})
	if _, err := c.Get(t.Context(), "/v1/status", new(adminmsg.Status)); err == nil || strings.Count(err.Error(), "http://") != 1 || strings.Contains(err.Error(), "Get ") {
		t.Errorf("got %v", err)
	}
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	c = client(t, adminclient.Config{Admin: strings.Replace(secure.URL, "https", "http", 1)})
	_, get := c.Get(t.Context(), "/v1/status", new(adminmsg.Status))
	_, check := c.Check(t.Context(), struct{}{})
	for _, err := range []error{get, check} {
		var problem *adminclient.ProblemError
		if !errors.As(err, &problem) || !strings.Contains(problem.Text, "HTTP request to an HTTPS server") {
			t.Errorf("got %v", err)
		}
	}
}

// The stream is read event by event. Comments and other fields are skipped, and an incomplete last event is dropped.
func TestWatch(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.Query().Get("interval"); got != "1m30s" {
			t.Errorf("the interval is %q", got)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(": hello\n\nid: 7\ndata: {\"a\":\ndata: 1}\n\ndata: {\"a\":2}\r\n\r\n\n\ndata: {\"half"))
	})
	var got []string
	var last error
	for raw, err := range client(t, adminclient.Config{Admin: url}).Watch(t.Context(), 90*time.Second) {
		if last = err; err == nil {
			if strings.HasPrefix(string(raw), " ") {
				t.Errorf("the space after data: is taken for a part of %q", raw)
			}
			got = append(got, strings.ReplaceAll(string(raw), " ", ""))
		}
	}
	var unreachable *adminclient.UnreachableError
	if strings.Join(got, "") != `{"a":1}{"a":2}` || !errors.As(last, &unreachable) {
		t.Errorf("events %q, then %v", got, last)
	}
}

// Cancelling the context ends the watch and the request.
func TestWatchCancelled(t *testing.T) {
	ended := make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte("data: 1\n\n"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(ended)
	})
	ctx, cancel := context.WithCancel(t.Context())
	events := 0
	for _, err := range client(t, adminclient.Config{Admin: url}).Watch(ctx, time.Second) {
		if err == nil {
			events++
			cancel()
		}
	}
	cancel()
	if <-ended; events != 1 {
		t.Errorf("%d events", events)
	}
}
