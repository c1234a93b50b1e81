package serve

import (
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/gateway"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
	"github.com/sluiceproject/sluice/cmd/internal/operate/accesslog"
	"github.com/sluiceproject/sluice/cmd/internal/operate/logwriter"
	"github.com/sluiceproject/sluice/cmd/internal/operate/metrics"
	"github.com/sluiceproject/sluice/internal/match"
)

// openAccessLog opens the access log of the gateway. It returns nil if there is none, or if dry, which only checks the file.
func openAccessLog(in *config.AccessLog, drain time.Duration, log *slog.Logger, dry bool) (*accesslog.Log, error) {
	cfg := accesslog.Config{Query: in.IncludeQuery, Errors: log, CloseTimeout: min(5*time.Second, drain/2)}
	switch in.File {
	case "", os.DevNull:
		return nil, nil
	case "-", "/dev/stdout": // not opened by path: that fails if it is a socket, as under systemd
		cfg.Lines.Output = os.Stdout
	case "/dev/stderr":
		cfg.Lines.Output = os.Stderr
	default:
		cfg.Lines.File = in.File
		if dry {
			return nil, logwriter.Check(in.File)
		}
	}
	if in.Format == "combined" {
		cfg.Format = accesslog.Combined
	}
	return accesslog.Open(cfg)
}

// countGateway registers the metrics of the gateway.
func countGateway(counted *metrics.Metrics, g *gatewayRuntime, in *config.Gateway) *metrics.Gateway {
	cfg := metrics.GatewayConfig{
		InFlight:  func() int64 { return g.InFlight() },
		Upstreams: g.servers,
	}
	for i := range in.Routes {
		cfg.Routes = append(cfg.Routes, routeName(&in.Routes[i]))
	}
	if g.log != nil {
		cfg.DroppedLines = g.log.Dropped
	}
	return counted.Gateway(cfg)
}

// servers returns the state of all upstream servers for metrics.
func (g *gatewayRuntime) servers() (all []metrics.UpstreamServer) {
	for name, group := range g.groups {
		for _, st := range group.Status() {
			all = append(all, metrics.UpstreamServer{
				Upstream: name, Server: st.Server, Up: st.State == upstream.StateUp, Requests: st.Requests, Failures: st.Failures,
				Retries: st.Retries, Ejections: st.Ejections, InFlight: st.InFlight,
			})
		}
	}
	return all
}

// recordOutcome returns the function that the gateway calls after each request, for metrics and the access log.
func (g *gatewayRuntime) recordOutcome(m *metrics.Gateway) func(*gateway.RequestContext) {
	return func(x *gateway.RequestContext) {
		took, forwarded := x.UpstreamTime()
		if !forwarded {
			took = -1
		}
		route := ""
		if x.Route != nil {
			route = x.Route.Name
		}
		m.Done(route, x.Status(), took)
		if g.log != nil {
			record := recordOf(x, route)
			g.log.Write(&record)
		}
	}
}

// recordAttempt logs an attempt to deliver a queued request.
func (g *gatewayRuntime) recordAttempt(a *gateway.Attempt) {
	if g.log == nil {
		return
	}
	route := ""
	if a.Route != nil {
		route = a.Route.Name
	}
	record := recordOf(a.RequestContext, route)
	record.Duration, record.Status, record.BytesIn = a.Duration, a.Status, a.BytesIn
	record.Attempt, record.Outcome = a.Number, a.Outcome
	g.log.Write(&record)
}

// recordServer and recordShed store facts about a request in its context, for the access log.
func recordServer(r *http.Request, server string) {
	if x := gateway.FromContext(r.Context()); x != nil {
		x.Server = server
	}
}

func recordShed(r *http.Request, _ string) {
	if x := gateway.FromContext(r.Context()); x != nil {
		x.Shed = true
	}
}

// recordOf returns the access log record of a request.
func recordOf(x *gateway.RequestContext, route string) accesslog.Record {
	r, group := x.Request, ""
	if x.Route != nil && x.Server != "" { // forwarded
		group = x.Route.UpstreamName
	}
	out := accesslog.Record{
		Time: x.Start, Duration: time.Since(x.Start), Method: r.Method, Host: r.Host, Query: r.URL.RawQuery, Proto: r.Proto,
		Status: x.Status(), BytesIn: x.BytesIn(), BytesOut: x.BytesOut(), Client: x.Client, User: x.User(), Plan: x.Plan(),
		Route: route, Upstream: group, Server: x.Server, Decision: decisionOf(x), Rule: x.Rule, Delay: x.Delay, ID: x.ID, Item: x.Item,
		Referer: r.Header.Get("Referer"), UserAgent: r.Header.Get("User-Agent"),
	}
	if x.Path == "" { // the path has no canonical form
		out.Path, _, _ = strings.Cut(r.RequestURI, "?")
	} else {
		out.Path = match.EscapePath(x.Path)
	}
	return out
}

func decisionOf(x *gateway.RequestContext) accesslog.Decision {
	_, forwarded := x.UpstreamTime()
	switch status := x.Status(); {
	case x.Exempt:
		return accesslog.Exempt
	case !forwarded && status == 499:
		return accesslog.Aborted
	case x.Rejected:
		return accesslog.Rejected
	case x.Queued:
		return accesslog.Queued
	case x.Shed:
		return accesslog.Shed
	case forwarded && x.Delay > 0:
		return accesslog.Delayed
	case forwarded:
		return accesslog.Allowed
	case status == 429:
		return accesslog.Denied
	case status >= 400:
		return accesslog.Rejected
	}
	return accesslog.Allowed
}
