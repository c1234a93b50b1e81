package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/shares"
	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/clientip"
	"github.com/sluiceproject/sluice/internal/key"
	"github.com/sluiceproject/sluice/internal/match"
	"github.com/sluiceproject/sluice/internal/quota"
	"github.com/sluiceproject/sluice/rules"
)

// Config is what a gateway is made of. Routes and Rules are required.
type Config struct {
	Routes []Route
	// Rules are asked once for each request, for how they find the client's address.
	Rules func() *rules.Set
	// Limiter decides what the rules limit. Nil: nothing is limited.
	Limiter *sluice.Limiter
	// Queue keeps requests whose rule says on_limit: queue. Nil: they are denied.
	Queue Queue
	// Workers is how many queued requests are delivered at a time. 0: 16
	Workers int
	// Shed stands before the limits and turns requests away while there are too many. Nil: none are.
	Shed func(http.Handler) http.Handler
	// Deny are addresses that are refused, and Allow those that are not; an empty Allow is all.
	Allow, Deny match.AddrSet
	// MaxRequests bounds the requests in flight, and MaxAddressRequests those of one client address, IPv6 by /64; 0: not
	// bounded.
	MaxRequests, MaxAddressRequests int
	// Own answers below [OwnPath]. Nil: nothing is there.
	Own http.Handler
	// Ended is told of every request when it has been answered. It must not keep the exchange. Nil: nobody is.
	Ended func(*Exchange)
	Log   *slog.Logger // default slog.Default()
}

// OwnPath is where the gateway answers by itself. No route may be below it.
const OwnPath = "/.sluice"

// Gateway is a handler that stands before upstreams.
type Gateway struct {
	cfg      Config
	log      *slog.Logger
	routes   *routeTable
	control  *admission.Controller // nil: nothing is limited
	inside   http.Handler          // what stands behind authentication
	outside  http.Handler          // the upstreams
	clients  atomic.Pointer[clientsOf]
	flying   atomic.Int64                  // requests that are not answered yet, WebSockets among them
	shares   *shares.Counter[netip.Prefix] // of them, by client address; nil: not bounded
	draining atomic.Bool
}

// clientsOf is made once for a set of rules.
type clientsOf struct {
	set *rules.Set
	*clientip.Finder
}

// New makes a gateway.
func New(cfg Config) (*Gateway, error) {
	g := &Gateway{cfg: cfg, log: cfg.Log}
	if g.log == nil {
		g.log = slog.Default()
	}
	if cfg.Rules == nil {
		return nil, errors.New("gateway: there are no rules: set Rules")
	}
	var err error
	if g.routes, err = newRouteTable(cfg.Routes); err != nil {
		return nil, err
	}
	if cfg.MaxAddressRequests > 0 {
		g.shares = shares.NewCounter[netip.Prefix](cfg.MaxAddressRequests)
	}
	g.outside = http.HandlerFunc(g.forward)
	g.inside = g.outside
	if cfg.Limiter != nil {
		limits := admission.Config{Headers: quota.DefaultHeaders()}
		if cfg.Queue != nil {
			limits.Queues, limits.HasPending = true, cfg.Queue.HasPending
		}
		g.control = admission.New(cfg.Limiter, cfg.Rules, limits)
		g.inside = http.HandlerFunc(g.limit)
	}
	if cfg.Shed != nil {
		g.inside = cfg.Shed(g.inside)
	}
	return g, nil
}

// InFlight is how many requests are being answered.
func (g *Gateway) InFlight() int64 { return g.flying.Load() }

// Drain has clients told to connect elsewhere, from now on.
func (g *Gateway) Drain() { g.draining.Store(true) }

// Wait returns when all requests are answered, also those that have become WebSockets, which the server does not know of.
// It returns an error if the context ends before.
func (g *Gateway) Wait(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for g.flying.Load() > 0 {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}

func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := g.begin(w, r)
	defer g.end(x)
	if fault := g.serve(x, r); fault != nil {
		x.Refused = true
		fault.writeTo(&x.answer, r)
	}
	if x.answer.status == statusGone && r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the status is for logs and metrics: the client has left, or closed its side
	}
}

