package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var gatewayServed = regexp.MustCompile(` gateway=(\S+)`)

// startGateway runs sluice serve with a gateway and rules, and returns where it listens.
func startGateway(t *testing.T, gateway, rules, more string) (p *process, address string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, file, rules)
	p = launch(t, fmt.Sprintf("listeners: {grpc: {address: off}, http: {address: '127.0.0.1:0'}, gateway: {address: '127.0.0.1:0'}}\nrules: {paths: [%q]}\ngateway: %s\n%s",
		file, gateway, more))
	line := p.await(t, "msg=serving")
	m := served.FindStringSubmatch(line)
	p.http, p.admin = m[2], m[3]
	return p, gatewayServed.FindStringSubmatch(line)[1]
}

// application is an application that tells what it was asked.
func application(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s host=%s for=%s body=%s\n", r.Method, r.RequestURI, r.Host, r.Header.Get("X-Forwarded-For"), b)
	}))
	t.Cleanup(s.Close)
	return s
}

// What curl sees of an API behind the gateway: its answers, and a 429.
func TestGatewayCurl(t *testing.T) {
	api := application(t)
	_, address := startGateway(t,
		fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{path: /v1/**, upstream: api, strip_prefix: /v1}]}", api.URL),
		"rules: [{name: posts, match: {method: POST, path: /v1/posts}, per: ip, limit: 2/h}]", "")
	url := "http://" + address
	want := "POST /posts?a=1 host=" + address + " for=127.0.0.1 body=hello\n"
	for range 2 {
		if got := curl(t, "-d", "hello", url+"/v1/posts?a=1"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	got := curl(t, "-i", "-d", "hello", url+"/v1/posts?a=1")
	for _, want := range []string{"HTTP/1.1 429 Too Many Requests", "Retry-After: 1", "application/problem+json", `"violated-policies":["posts"]`, "X-Request-Id: "} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
	if got := curl(t, "-i", url+"/v2"); !strings.Contains(got, "404 Not Found") || !strings.Contains(got, "application/problem+json") {
		t.Errorf("got %s", got)
	}
}
