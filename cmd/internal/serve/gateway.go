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

// gated is what the service runs for the gateway. Nil: there is none.
type gated struct {
	*gateway.Gateway
	groups map[string]*upstream.Group
	log    *accesslog.Log // nil: there is none
}

// listenGateway adds the listener of the gateway, if there is to be one.
func (s *Service) listenGateway(to *listen.Config) error {
	in := &s.cfg.Gateway
	if in.Address == config.Off {
		return nil
	}
	var err error
	if err = s.openAuthentication(); err != nil {
		return err
	}
	g := &gated{groups: map[string]*upstream.Group{}}
	for i := range in.Upstreams {
		u := &in.Upstreams[i]
		group, err := upstream.New(s.upstreamConfig(u))
		if err != nil {
			return fmt.Errorf("gateway.upstreams: %w", err)
		}
		g.groups[u.Name] = group
	}
	if g.log, err = s.openAccessLog(); err != nil {
		return fmt.Errorf("gateway.access_log: %w", err)
	}
	requests := cmp.Or(in.MaxRequests, in.MaxConnections)
	cfg := gateway.Config{
		Ended: g.observe(s.countGateway(g, in)),
		Rules: s.rules, Limiter: s.limiter,
		Shed:        s.shed.Handler,
		MaxRequests: int(requests), MaxAddressRequests: int(config.Share(in.MaxAddressRequests, requests)),
		Allow: match.NewAddrSet(in.Allow), Deny: match.NewAddrSet(in.Deny), Log: s.log,
	}
	buffers.Process.SetMax(in.MaxBuffered)
	s.shed.OnShed(noteShed)
	s.shed.IdentifyBy(gateway.IdentityOf)
	if s.queue != nil {
		cfg.Queue, cfg.Own, cfg.Workers = s.queue, s.queue.Handler(), int(s.cfg.Queue.Workers)
	}
	for i := range in.Routes {
		route, err := newRoute(&in.Routes[i], g.groups)
		if err != nil {
			return err
		}
		route.Authn = s.authn.chain(&in.Routes[i])
		route.Upstream = s.shed.Upstream(route.Upstream)
		cfg.Routes = append(cfg.Routes, route)
	}
	if g.Gateway, err = gateway.New(cfg); err != nil {
		return err
	}
	s.gateway = g
	to.Gateway = listen.Gateway{
		Address: in.Address, TLS: gatewayTLS(in),
		MaxConnections: int(in.MaxConnections), MaxPerAddress: int(config.Share(in.MaxPerAddress, in.MaxConnections)),
		MaxHeaderBytes: int(in.MaxHeaderBytes), MaxStreams: int(in.MaxStreams),
		Handler: g, Malformed: g.Malformed, Leaving: g.Drain, Wait: g.wait,
	}
	return nil
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
	}, nil
}

// upstreamConfig is an upstream as its group knows it.
func (s *Service) upstreamConfig(in *config.Upstream) upstream.Config {
	out := upstream.Config{
		Name: in.Name, Servers: in.Servers, Balance: in.Balance, HashBy: s.hashBy(in.HashBy), Retries: int(in.Retries),
		Eject:    upstream.Eject{Failures: int(in.Failures), Rest: in.Rest},
		Timeouts: upstream.Timeouts{Connect: in.Connect, Header: in.Header, Idle: in.Idle},
		TLS:      upstream.TLS{CA: in.TLS.CA, Cert: in.TLS.Cert, Key: in.TLS.Key, ServerName: in.ServerName},
		Merge:    mergeAnswer, Chosen: noteServer, Client: gateway.Address, Log: s.log,
	}
	if in.Retries == 0 {
		out.Retries = -1 // there, 0 is the default
	}
	if h := &in.Health; h.Path != "" {
		out.Health = &upstream.Health{
			Path: h.Path, Interval: h.Interval, Timeout: h.Timeout, Healthy: int(h.Healthy), Unhealthy: int(h.Unhealthy),
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
func (s *Service) hashBy(attribute string) func(*http.Request) string {
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
func (g *gated) reopen(log *slog.Logger) {
	if g == nil || g.log == nil {
		return
	}
	if err := g.log.Reopen(); err != nil {
		log.Error("the access log cannot be opened anew: going on with the old file", "error", err)
	}
}

// close writes the last of the access log.
func (g *gated) close() {
	if g != nil && g.log != nil {
		_ = g.log.Close()
	}
}

// run watches the servers.
func (g *gated) run(ctx context.Context) {
	if g == nil {
		return
	}
	var running sync.WaitGroup
	defer running.Wait()
	for _, group := range g.groups {
		running.Go(func() { group.Run(ctx) })
	}
}

// wait returns when no request and no WebSocket is left, and ends those that are when the context does.
func (g *gated) wait(ctx context.Context) error {
	faults := make([]error, 0, len(g.groups)+1)
	for _, group := range g.groups {
		faults = append(faults, group.Shutdown(ctx))
	}
	return errors.Join(append(faults, g.Wait(ctx))...)
}
