package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
)

// The scenario `gateway` measures the cost of a proxy. Every proxy is a separate process in front of the same small
// server, and this process is its clients: 64 connections, each of which waits for a response before the next request.
// The figure to compare is the proxy's CPU time per request.

const (
	loadProxied = "proxied"
	loadPosted  = "posted"
	loadRefused = "refused"
)

// A gatewayLoad is one kind of request.
type gatewayLoad struct {
	serviceLoad
	request string
	status  string // expected beginning of every response
	floor   string // the contender that others are compared with
	more    int    // multiplier of the number of requests, where each takes little time
}

const gatewayHead = " HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: bench/1.0\r\nAccept: application/json\r\n" +
	"Accept-Encoding: gzip\r\nAuthorization: Bearer abcdefghijklmnopqrstuvwxyz\r\nX-User: ada\r\n"

var gatewayLoads = []gatewayLoad{
	{
		serviceLoad: serviceLoad{name: loadProxied, title: "GET, response of 128 bytes, 64 connections", conns: 64},
		request:     "GET /v1/items/1?fields=name" + gatewayHead + "\r\n", status: "HTTP/1.1 200 ", floor: "gateway-bare", more: 1,
	},
	{
		serviceLoad: serviceLoad{name: loadPosted, title: "POST of 1 KiB, response of 128 bytes, 64 connections", conns: 64},
		request: "POST /v1/items" + gatewayHead + fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", gatewayPosted) +
			string(make([]byte, gatewayPosted)),
		status: "HTTP/1.1 200 ", floor: "gateway-bare", more: 1,
	},
	{
		serviceLoad: serviceLoad{name: loadRefused, title: "denied GET (429), 64 connections", conns: 64},
		request:     "GET /v1/limited" + gatewayHead + "\r\n", status: "HTTP/1.1 429 ", floor: "gateway-429", more: 2,
	},
}

// gatewayPosted is the size of a request body.
const gatewayPosted = 1 << 10

// A proxy is a contender that forwards requests, or only denies them.
type proxy struct {
	service
	loads []string
	// limits is set if it enforces a limit.
	limits bool
}

var inGateway = []string{gatewayRun}

func proxies() []proxy {
	forwards, all := []string{loadProxied, loadPosted}, []string{loadProxied, loadPosted, loadRefused}
	return []proxy{
		{service: service{contender: contender{
			name: "gateway-bare", role: roleFloor, clock: "none", scenarios: inGateway,
			about: "httputil.ReverseProxy with 256 idle connections and a buffer pool; no limits",
		}, command: runProxyAs("bare")}, loads: forwards},
		{service: service{contender: contender{
			name: "gateway-429", role: roleFloor, clock: "none", scenarios: inGateway,
			about: "net/http, a handler that responds 429",
		}, command: runProxyAs("429")}, loads: []string{loadRefused}},
		{service: service{contender: contender{
			name: "gateway-forward", role: roleOurs, clock: "none", scenarios: inGateway,
			about: "the forwarding part of Sluice's gateway alone, behind net/http",
		}, command: runProxyAs("forward")}, loads: forwards},
		{service: service{contender: contender{
			name: "gateway-sluice", role: roleOurs, clock: oursClock, scenarios: inGateway,
			about: "sluice serve with a gateway, no rules",
		}, module: repository, target: "./cmd/sluice", command: runGateway("rules: []\n")}, loads: forwards},
		{service: service{contender: contender{
			name: "gateway-sluice-rules", role: roleOurs, clock: oursClock, scenarios: inGateway,
			about: "sluice serve with a gateway and four rules, three of which apply to a request: for all, by IP address, by user",
		}, module: repository, target: "./cmd/sluice", command: runGateway(gatewayRules)}, loads: all, limits: true},
		{service: service{contender: contender{
			name: "gateway-caddy", role: rolePeer, clock: "none", scenarios: inGateway,
			about: "Caddy, reverse_proxy; no limits, no access log",
		}, module: "../interop/caddy", target: "tool", command: runCaddy}, loads: forwards},
		{service: service{contender: contender{
			name: "gateway-nginx", role: rolePeer, clock: "nginx's cached clock", scenarios: inGateway,
			about: "nginx, proxy_pass with keep-alive and limit_req by address; one process",
		}, command: runNginx}, loads: all, limits: true},
	}
}

