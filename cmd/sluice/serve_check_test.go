package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/internal/testenv/certtest"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

// nativeRules is a rule file for the attributes of checks.
func nativeRules(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, file, "rules:\n"+text)
	return file
}

// ask sends a JSON body over HTTP and returns the status and the fields of the response.
func (p *process) ask(t *testing.T, path, body string) (int, map[string]any) {
	t.Helper()
	resp, err := http.Post("http://"+p.http+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	defer resp.Body.Close()
	var fields map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&fields); err != nil {
		t.Error(err)
	}
	return resp.StatusCode, fields
}

// curl runs the curl program.
func curl(t *testing.T, args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "curl", append([]string{"-sS"}, args...)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("curl: %v\n%s", err, &stderr)
	}
	return string(out)
}

// curl alone can use the check API: responses say whether a request is allowed.
func TestServeCheckCurl(t *testing.T) {
	p := startServe(t, fmt.Sprintf("rules: {paths: [%q, %q]}\nmetrics: {http_listener: true}",
		nativeRules(t, "  - {name: posts, match: {path: /posts}, per: [\"header:X-User\"], limit: {rate: 2/day, burst: 2}}\n"),
		rulesDir(t, "  - {key: k, rate_limit: {unit: year, requests_per_unit: 1}}\n")))
	at := "http://" + p.http
	for _, tt := range []struct{ body, want string }{
		{`{"attributes":{"path":"/posts","headers":{"X-User":"ada"}}}`, `200 {"allowed":true,`},
		{`{"attributes":{"path":"/posts","headers":{"X-User":"ada"}}}`, `200 {"allowed":true,`},
		{`{"attributes":{"path":"/posts","headers":{"X-User":"ada"}}}`, `429 {"allowed":false,`},
		{`{"attributes":{"path":"/posts","headers":{"X-User":"bob"}}}`, `200 {"allowed":true,`},
		{`{"domain":"d","descriptors":[[{"key":"k","value":"v"}]]}`, `200 {"allowed":true,`},
		{`{"domain":"d","descriptors":[[{"key":"k","value":"v"}]]}`, `429 {"allowed":false,`},
		{`{"domain":"d"}`, `400 {"type":"about:blank",`},
	} {
		got := curl(t, "-w", "%{http_code}", "--json", tt.body, at+"/v1/check")
		code, body := got[len(got)-3:], got[:len(got)-3]
		if answer := code + " " + body; !strings.HasPrefix(answer, tt.want) {
			t.Errorf("%s: %s, want %s", tt.body, answer, tt.want)
		}
	}
	for code, n := range map[string]int{"200": 4, "400": 1, "429": 2} {
		want := fmt.Sprintf("sluice_requests_total{code=%q,protocol=\"http\"} %d\n", code, n)
		if got := curl(t, at+"/metrics"); !strings.Contains(got, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	if got := curl(t, at+"/openapi.yaml"); !strings.HasPrefix(got, "openapi: 3.1.0\n") {
		t.Errorf("/openapi.yaml is %.100s", got)
	}
	if got := curl(t, "-d", `{}`, at+"/v1/check"); !strings.Contains(got, "with curl: --json") {
		t.Error(got)
	}
}

// Two instances share a store and a secret: one settles a reservation of the other, and both together allow no more than the
// limit.
func TestServeCheckShared(t *testing.T) {
	redis := redistest.Start(t)
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, secret, strings.Repeat("0123456789abcdef", 2)+"\n")
	cfg := fmt.Sprintf("rules: {paths: [%q]}\nstore: {kind: redis, url: %q, timeout: 10s}\ncheck_api: {reservation_secret_file: %q}\n",
		nativeRules(t, "  - {name: r, limit: {rate: 100/day, algorithm: fixed_window}, on_failure: closed}\n"), redis.URL(), secret)
	both := []*process{startServe(t, cfg), startServe(t, cfg)}
	status, reserved := both[0].ask(t, "/v1/reserve", `{"attributes":{},"cost":50}`)
	if status != 200 {
		t.Fatal(status, reserved)
	}
	settle := fmt.Sprintf(`{"reservation":%q,"actual_cost":10}`, reserved["reservation"])
	for i, p := range []*process{both[1], both[0], both[1]} {
		if status, got := p.ask(t, "/v1/settle", settle); status != 200 || got["settled"] != (i == 0) {
			t.Errorf("settlement %d: %d %v", i+1, status, got)
		}
	}
	var allowed atomic.Int64
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 20 {
				if status, got := both[i%2].ask(t, "/v1/check", `{"attributes":{}}`); status == 200 {
					allowed.Add(1)
				} else if status != 429 {
					t.Errorf("%d %v", status, got)
				}
			}
		})
	}
	all.Wait()
	if n := allowed.Load(); n != 90 {
		t.Errorf("%d were allowed, want 90", n)
	}
}

