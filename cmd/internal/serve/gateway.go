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

// gatewayName is the name of the gateway's listener.
const gatewayName = "gateway"

// gatewayRuntime is the gateway with its upstreams, authentication and access log.
type gatewayRuntime struct {
	*gateway.Gateway
	groups map[string]*upstream.Group
	authn  *authentication
	log    *accesslog.Log // nil: no access log
	errors *slog.Logger
}

// openGateway opens the gateway with its upstreams, authentication and access log.
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
			return nil, inSetting("gateway.upstreams."+u.Name, fmt.Sprintf("upstream %q", u.Name), err)
		}
		g.groups[u.Name] = group
	}
	if g.log, err = openAccessLog(&in.AccessLog, e.cfg.Drain.Timeout, e.log, dry); err != nil {
		return nil, inSetting("gateway.access_log.file", "accesslog", err)
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

// gatewayConfig returns the configuration of the gateway.
func (e edges) gatewayConfig(g *gatewayRuntime) (gateway.Config, error) {
	in := &e.cfg.Gateway
	requests := cmp.Or(in.MaxRequests, in.MaxConnections)
	cfg := gateway.Config{
		OnDone:    g.recordOutcome(countGateway(e.metrics, g, in)),
		OnAttempt: g.recordAttempt,
		Rules:     e.rules, Limiter: e.limiter,
		Shed:        e.shed.Middleware,
		MaxRequests: int(requests), MaxAddressRequests: int(config.Share(in.MaxRequestsPerAddress, requests)),
		Allow: match.NewAddrSet(in.AllowedIPs), Deny: match.NewAddrSet(in.DeniedIPs), Log: e.log,
	}
	buffers.Process.SetMax(in.MaxBufferedSize)
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

// listener returns the gateway's listener.
func (g *gatewayRuntime) listener(in *config.Gateway) listen.Gateway {
	at := endpoint(in.Address, in.TLS, in.MaxConnections, config.Share(in.MaxConnectionsPerAddress, in.MaxConnections))
	at.TLS = gatewayTLS(in)
	return listen.Gateway{
		Endpoint:       at,
		MaxHeaderBytes: int(in.MaxHeaderSize), MaxStreams: int(in.MaxStreams),
		Handler: g, Malformed: g.Malformed, OnDrain: g.Drain, Wait: g.wait,
	}
}

// gatewayTLS returns the TLS configuration of the gateway's listener.
func gatewayTLS(in *config.Gateway) listen.TLS {
	out := listen.TLS{Cert: in.TLS.CertFile, Key: in.TLS.KeyFile, ClientCA: in.TLS.ClientCAFile}
	for _, p := range in.Certificates {
		out.Certificates = append(out.Certificates, listen.Pair{Cert: p.CertFile, Key: p.KeyFile})
	}
	if len(in.ACME.Domains) > 0 {
		out.ACME = &listen.ACME{
			Domains: in.ACME.Domains, Email: in.ACME.Email, Directory: in.ACME.DirectoryURL, CA: in.ACME.CAFile, Cache: in.ACME.CacheDir,
		}
		if in.ACME.HTTPAddress != config.Off {
			out.ACME.HTTP = in.ACME.HTTPAddress
		}
	}
	return out
}

// routeName returns the name of a route in metrics and logs.
func routeName(r *config.Route) string { return r.Host + r.Path }

// newRoute returns the gateway's form of a configured route.
func newRoute(in *config.Route, groups map[string]*upstream.Group) (gateway.Route, error) {
	path, err := match.ParsePattern(in.Path, false)
	if err != nil {
		return gateway.Route{}, fmt.Errorf("gateway.routes: %w", err)
	}
	return gateway.Route{
		Name: routeName(in), Host: in.Host, Path: path, Upstream: groups[in.Upstream], UpstreamName: in.Upstream,
		StripPrefix: in.StripPrefix, AddPrefix: in.AddPrefix, MaxBody: in.MaxBodySize, Timeout: in.Timeout,
		UpstreamHost: in.HostHeader == config.HostHeaderUpstream,
		CORS:         in.CORS,
	}, nil
}

// upstreamConfig returns the configuration of an upstream's group of servers.
func upstreamConfig(in *config.Upstream, log *slog.Logger) upstream.Config {
	out := upstream.Config{
		Name: in.Name, Servers: in.Servers, LoadBalancing: in.LoadBalancing, HashBy: hashBy(in.HashBy), Retries: int(in.Retries),
		OutlierDetection: upstream.OutlierDetection{ConsecutiveFailures: int(in.OutlierDetection.ConsecutiveFailures), EjectionTime: in.OutlierDetection.EjectionTime},
		Timeouts:         upstream.Timeouts{Connect: in.Timeouts.Connect, Header: in.Timeouts.ResponseHeader, Idle: in.Timeouts.Idle},
		TLS:              upstream.TLS{CA: in.TLS.CAFile, Cert: in.TLS.CertFile, Key: in.TLS.KeyFile, ServerName: in.ServerName},
		Merge:            mergeAnswer, OnServerChosen: recordServer, Client: gateway.Address, Log: log,
	}
	if in.Retries == 0 {
		out.Retries = -1 // in upstream.Config 0 means the default
	}
	if h := &in.HealthCheck; h.Path != "" {
		out.HealthCheck = &upstream.HealthCheck{
			Path: h.Path, Interval: h.Interval, Timeout: h.Timeout, HealthyThreshold: int(h.HealthyThreshold), UnhealthyThreshold: int(h.UnhealthyThreshold),
		}
	}
	return out
}

// mergeAnswer merges the headers of the upstream's response into ours. The request ID of the upstream is dropped.
func mergeAnswer(ours, upstream http.Header) {
	delete(upstream, gateway.RequestID)
	quota.Merge(ours, upstream)
}

// hashBy returns the function that computes the value to hash for load balancing.
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

// reopen reopens the access log, after log rotation has renamed the file.
func (g *gatewayRuntime) reopen() {
	if g.log == nil {
		return
	}
	if err := g.log.Reopen(); err != nil {
		g.errors.Error("access log reopen failed: previous file stays in use", "error", err)
	}
}

// close flushes and closes the access log. Lines of aborted requests are included if their handlers return within
// cutOffTimeout.
func (g *gatewayRuntime) close() {
	if g == nil || g.log == nil {
		return
	}
	if g.Gateway != nil {
		ctx, cancel := context.WithTimeout(context.Background(), cutOffTimeout)
		defer cancel()
		_ = g.Wait(ctx) // lines of requests that are still running are lost
	}
	if err := g.log.Close(); err != nil {
		g.errors.Error("access log close failed: last lines lost", "error", err)
	}
}

// cutOffTimeout is the time for handlers to return after their connections were closed.
const cutOffTimeout = 200 * time.Millisecond

// run checks the health of servers, reloads accounts and delivers queued requests until ctx is done.
func (g *gatewayRuntime) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { g.authn.run(ctx) })
	running.Go(func() { g.Run(ctx) })
	for _, group := range g.groups {
		running.Go(func() { group.Run(ctx) })
	}
}

// wait returns when all requests and WebSockets have ended. When ctx is done, it aborts the remaining ones.
func (g *gatewayRuntime) wait(ctx context.Context) error {
	faults := make([]error, 0, len(g.groups)+1)
	for _, group := range g.groups {
		faults = append(faults, group.Shutdown(ctx))
	}
	return errors.Join(append(faults, g.Wait(ctx))...)
}