func proxyNamed(name string) *proxy {
	for _, p := range proxies() {
		if p.name == name {
			return &p
		}
	}
	return nil
}

// measureGateway runs a proxy's loads, each on a new process.
func measureGateway(px *proxy, s *scenario) (*result, error) {
	res := new(result)
	for i := range gatewayLoads {
		l := &gatewayLoads[i]
		if !slices.Contains(px.loads, l.name) {
			continue
		}
		p, err := px.run(l, s.ops*l.more)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.title, err)
		}
		res.Service = append(res.Service, *p)
	}
	return res, nil
}

func (px *proxy) run(l *gatewayLoad, ops int) (*servicePhase, error) {
	ctx, cancel := context.WithTimeout(context.Background(), childTime)
	defer cancel()
	origin := &service{command: func(at place) (*exec.Cmd, error) { return proxyChild(proxyJob{Kind: "origin", Address: at.grpc}) }}
	to, err := origin.start(ctx, false)
	if err != nil {
		return nil, err
	}
	defer to.stop()
	sv := px.service
	command := sv.command
	sv.command = func(at place) (*exec.Cmd, error) {
		at.redis = to.addr // the server behind the proxy
		return command(at)
	}
	srv, err := sv.start(ctx, false)
	if err != nil {
		return nil, err
	}
	defer srv.stop()
	c, err := dialProxy(ctx, srv.addr, l)
	if err != nil {
		return nil, err
	}
	defer c.close()
	if err := c.first(ctx, l.name == loadRefused && px.limits); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, srv.said.String())
	}
	if _, err := c.loop(ops / 10); err != nil {
		return nil, err
	}
	seen, err := countOf(to.addr)
	if err != nil {
		return nil, err
	}
	p := &servicePhase{Load: l.name, Requests: ops}
	before, beforeOrigin, look := srv.cpu(), to.cpu(), watch()
	took, err := c.loop(ops)
	if err != nil {
		return nil, err
	}
	used := srv.cpu() - before
	p.Disturbed = look.disturbedBeside(used + to.cpu() - beforeOrigin)
	p.PerSecond = float64(len(took.waits)) / took.elapsed.Seconds()
	p.CPU = micros(used) / float64(len(took.waits))
	p.P50, p.P99 = took.percentile(0.5), took.percentile(0.99)
	got, err := countOf(to.addr)
	if err != nil {
		return nil, err
	}
	want := len(took.waits)
	if l.name == loadRefused {
		want = 0
	}
	if got-seen != want {
		return nil, failf("%d of %d requests reached the upstream server, want %d", got-seen, len(took.waits), want)
	}
	return p, nil
}

// gatewayBars returns the targets of the gateway.
func (r *report) gatewayBars() (bars []bar) {
	for i := range r.Gateway {
		t := &r.Gateway[i]
		within := func(title, ours, other string, most float64) {
			got := 0.0
			if a, b := t.row(ours).CPU, t.row(other).CPU; b > 0 {
				got = a / b
			}
			bars = append(bars, atMost(title, gatewayRun, got, most, "× its CPU").withdrawn(t.disturbed(ours, other)))
		}
		switch t.Load {
		case loadProxied, loadPosted:
			within("gateway, "+t.Load+", rules vs none", "gateway-sluice-rules", "gateway-sluice", 1.05)
			within("gateway, "+t.Load+", vs a bare ReverseProxy", "gateway-sluice", "gateway-bare", 1)
			within("gateway with rules, "+t.Load+", vs a bare ReverseProxy", "gateway-sluice-rules", "gateway-bare", 1)
			within("gateway with rules, "+t.Load+", vs Caddy", "gateway-sluice-rules", "gateway-caddy", 1)
		case loadRefused:
			within("gateway, 429 vs net/http", "gateway-sluice-rules", "gateway-429", 1.15)
		}
	}
	return bars
}
