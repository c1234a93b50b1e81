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

// A request that is over a limit and kept is answered with 202, done when there is room, and its answer can be fetched. What
// is kept has no credentials that the rule does not name.
func TestGatewayKeeps(t *testing.T) {
	got := make(chan http.Header, 10)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- r.Header
		w.Header().Set("X-Answer", "yes")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "%s %s %s %s", r.Method, r.Host, r.RequestURI, b)
	}))
	defer api.Close()
	_, address := startGateway(t,
		fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{path: /v1/**, upstream: api, strip_prefix: /v1}]}", api.URL),
		"rules: [{name: rewards, match: {path: /v1/rewards/*}, per: header:X-Device, limit: {rate: 2/s, burst: 1}, on_limit: queue, queue: {keep: [X-Api-Key]}}]",
		fmt.Sprintf("queue: {directory: %q}", t.TempDir()))
	post := func(device string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/v1/rewards/7?a=b", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{
			"X-Device": device, "Authorization": "Bearer secret", "Cookie": "secret", "X-Api-Key": "kept", "X-Other": "other", "Idempotency-Key": "mine",
		} {
			req.Header.Set(name, value)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	if resp := post("a"); resp.StatusCode != http.StatusCreated {
		t.Fatalf("the first: %s", resp.Status)
	}
	if h := <-got; h.Get("Authorization") != "Bearer secret" || h.Get("Cookie") != "secret" {
		t.Errorf("the first has %v", h)
	}
	resp := post("a")
	status := resp.Header.Get("Location")
	b, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusAccepted || !strings.HasPrefix(status, "/.sluice/queue/") || resp.Header.Get("Retry-After") == "" ||
		!strings.Contains(string(b), `"state":"queued"`) || err != nil {
		t.Fatalf("the second: %s %v %s, %v", resp.Status, resp.Header, b, err)
	}
	h := <-got
	for name, want := range map[string]string{
		"Authorization": "", "Cookie": "", "X-Api-Key": "kept", "X-Other": "other", "Idempotency-Key": "mine", "X-Forwarded-For": "127.0.0.1",
		"X-Request-Id": resp.Header.Get("X-Request-Id"),
	} {
		if h.Get(name) != want {
			t.Errorf("%s was delivered as %q, want %q", name, h.Get(name), want)
		}
	}
	for !strings.Contains(curl(t, "http://"+address+status), `"state":"done"`) {
		if t.Context().Err() != nil {
			t.Fatal("it is never done")
		}
	}
	if got := curl(t, "http://"+address+status); !strings.Contains(got, `"status":201`) || !strings.Contains(got, "POST "+address+" /rewards/7?a=b hello") {
		t.Errorf("its answer is %s", got)
	}
	if got := curl(t, "-o", "/dev/null", "-w", "%{http_code}", "http://"+address+"/.sluice/queue/"+strings.Repeat("0", 32)); got != "404" {
		t.Errorf("another id: %s", got)
	}
}
