package main

import (
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"

	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/internal/config"
	"github.com/sluiceproject/sluice/internal/gateway"
	"github.com/sluiceproject/sluice/internal/server"
	"github.com/sluiceproject/sluice/rules"
)

// listenGateway adds the listener of the gateway, if there is to be one.
func (s *service) listenGateway(to *server.Config) error {
	in := &s.cfg.Gateway
	if in.Address == config.Off {
		return nil
	}
	upstreams, err := s.openUpstreams()
	if err != nil {
		return err
	}
	cfg := gateway.Config{
		Rules: s.rules, Limit: httplimit.Rules(s.limiter, s.rules),
		Allow: rules.NewAddrSet(in.Allow), Deny: rules.NewAddrSet(in.Deny), Log: s.log,
	}
	for i := range in.Routes {
		route, err := newRoute(&in.Routes[i], upstreams)
		if err != nil {
			return err
		}
		cfg.Routes = append(cfg.Routes, route)
	}
	g, err := gateway.New(cfg)
	if err != nil {
		return err
	}
	to.Gateway = server.Gateway{
		Address: in.Address, TLS: server.TLS{Cert: in.TLS.Cert, Key: in.TLS.Key, ClientCA: in.TLS.ClientCA},
		MaxConnections: int(in.MaxConnections), MaxHeaderBytes: int(in.MaxHeaderBytes), MaxStreams: int(in.MaxStreams),
		Handler: g, Leaving: g.Drain, Wait: g.Wait,
	}
	return nil
}

// newRoute is a route as the gateway knows it.
func newRoute(in *config.Route, upstreams map[string]http.Handler) (gateway.Route, error) {
	path, err := rules.ParsePathPattern(in.Path)
	if err != nil {
		return gateway.Route{}, fmt.Errorf("gateway.routes: %w", err)
	}
	return gateway.Route{
		Name: in.Host + in.Path, Host: in.Host, Path: path, Upstream: upstreams[in.Upstream],
		StripPrefix: in.StripPrefix, AddPrefix: in.AddPrefix, MaxBody: in.MaxBody, Timeout: in.Timeout, UpstreamHost: in.UpstreamHost,
	}, nil
}

// openUpstreams makes the groups of servers.
func (s *service) openUpstreams() (map[string]http.Handler, error) {
	all := make(map[string]http.Handler)
	for i := range s.cfg.Gateway.Upstreams {
		in := &s.cfg.Gateway.Upstreams[i]
		to, err := url.Parse(in.Servers[0])
		if err != nil {
			return nil, fmt.Errorf("gateway.upstreams.%s: %w", in.Name, err)
		}
		all[in.Name] = &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) {
				r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = to.Scheme, to.Host, r.In.Host
				for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded"} {
					if lines := r.In.Header[name]; len(lines) > 0 {
						r.Out.Header[name] = lines
					}
				}
				r.Out.URL.RawQuery = r.In.URL.RawQuery
			},
			ErrorLog: log.New(discardLog{}, "", 0),
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
				status := http.StatusBadGateway
				if large := new(http.MaxBytesError); errors.As(err, &large) {
					status = http.StatusRequestEntityTooLarge
				}
				w.WriteHeader(status)
			},
		}
	}
	return all, nil
}

type discardLog struct{}

func (discardLog) Write(b []byte) (int, error) { return len(b), nil }
