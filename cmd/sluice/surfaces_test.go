package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

const surfaceRules = `
client_ip: {trusted_proxies: [10.0.0.0/8]}
deny: [{ip: 203.0.113.0/24}]
allow: [{path: /ok}]
rules:
  - {name: needs, match: {path: /needs}, per: header:X-User, on_missing: reject, limit: 100/h}
  - {name: priced, match: {path: /priced}, per: header:X-User, on_missing: reject, cost: {header: X-Cost}, limit: 100/h}
  - {name: reads, match: {path: "/{any}", header: {X-Twice: b}}, limit: 100/h}
  - {name: v6, match: {path: /v6}, per: ip, limit: 100/h, overrides: {"2001:db8::1": deny}}
`

// The middleware, /v1/check, sluice explain and sluice test agree on the outcome of a request.
func TestSurfacesAgree(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "rules.yaml")
	write(t, file, surfaceRules)
	cfg, err := rulefile.Parse(rulefile.Options{}, rulefile.File{Name: file, Data: []byte(surfaceRules)})
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := sluice.NewWithRules(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	middleware := httplimit.RulesMiddleware(limiter, func() *rules.Set { return set })(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	p := startServe(t, fmt.Sprintf("listeners: {grpc: {address: off}, http: {address: '127.0.0.1:0'}}\nrules: {paths: [%q]}\n", file))
	tests := "tests:\n"
	for i, tt := range []struct {
		path, ip string
		headers  []string // name, value
		status   int
		expect   string // of sluice test
	}{
		{"/needs", "192.0.2.1", nil, 403, "reject"},
		{"/needs", "192.0.2.1", []string{"X-User", ""}, 403, "reject"},
		{"/needs", "192.0.2.1", []string{"X-User", "ada"}, 200, "allow"},
		{"/needs", "192.0.2.1", []string{"X-Twice", "b", "X-Twice", "c"}, 400, "reject"},
		{"/needs", "203.0.113.1", []string{"X-Twice", "b", "X-Twice", "c"}, 403, "reject"},
		{"/priced", "192.0.2.1", []string{"X-Cost", "2"}, 403, "reject"},
		{"/priced", "192.0.2.1", []string{"X-Cost", "abc"}, 400, "reject"},
		{"/ok", "203.0.113.1", nil, 403, "reject"},
		{"/ok", "192.0.2.1", []string{"X-Twice", "b", "X-Twice", "c"}, 200, "unlimited"},
		{"/v6", "2001:db8::1", nil, 403, "reject"},
		{"/v6", "2001:db8::2", nil, 403, "reject"},
		{"/v6", "2001:db8:0:1::1", nil, 200, "allow"},
		{"/v6", "10.0.0.1", []string{"X-Forwarded-For", "2001:db8::2"}, 403, "reject"},
		{"/v6", "10.0.0.1", []string{"X-Forwarded-For", "203.0.113.7"}, 403, "reject"},
		{"/v6", "10.0.0.1", []string{"X-Forwarded-For", "203.0.113.7, 192.0.2.1"}, 200, "allow"},
		{"/v6", "192.0.2.1", []string{"X-Forwarded-For", "203.0.113.7"}, 200, "allow"},
	} {
		r := httptest.NewRequest(http.MethodGet, tt.path, nil)
		r.RemoteAddr = net.JoinHostPort(tt.ip, "4000")
		headers := map[string][]string{}
		args := []string{"explain", "--rules", file, "-o", "json", "GET " + tt.path, "--ip", tt.ip}
		for j := 0; j < len(tt.headers); j += 2 {
			name, value := tt.headers[j], tt.headers[j+1]
			r.Header.Add(name, value)
			headers[name] = append(headers[name], value)
			args = append(args, "--header", name+": "+value)
		}
		w := httptest.NewRecorder()
		middleware.ServeHTTP(w, r)
		if w.Code != tt.status {
			t.Errorf("%d: the middleware sends %d, want %d", i, w.Code, tt.status)
		}
		body, _ := json.Marshal(map[string]any{"attributes": map[string]any{"method": "GET", "path": tt.path, "ip": tt.ip, "headers": headers}})
		resp, err := http.Post("http://"+p.http+"/v1/check", "application/json", strings.NewReader(string(body)))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != tt.status {
			t.Errorf("%d: /v1/check sends %d %s, want %d", i, resp.StatusCode, text, tt.status)
		}
		_, out, stderr := sluiceRun(t, args...)
		var explained struct{ Outcome string }
		if err := json.Unmarshal([]byte(out), &explained); err != nil {
			t.Fatal(err, stderr)
		}
		if want := map[string]string{"reject": "rejected", "allow": "allowed", "unlimited": "exempt"}[tt.expect]; explained.Outcome != want {
			t.Errorf("%d: explained as %s, want %s", i, explained.Outcome, want)
		}
		sent, _ := json.Marshal(headers)
		tests += fmt.Sprintf("  - {name: n%d, requests: [{request: GET %s, ip: %q, headers: %s, expect: %s}]}\n", i, tt.path, tt.ip, sent, tt.expect)
	}
	write(t, filepath.Join(dir, "rules_test.yaml"), tests)
	if code, out, stderr := sluiceRun(t, "test", dir); code != 0 {
		t.Errorf("sluice test: %s%s", out, stderr)
	}
}
