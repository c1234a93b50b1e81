package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// With an adaptive limit reached, the gateway sheds other requests, but none without an adaptive limit, and operators see it in
// metrics.
func TestGatewayShed(t *testing.T) {
	var inside sync.WaitGroup
	free := make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/hold" {
			inside.Done()
			<-free
		}
		fmt.Fprintln(w, "served")
	}))
	t.Cleanup(api.Close)
	p, address := startGateway(t,
		fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{path: /**, upstream: api}]}", api.URL),
		"priorities: [{match: {path: [/api/hold, /api/status]}, priority: critical}]\n"+
			"load_shedding: [{name: api, match: {path: /api/**}, concurrency: {min: 1, max: 4}}]\n", "")
	url := "http://" + address
	var done sync.WaitGroup
	hold := func(n int) {
		for range n {
			inside.Add(1)
			done.Go(func() { curl(t, url+"/api/hold") })
		}
		inside.Wait()
	}
	hold(3)
	got := curl(t, "-i", url+"/api/posts?secret=1")
	for _, want := range []string{
		"HTTP/1.1 503 Service Unavailable", "Retry-After: ", "application/problem+json", "#temporary-reduced-capacity",
		`"instance":"/api/posts"`, "X-Request-Id: ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if got := curl(t, url+"/api/status"); got != "served\n" {
		t.Errorf("priority critical: %s", got)
	}
	hold(1)
	if got := curl(t, "-i", url+"/api/status"); !strings.Contains(got, " 503 ") {
		t.Errorf("priority critical with max requests in flight: %s", got)
	}
	if got := curl(t, url+"/elsewhere"); got != "served\n" {
		t.Errorf("a request without an adaptive limit: %s", got)
	}
	metrics := curl(t, "http://"+p.admin+"/metrics")
	for _, want := range []string{
		`sluice_shed_requests_total{limit="api",priority="normal",reason="upstream"} 1`, `sluice_shed_requests_total{limit="api",priority="critical",reason="upstream"} 1`,
		`sluice_adaptive_limit{limit="api"} 4`, `sluice_adaptive_limit_in_flight{limit="api"} 4`, "sluice_process_pressure_ratio ",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %q in the metrics", want)
		}
	}
	close(free)
	done.Wait()
	if got := curl(t, url+"/api/posts"); got != "served\n" {
		t.Errorf("afterwards: %s", got)
	}
}