// Malformed notes a request that could not be read, and was rejected before it was one, and returns its ID.
func (g *Gateway) Malformed(peer net.Addr, status int) string {
	x := &Exchange{Began: time.Now(), ID: newID(), Refused: true, Request: &http.Request{URL: new(url.URL)}}
	if tcp, ok := peer.(*net.TCPAddr); ok {
		x.Client = tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	x.answer.ResponseWriter, x.answer.status = new(recorder), status
	if g.cfg.Ended != nil {
		g.cfg.Ended(x)
	}
	return x.ID
}

// serve walks the request along the line. A refusal is not written yet.
func (g *Gateway) serve(x *Exchange, r *http.Request) *refusal {
	if r.ProtoMajor == 1 && (len(r.TransferEncoding) > 0 || g.draining.Load()) {
		// What comes in chunks may have had a length too, which net/http drops without a word. Whoever is before us may
		// have gone by that, and what follows on the connection would not be what he thinks it is.
		x.answer.Header().Set("Connection", "close")
	}
	set := g.cfg.Rules()
	if set == nil {
		return refuse(http.StatusInternalServerError, "")
	}
	clients := g.clientsFor(set)
	x.set, x.trusted = set, clients.TrustsPeer(r)
	cleanHeader(r, clients, x.trusted)
	x.setID(r)
	x.Client = clients.Addr(r)
	if fault := g.crowded(); fault != nil {
		return fault
	}
	path, fault := readTarget(r)
	if fault != nil {
		if r.ProtoMajor == 1 { // whoever sent it may mean something else by what follows
			x.answer.Header().Set("Connection", "close")
		}
		return fault
	}
	x.Path = path
	if g.cfg.Deny.Contains(x.Client) || !g.cfg.Allow.IsEmpty() && !g.cfg.Allow.Contains(x.Client) {
		return refuse(http.StatusForbidden, "The server does not accept requests from this address.")
	}
	if fault := g.enter(x, clients); fault != nil {
		return fault
	}
	if path == OwnPath || strings.HasPrefix(path, OwnPath+"/") {
		if g.cfg.Own == nil {
			return refuse(http.StatusNotFound, "There is nothing at this path.")
		}
		g.cfg.Own.ServeHTTP(&x.answer, r)
		return nil
	}
	if isServerWide(r) {
		x.Route = serverWide
	} else if x.Route = g.routes.find(r.Host, path); x.Route == nil {
		return refuse(http.StatusNotFound, "There is nothing at this host and path.")
	}
	if most := x.Route.MaxBody; most > 0 && r.ContentLength > most {
		bounds.BodySize.Reached()
		return refuse(http.StatusRequestEntityTooLarge, "The request's body is larger than is accepted here.")
	}
	r = x.attach(r)
	if fault = x.authenticate(r); fault != nil {
		return fault
	}
	g.inside.ServeHTTP(&x.answer, r)
	return nil
}

// crowded rejects a request if there are too many already.
func (g *Gateway) crowded() *refusal {
	if g.cfg.MaxRequests <= 0 || g.flying.Load() <= int64(g.cfg.MaxRequests) {
		return nil
	}
	bounds.Requests.Reached()
	return &refusal{status: http.StatusServiceUnavailable, retryAfter: time.Second, detail: "Too many requests are in flight."}
}

// enter counts a request for its client's address, until end. Clients without one, and trusted proxies that do not say
// whom they speak for, are not bounded.
func (g *Gateway) enter(x *Exchange, clients *clientip.Finder) *refusal {
	if x.trusted && clients.TrustsAddr(x.Client) {
		return nil
	}
	x.address = key.Subscriber(x.Client, 64)
	if g.shares == nil || !x.address.IsValid() {
		return nil
	}
	if !g.shares.Enter(x.address) {
		bounds.RequestsPerAddress.Reached()
		return &refusal{
			status: http.StatusTooManyRequests, retryAfter: time.Second, detail: "Too many requests of this address are in flight.",
		}
	}
	x.entered = true
	return nil
}

// limit applies the rules to a request, and forwards it if they let it pass.
func (g *Gateway) limit(w http.ResponseWriter, r *http.Request) {
	x := ExchangeOf(r.Context())
	a, err := g.control.Admit(w, r, &x.who, x.try)
	if err != nil {
		admission.WriteError(w, r, err, nil)
		return
	}
	if a.Waited > 0 {
		x.Rule, x.Waited = a.Rule, a.Waited
	}
	switch a.Outcome {
	case admission.Rejected:
		admission.WriteRejection(w, r)
	case admission.Denied:
		x.Rule = a.Rule
		if x.delivery != nil {
			x.delivery.deny(&a)
		} else {
			a.WriteDenial(w, r)
		}
		a.Done(r.Context(), http.StatusTooManyRequests)
	case admission.Queued:
		a.Done(r.Context(), http.StatusAccepted)
		g.keep(w, r, x, a.Queue)
	default:
		a.SetHeaders(w.Header(), r)
		a.Serve(g.outside, w, r)
	}
}

// clientsFor is what was made for the set. While one set replaces another a few requests still come with the old one.
func (g *Gateway) clientsFor(set *rules.Set) *clientip.Finder {
	last := g.clients.Load()
	if last == nil || last.set != set {
		next := &clientsOf{set, admission.ClientIP(set)}
		g.clients.CompareAndSwap(last, next)
		last = next
	}
	return last.Finder
}

// forward hands a request that the limits let pass to its upstream.
func (g *Gateway) forward(w http.ResponseWriter, r *http.Request) {
	x := ExchangeOf(r.Context())
	switch {
	case x.delivery != nil:
		if !x.delivery.starts() {
			return
		}
	case x.Route.Authn != nil:
		x.Route.Authn.Strip(r.Header, &x.identity)
	}
	x.dropNamed(r.Header)
	x.setForwarded(r)
	x.Route.rewrite(r)
	if x.Route.UpstreamHost {
		r.Host = ""
	}
	x.answer.unread = nil
	r = x.startTimeout(r)
	x.forwarded = time.Now()
	x.Route.Upstream.ServeHTTP(w, r)
}
