package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/edge/listen"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/gateway"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
	"github.com/sluiceproject/sluice/cmd/internal/operate/accesslog"
	"github.com/sluiceproject/sluice/internal/buffers"
	"github.com/sluiceproject/sluice/internal/match"
	"github.com/sluiceproject/sluice/internal/quota"
)

// gatewayName is the gateway's listener.
const gatewayName = "gateway"

// gatewayRuntime is what the service runs for the gateway. Nil: there is none.
type gatewayRuntime struct {
	*gateway.Gateway
	groups map[string]*upstream.Group
	authn  *authentication
	log    *accesslog.Log // nil: there is none
	errors *slog.Logger
}

// openGateway opens the gateway, with all that it asks.
func (e edges) openGateway(dry bool) (*gatewayRuntime, error) {
	in := &e.cfg.Gateway
	var err error
	g := &gatewayRuntime{groups: map[string]*upstream.Group{}, errors: e.log}
	if g.authn, err = openAuthentication(e.cfg, e.log); err != nil {
		return nil, err
	}
	for i := range in.Upstreams {
		u := &in.Upstreams[i]
		group, err := upstream.New(upstreamConfig(u, e.log))
		if err != nil {
			return nil, fmt.Errorf("gateway.upstreams: %w", err)
		}
		g.groups[u.Name] = group
	}
	if g.log, err = openAccessLog(&in.AccessLog, e.cfg.Drain.Timeout, e.log, dry); err != nil {
		return nil, fmt.Errorf("gateway.access_log: %w", err)
	}
	cfg, err := e.gatewayConfig(g)
	if err == nil {
		g.Gateway, err = gateway.New(cfg)
	}
	if err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

// gatewayConfig is how the gateway is made.
func (e edges) gatewayConfig(g *gatewayRuntime) (gateway.Config, error) {
	in := &e.cfg.Gateway
	requests := cmp.Or(in.MaxRequests, in.MaxConnections)
	cfg := gateway.Config{
		OnDone:    g.recordOutcome(countGateway(e.metrics, g, in)),
		OnAttempt: g.recordAttempt,
		Rules:     e.rules, Limiter: e.limiter,
		Shed:        e.shed.Middleware,
		MaxRequests: int(requests), MaxAddressRequests: int(config.Share(in.MaxAddressRequests, requests)),
		Allow: match.NewAddrSet(in.Allow), Deny: match.NewAddrSet(in.Deny), Log: e.log,
	}
	buffers.Process.SetMax(in.MaxBuffered)
	e.shed.OnShed(recordShed)
	e.shed.IdentifyBy(gateway.IdentityOf)
	if e.queue != nil {
		cfg.Queue, cfg.InternalHandler, cfg.Workers = e.queue, e.queue.Handler(), int(e.cfg.Queue.Workers)
	}
	for i := range in.Routes {
		route, err := newRoute(&in.Routes[i], g.groups)
		if err != nil {
			return cfg, err
		}
		route.Authn = g.authn.chain(&in.Routes[i])
		route.Upstream = e.shed.MeasureUpstream(route.Upstream)
		cfg.Routes = append(cfg.Routes, route)
	}
	return cfg, nil
}

// listener is how clients of the gateway are listened to.
func (g *gatewayRuntime) listener(in *config.Gateway) listen.Gateway {
	at := endpoint(in.Address, in.TLS, in.MaxConnections, config.Share(in.MaxPerAddress, in.MaxConnections))
	at.TLS = gatewayTLS(in)
	return listen.Gateway{
		Endpoint:       at,
		MaxHeaderBytes: int(in.MaxHeaderBytes), MaxStreams: int(in.MaxStreams),
		Handler: g, Malformed: g.Malformed, OnDrain: g.Drain, Wait: g.wait,
	}
}

// gatewayTLS is the gateway's TLS as the server knows it.
func gatewayTLS(in *config.Gateway) listen.TLS {
	out := listen.TLS{Cert: in.TLS.Cert, Key: in.TLS.Key, ClientCA: in.TLS.ClientCA}
	for _, p := range in.Certificates {
		out.Certificates = append(out.Certificates, listen.Pair(p))
	}
	if len(in.ACME.Domains) > 0 {
		out.ACME = &listen.ACME{
			Domains: in.ACME.Domains, Email: in.ACME.Email, Directory: in.ACME.Directory, CA: in.ACME.CA, Cache: in.ACME.Cache,
		}
		if in.ACME.HTTP != config.Off {
			out.ACME.HTTP = in.ACME.HTTP
		}
	}
	return out
}

// routeName is what a route is called in metrics and logs.
func routeName(r *config.Route) string { return r.Host + r.Path }

// newRoute is a route as the gateway knows it.
func newRoute(in *config.Route, groups map[string]*upstream.Group) (gateway.Route, error) {
	path, err := match.ParsePattern(in.Path, false)
	if err != nil {
		return gateway.Route{}, fmt.Errorf("gateway.routes: %w", err)
	}
	return gateway.Route{
		Name: routeName(in), Host: in.Host, Path: path, Upstream: groups[in.Upstream],
		StripPrefix: in.StripPrefix, AddPrefix: in.AddPrefix, MaxBody: in.MaxBody, Timeout: in.Timeout, UpstreamHost: in.UpstreamHost,
		CORS: in.CORS,
	}, nil
}

// upstreamConfig is an upstream as its group knows it.
func upstreamConfig(in *config.Upstream, log *slog.Logger) upstream.Config {
	out := upstream.Config{
		Name: in.Name, Servers: in.Servers, LoadBalancing: in.Balance, HashBy: hashBy(in.HashBy), Retries: int(in.Retries),
		OutlierDetection: upstream.OutlierDetection{ConsecutiveFailures: int(in.Failures), EjectionTime: in.Rest},
		Timeouts:         upstream.Timeouts{Connect: in.Connect, Header: in.Header, Idle: in.Idle},
		TLS:              upstream.TLS{CA: in.TLS.CA, Cert: in.TLS.Cert, Key: in.TLS.Key, ServerName: in.ServerName},
		Merge:            mergeAnswer, OnServerChosen: recordServer, Client: gateway.Address, Log: log,
	}
	if in.Retries == 0 {
		out.Retries = -1 // there, 0 is the default
	}
	if h := &in.Health; h.Path != "" {
		out.HealthCheck = &upstream.HealthCheck{
			Path: h.Path, Interval: h.Interval, Timeout: h.Timeout, HealthyThreshold: int(h.Healthy), UnhealthyThreshold: int(h.Unhealthy),
		}
	}
	return out
}

// mergeAnswer adds the upstream's headers to ours. The request has one id, which is ours.
func mergeAnswer(ours, upstream http.Header) {
	delete(upstream, gateway.RequestID)
	quota.Merge(ours, upstream)
}

// hashBy is what requests of one server share.
func hashBy(attribute string) func(*http.Request) string {
	kind, name, _ := strings.Cut(attribute, ":")
	switch kind {
	case "path":
		return func(r *http.Request) string { return r.URL.Path }
	case "header":
		return func(r *http.Request) string { return r.Header.Get(name) }
	case "cookie":
		return func(r *http.Request) string {
			c, err := r.Cookie(name)
			if err != nil {
				return ""
			}
			return c.Value
		}
	}
	return func(r *http.Request) string { return gateway.Client(r.Context()).String() }
}

// reopen begins a new file of the access log, after somebody has moved the old one away.
func (g *gatewayRuntime) reopen() {
	if g.log == nil {
		return
	}
	if err := g.log.Reopen(); err != nil {
		g.errors.Error("the access log cannot be opened anew: going on with the old file", "error", err)
	}
}

// close writes the last of the access log. Requests that were cut off have their lines too, if their handlers return within
// cutOffTimeout.
func (g *gatewayRuntime) close() {
	if g == nil || g.log == nil {
		return
	}
	if g.Gateway != nil {
		ctx, cancel := context.WithTimeout(context.Background(), cutOffTimeout)
		defer cancel()
		_ = g.Wait(ctx) // the lines of requests that go on are lost
	}
	if err := g.log.Close(); err != nil {
		g.errors.Error("the last lines of the access log are lost", "error", err)
	}
}

// cutOffTimeout is how long handlers of requests whose connection was closed may take to return.
const cutOffTimeout = 200 * time.Millisecond

// run watches the servers and the files of who requests are from, and delivers what was kept.
func (g *gatewayRuntime) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { g.authn.run(ctx) })
	running.Go(func() { g.Run(ctx) })
	for _, group := range g.groups {
		running.Go(func() { group.Run(ctx) })
	}
}

// wait returns when no request and no WebSocket is left, and ends those that are when the context does.
func (g *gatewayRuntime) wait(ctx context.Context) error {
	faults := make([]error, 0, len(g.groups)+1)
	for _, group := range g.groups {
		faults = append(faults, group.Shutdown(ctx))
	}
	return errors.Join(append(faults, g.Wait(ctx))...)
}
