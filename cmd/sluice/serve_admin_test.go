package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/rlstest"
	"github.com/sluiceproject/sluice/internal/testenv/certtest"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

// told is a response of the admin API.
type told struct {
	status int
	body   string
}

// operate calls the admin API. Status 0 means that there was no response.
func (p *process) operate(t *testing.T, method, path, body string, headers ...string) told {
	t.Helper()
	return operate(t, http.DefaultClient, "http://"+p.admin, method, path, body, headers...)
}

func operate(t *testing.T, c *http.Client, base, method, path, body string, headers ...string) told {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Sluice-Admin", "1")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Do(r)
	if err != nil {
		return told{body: err.Error()}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return told{body: err.Error()}
	}
	return told{resp.StatusCode, string(b)}
}

// Operators peek at, block and unblock a key, and the decisions of the service follow.
func TestServeOperators(t *testing.T) {
	p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}", rulesDir(t, "  - {key: k, rate_limit: {unit: year, requests_per_unit: 2}}\n")))
	client := p.client(t)
	answers := func(want string) {
		t.Helper()
		if got := rlstest.Answer(t.Context(), client, "d", "k=v"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	const who = `{"rule":"d/k","key":{"k":"v"}`
	answers("OK: OK 2/YEAR left 1")
	answers("OK: OK 2/YEAR left 0")
	answers("OVER_LIMIT: OVER_LIMIT 2/YEAR left 0")
	if got := p.operate(t, "POST", "/v1/peek", who+"}"); !strings.Contains(got.body, `"allowed":false,"limit":2,"remaining":0,`) {
		t.Errorf("peek: %s", got.body)
	}
	p.operate(t, "POST", "/v1/reset", who+"}")
	answers("OK: OK 2/YEAR left 1")
	p.operate(t, "POST", "/v1/block", who+`,"duration":"1h"}`)
	answers("OVER_LIMIT: OVER_LIMIT 2/YEAR left 0")
	p.operate(t, "POST", "/v1/suspend", `{"rules":["d/k"]}`)
	answers("OK: OK")
	p.operate(t, "POST", "/v1/resume", `{"rules":["d/k"]}`)
	answers("OVER_LIMIT: OVER_LIMIT 2/YEAR left 0")
	p.operate(t, "POST", "/v1/block", who+`,"duration":"0s"}`)
	answers("OK: OK 2/YEAR left 0")
	for _, want := range []string{"action=reset", "action=block", "action=suspend", "action=resume", "action=block"} {
		if line := p.await(t, "msg=audit"); !strings.Contains(line, want) || !strings.Contains(line, "outcome=done") {
			t.Errorf("the log line is %s, want %s", line, want)
		}
	}
	p.operate(t, "PUT", "/v1/log-level", `{"level":"error"}`)
	p.await(t, "level=error")
	p.operate(t, "POST", "/v1/resume", `{"rules":["d/k"]}`)
	p.await(t, "action=resume") // the log level does not hide it
}

// Operators see the decisions and the denied keys.
func TestServeTop(t *testing.T) {
	p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}", rulesDir(t, "  - {key: k, rate_limit: {unit: year, requests_per_unit: 2}}\n")))
	client := p.client(t)
	for range 5 {
		rlstest.Answer(t.Context(), client, "d", "k=noisy")
	}
	rlstest.Answer(t.Context(), client, "d", "k=quiet")
	if got := p.operate(t, "GET", "/v1/top", ""); !strings.Contains(got.body, `"entries":[{"rule":"d/k","key":{"k":"noisy"},"count":3,"max_error":0}]`) {
		t.Errorf("top: %d %s", got.status, got.body)
	}
	if got := p.operate(t, "GET", "/v1/rules", ""); !strings.Contains(got.body, `"allowed":3,"denied":3,"shadow_denied":0,`) {
		t.Errorf("rules: %d %s", got.status, got.body)
	}
	if got := p.operate(t, "GET", "/metrics", ""); !strings.Contains(got.body, `sluice_decisions_total{result="denied",rule="d/k",source="store"} 3`) {
		t.Errorf("metrics: %d %s", got.status, got.body)
	}
}

