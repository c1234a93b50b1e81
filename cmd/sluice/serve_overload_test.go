package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// An API that has as much to do as it may: others are turned away at the gateway, what no gate matches is not, and
// operators see it.
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
			"shed: [{name: api, match: {path: /api/**}, in_flight: {min: 1, max: 4}}]\n", "")
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
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
	if got := curl(t, url+"/api/status"); got != "served\n" {
		t.Errorf("what is critical: %s", got)
	}
	hold(1)
	if got := curl(t, "-i", url+"/api/status"); !strings.Contains(got, " 503 ") {
		t.Errorf("what is critical, with as many in flight as may be: %s", got)
	}
	if got := curl(t, url+"/elsewhere"); got != "served\n" {
		t.Errorf("what no gate matches: %s", got)
	}
	metrics := curl(t, "http://"+p.admin+"/metrics")
	for _, want := range []string{
		`sluice_shed_total{gate="api",priority="normal",why="upstream"} 1`, `sluice_shed_total{gate="api",priority="critical",why="upstream"} 1`,
		`sluice_gate_limit{gate="api"} 4`, `sluice_gate_in_flight{gate="api"} 4`, "sluice_process_pressure_ratio ",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("there is no %q in the metrics", want)
		}
	}
	close(free)
	done.Wait()
	if got := curl(t, url+"/api/posts"); got != "served\n" {
		t.Errorf("afterwards: %s", got)
	}
}