// A weak or missing secret is an error at the start.
func TestServeCheckSecret(t *testing.T) {
	directory := t.TempDir()
	for name, tt := range map[string]struct{ content, want string }{
		"short":   {"too short\n", "has 9 bytes, a secret has 32 to 4096: make one with openssl rand -hex 32"},
		"long":    {strings.Repeat("x", 5000), "a secret has 32 to 4096"},
		"missing": {"", "no such file"},
	} {
		file := filepath.Join(directory, name)
		if tt.content != "" {
			write(t, file, tt.content)
		}
		cfg := filepath.Join(directory, name+".yaml")
		write(t, cfg, fmt.Sprintf("check_api: {reservation_secret_file: %q}\n", file))
		if code, _, stderr := sluiceRun(t, "serve", "--config", cfg); code == term.ExitFine || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s: exit %d\n%s", name, code, stderr)
		}
	}
}

// Only clients with the token of check_api.refund_token_file can refund charges.
func TestServeCheckRefund(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	write(t, token, "a-token-of-the-tests\n")
	const rule = "  - {name: r, limit: {rate: 10/day, algorithm: fixed_window, align: first_request}}\n"
	p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}\ncheck_api: {refund_token_file: %q}\n", nativeRules(t, rule), token))
	if status, got := p.ask(t, "/v1/check", `{"attributes":{},"cost":7}`); status != 200 {
		t.Fatal(status, got)
	}
	for _, tt := range []struct{ header, want string }{
		{"X-None: 1", "cost: a negative cost is a refund: token missing"},
		{"Authorization: Bearer wrong", "wrong token: send the token in the file check_api.refund_token_file"},
		{"Authorization: Bearer a-token-of-the-tests", `"remaining":7,`},
		{"Authorization: Bearer a-token-of-the-tests", `"remaining":10,`},
	} {
		if got := curl(t, "-H", tt.header, "--json", `{"attributes":{},"cost":-4}`, "http://"+p.http+"/v1/check"); !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s, want %s", tt.header, got, tt.want)
		}
	}
	off := startServe(t, fmt.Sprintf("rules: {paths: [%q]}\n", nativeRules(t, rule)))
	if status, got := off.ask(t, "/v1/check", `{"attributes":{},"cost":-4}`); status != 403 || !strings.Contains(fmt.Sprint(got["detail"]), "check_api.refund_token_file") {
		t.Errorf("%d %v", status, got)
	}
}

// The same clients may query a domain over HTTP as over gRPC.
func TestServeCheckClients(t *testing.T) {
	authority := certtest.New(t)
	directory := t.TempDir()
	in := func(name string) string { return filepath.Join(directory, name) }
	pair := authority.Issue(t, "localhost")
	write(t, in("crt"), string(pair.Cert))
	write(t, in("key"), string(pair.Key))
	write(t, in("ca"), string(authority.PEM))
	secure := fmt.Sprintf("{address: '127.0.0.1:0', tls: {cert_file: %q, key_file: %q, client_ca_file: %q}}", in("crt"), in("key"), in("ca"))
	p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}\nlisteners: {grpc: %s, http: %s}\nrls: {client_domains: {web: [d]}}\n",
		rulesDir(t, "  - {key: k, rate_limit: {unit: year, requests_per_unit: 1000}}\n"), secure, secure))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.PEM)
	for name, want := range map[string]int{"web": 200, "other": 403} {
		pair := authority.Issue(t, name)
		own, err := tls.X509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		transport := &http.Transport{TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: "localhost", Certificates: []tls.Certificate{own},
		}}
		resp, err := (&http.Client{Transport: transport}).Post("https://"+p.http+"/v1/check", "application/json",
			strings.NewReader(`{"domain":"d","descriptors":[[{"key":"k","value":"v"}]]}`))
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		transport.CloseIdleConnections()
		if resp.StatusCode != want {
			t.Errorf("%s: response %d %s", name, resp.StatusCode, b)
		}
	}
}

// badBodies sends malformed checks of all sizes and at all speeds.
func badBodies(t *testing.T, v *victim) {
	head := "POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	nested := strings.Repeat(`{"attributes":`, 4000)
	bodies := []string{
		nested, strings.Repeat("[", 60_000), strings.Repeat("\x00", 60_000), `{"checks":[` + strings.Repeat("{},", 20_000),
		`{"attributes":{"headers":{` + strings.Repeat(`"a":"b",`, 7000), strings.Repeat(" ", 65_000), `{"attributes":{"path":"` + strings.Repeat(`\u0061`, 10_000),
		strings.Repeat("x", 1<<20),
	}
	for range times(100) {
		for _, body := range bodies {
			for _, text := range []string{
				fmt.Sprintf("%sContent-Length: %d\r\nConnection: close\r\n\r\n%s", head, len(body), body),
				fmt.Sprintf("%sTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", head, len(body), body),
			} {
				c := raw(t, v.http)
				_, _ = io.WriteString(c, text) // the service may close the connection before
				answer, _ := io.ReadAll(io.LimitReader(c, 100))
				if len(answer) > 0 && !bytes.HasPrefix(answer, []byte("HTTP/1.1 4")) {
					t.Errorf("%.40s: response %s", body, answer)
				}
				_ = c.Close()
			}
		}
	}
	for range times(1000) { // each has ten seconds
		c := raw(t, v.http)
		_, _ = io.WriteString(c, head+"Content-Length: 60000\r\n\r\n{\"attributes\":{")
	}
	if got, _ := v.ask(t, "/v1/check", `{"domain":"d","descriptors":[[{"key":"k","value":"v"}]]}`); got != 200 {
		t.Errorf("a valid request: status %d", got)
	}
}