// A reload by an operator loads the rules at once, and the response contains their errors.
func TestServeReloadByOperator(t *testing.T) {
	directory := rulesDir(t, "  - {key: k, rate_limit: {unit: year, requests_per_unit: 1}}\n")
	p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}", directory))
	status := func() (s struct {
		Rules struct {
			Digest    string
			Files     []string
			LastError *struct{ Message string } `json:"last_error"`
		}
	},
	) {
		t.Helper()
		if err := json.Unmarshal([]byte(p.operate(t, "GET", "/v1/status", "").body), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := status().Rules
	if first.Digest == "" || len(first.Files) != 1 || first.LastError != nil {
		t.Errorf("the status is %+v", first)
	}
	if got := p.operate(t, "POST", "/v1/reload", ""); got.status != 200 || got.body != fmt.Sprintf("{\"digest\":%q,\"changed\":false,\"restart_needed\":[],\"config_error\":\"\"}\n", first.Digest) {
		t.Errorf("without a change: %d %s", got.status, got.body)
	}
	file := filepath.Join(directory, "d.yaml")
	write(t, file, "domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: year, requests_per_unit: many}}\n  - {ky: 1}\n")
	got := p.operate(t, "POST", "/v1/reload", "")
	if got.status != 422 || !strings.Contains(got.body, `"line":3`) || !strings.Contains(got.body, `"line":4`) || !strings.Contains(got.body, "d.yaml") {
		t.Errorf("rule files with errors: %d %s", got.status, got.body)
	}
	if s := status().Rules; s.Digest != first.Digest || s.LastError == nil || !strings.Contains(s.LastError.Message, "requests_per_unit") {
		t.Errorf("the status is %+v", s)
	}
	write(t, file, "domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: year, requests_per_unit: 9}}\n")
	if got := p.operate(t, "POST", "/v1/reload", ""); got.status != 200 { // the file watcher may have reloaded them first
		t.Errorf("in order: %d %s", got.status, got.body)
	}
	if s := status().Rules; s.Digest == first.Digest || s.LastError != nil {
		t.Errorf("the status is %+v", s)
	}
	if got := rlstest.Answer(t.Context(), p.client(t), "d", "k=v"); got != "OK: OK 9/YEAR left 8" {
		t.Errorf("got %s", got)
	}
}

// The status shows that the store is unavailable, and the service still decides.
func TestServeStatusOfStore(t *testing.T) {
	redis := redistest.Start(t)
	p := startServe(t, fmt.Sprintf("store: {kind: redis, url: '%s'}", redis.URL()))
	server := fmt.Sprintf(`"servers":[{"shard":0,"address":%q,`, redis.Addr)
	if got := p.operate(t, "GET", "/v1/status", ""); !strings.Contains(got.body, `"store":{"kind":"redis","up":true,"error":"",`+server+
		`"up":true,"breaker":"closed","since":null,"error":""}],"instances":1,"breaker_history":[]}`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	redis.Kill()
	if got := p.operate(t, "GET", "/v1/status", ""); !strings.Contains(got.body, `"store":{"kind":"redis","up":false,"error":"redisstore: `) ||
		!strings.Contains(got.body, server+`"up":false,`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := p.get(t, "/readyz"); got != 200 {
		t.Errorf("/readyz: status %d", got)
	}
	// An instance that could not read the number of instances reports it as unknown, unless the number is configured.
	for settings, want := range map[string]string{"": `"instances":0,`, ", instances: 4": `"instances":4,`} {
		p := startServe(t, fmt.Sprintf("store: {kind: redis, url: '%s'%s}", redis.URL(), settings))
		if got := p.operate(t, "GET", "/v1/status", ""); !strings.Contains(got.body, want) {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
}

// On addresses other than loopback the admin API needs authentication: the service does not start without it.
func TestServeAdminNeedsAToken(t *testing.T) {
	directory := t.TempDir()
	file := filepath.Join(directory, "sluice.yaml")
	for content, want := range map[string]string{
		"listeners:\n  grpc: {address: '127.0.0.1:0'}\n  admin: {address: ':0'}\n": "sluice.yaml:3:20: listeners.admin.address: :0 can be reached from other hosts without authentication",
		"admin: {token_file: none}\n":  "admin.token_file: ",
		"admin: {token_file: short}\n": "short: a token of 6 characters can be guessed: write at least 16 characters, such as the output of openssl rand -hex 32",
	} {
		write(t, file, content)
		write(t, filepath.Join(directory, "short"), "canary\n")
		code, stdout, stderr := sluiceRun(t, "serve", "--config", file)
		if code == 0 || !strings.Contains(stderr, want) || strings.Contains(stdout+stderr, "canary") {
			t.Errorf("%s: exit %d and\n%s\nwant %s", content, code, stderr, want)
		}
	}
	if c := config.Default(); c.Admin.Address != "127.0.0.1:6070" || c.GRPC.Address != "127.0.0.1:8081" || c.HTTP.Address != "127.0.0.1:8080" {
		t.Errorf("the default listeners are %s, %s and %s", c.Admin.Address, c.GRPC.Address, c.HTTP.Address)
	}
}

// Remote operators authenticate with a client certificate, and the log has the name in it.
func TestServeAdminCertificates(t *testing.T) {
	directory := t.TempDir()
	ca := certtest.New(t)
	server, client, stranger := ca.Issue(t, "localhost"), ca.Issue(t, "spiffe://ops/ada"), certtest.New(t).Issue(t, "ops")
	for name, b := range map[string][]byte{"ca.crt": ca.PEM, "tls.crt": server.Cert, "tls.key": server.Key, "token": []byte("a-token-of-operators\n")} {
		write(t, filepath.Join(directory, name), string(b))
	}
	in := func(name string) string { return filepath.Join(directory, name) }
	p := startServe(t, fmt.Sprintf(`
listeners:
  grpc: {address: '127.0.0.1:0'}
  http: {address: '127.0.0.1:0'}
  admin: {address: ':0', tls: {cert_file: %q, key_file: %q, client_ca_file: %q}}
admin: {token_file: %q}
`, in("tls.crt"), in("tls.key"), in("ca.crt"), in("token")))
	_, port, _ := net.SplitHostPort(p.admin)
	base := "https://localhost:" + port
	as := func(pair *certtest.Pair) *http.Client {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(ca.PEM)
		c := &tls.Config{RootCAs: roots}
		if pair != nil {
			cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
			if err != nil {
				t.Fatal(err)
			}
			c.Certificates = []tls.Certificate{cert}
		}
		transport := &http.Transport{TLSClientConfig: c}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
	for name, pair := range map[string]*certtest.Pair{"no certificate": nil, "an unknown certificate": &stranger} {
		if got := operate(t, as(pair), base, "GET", "/v1/status", "", "Authorization", "Bearer a-token-of-operators"); got.status != 0 {
			t.Errorf("%s: status %d", name, got.status)
		}
	}
	if got := operate(t, as(&client), base, "GET", "/v1/status", ""); got.status != 401 {
		t.Errorf("a certificate without the token: %d", got.status)
	}
	if got := operate(t, as(&client), base, "POST", "/v1/suspend", `{"rules":["demo/remote_address"]}`, "Authorization", "Bearer a-token-of-operators"); got.status != 200 {
		t.Errorf("an operator: %d %s", got.status, got.body)
	}
	if line := p.await(t, "action=suspend"); !strings.Contains(line, `principal="certificate spiffe://ops/ada"`) {
		t.Errorf("the log line is %s", line)
	}
}

// Clients of /v1/watch do not delay the shutdown, and receive no wrong event.
func TestServeEndsUnderWatch(t *testing.T) {
	p := startServe(t, "listeners: {grpc: {address: '127.0.0.1:0'}, http: {address: '127.0.0.1:0'}, drain: {timeout: 5m}}")
	r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, "http://"+p.admin+"/v1/watch?interval=1m", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: {") {
		t.Fatalf("%v: %s", err, line)
	}
	p.signal(t, syscall.SIGTERM)
	<-p.ended
	if text := strings.Join(p.log(), "\n"); strings.Contains(text, "drain timeout exceeded") {
		t.Errorf("the log is\n%s", text)
	}
}

// Requests that are too large, too deeply nested or malformed are rejected, and other clients are served.
func TestServeAdminHostile(t *testing.T) {
	p := startServe(t, "")
	large := strings.Repeat("x", 10<<20)
	for name, tt := range map[string]struct {
		path, body string
		want       int
	}{
		"large body":  {"/v1/peek", `{"rule":"` + large + `"}`, 413},
		"deep body":   {"/v1/peek", strings.Repeat(`{"key":`, 9000), 400},
		"deep lists":  {"/v1/explain", `{"domain":"d","descriptors":` + strings.Repeat("[", 20_000), 400},
		"large path":  {"/" + large[:1<<20], "", 431},
		"odd path":    {"/%00%0a%1b[31m/v1/status", "", 404},
		"no JSON":     {"/v1/block", large[:1000], 400},
		"not UTF-8":   {"/v1/reset", "\xff\xfe", 400},
		"large query": {"/v1/keys?rule=" + strings.Repeat("é", 1000), "", 405},
	} {
		got := p.operate(t, http.MethodPost, tt.path, tt.body)
		if got.status != tt.want && (got.status != 0 || len(tt.path)+len(tt.body) < 1<<19) { // the service may close the connection of a client that sends so much
			t.Errorf("%s: %d %.200s, want %d", name, got.status, got.body, tt.want)
		}
	}
	slow := make([]net.Conn, 0, 60)
	for i := range cap(slow) {
		c := raw(t, p.admin)
		_, _ = io.WriteString(c, []string{"", "GET /v1/st", "POST /v1/reset HTTP/1.1\r\nHost: localhost\r\nX-Sluice-Admin: 1\r\nContent-Length: 60000\r\n\r\n{"}[i%3])
		slow = append(slow, c)
	}
	_, _ = io.Copy(raw(t, p.admin), bytes.NewReader([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")))
	if got := p.operate(t, http.MethodGet, "/v1/status", ""); got.status != 200 {
		t.Errorf("with %d slow clients: %d %s", len(slow), got.status, got.body)
	}
	for _, c := range slow {
		_ = c.Close()
	}
	for _, line := range p.log() {
		if strings.ContainsAny(line, "\x00\x1b") || len(line) > 2000 {
			t.Errorf("the log line is %q", line)
		}
	}
}
