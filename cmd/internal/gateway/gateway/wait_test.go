package gateway_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/gateway"
)

// When Wait returns, every request has been reported: the access log is closed then.
func TestWaitIncludesReports(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	var g *gateway.Gateway
	waited := error(nil)
	cfg := gateway.Config{
		Routes: []gateway.Route{{Path: pattern(t, "/**"), Upstream: http.NotFoundHandler()}},
		OnDone: func(*gateway.RequestContext) { waited = g.Wait(ended) },
	}
	cfg.Rules, cfg.Limiter = limits(t, "rules: []")
	g, err := gateway.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	g.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	if waited == nil {
		t.Error("nothing was in flight while the request was reported")
	}
	if err := g.Wait(ended); err != nil {
		t.Errorf("something is in flight: %v", err)
	}
}
