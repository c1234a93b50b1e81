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
	"github.com/sluiceproject/sluice/internal/keyenc"
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
	// InternalHandler answers below [InternalPath]. Nil: nothing is there.
	InternalHandler http.Handler
	// OnDone is called for every request when it has been answered. It must not keep the request context. Nil: nothing is called.
	OnDone func(*RequestContext)
	// OnAttempt is called for every attempt to deliver a queued request, when its outcome is stored. It must not keep the attempt.
	// Nil: nothing is called.
	OnAttempt func(*Attempt)
	Log       *slog.Logger // default slog.Default()
}

// InternalPath is where the gateway answers by itself. No route may be below it.
const InternalPath = "/.sluice"

// Gateway is a handler that stands before upstreams.
type Gateway struct {
	cfg       Config
	log       *slog.Logger
	routes    *routeTable
	control   *admission.Controller // nil: nothing is limited
	afterAuth http.Handler          // handles authenticated requests
	forwarder http.Handler          // the upstreams
	clients   atomic.Pointer[clientsOf]
	inFlight  atomic.Int64                  // requests that are not answered yet, WebSockets among them
	shares    *shares.Counter[netip.Prefix] // of them, by client address; nil: not bounded
	draining  atomic.Bool
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
	g.forwarder = http.HandlerFunc(g.forward)
	g.afterAuth = http.HandlerFunc(g.limit)
	if cfg.Limiter != nil {
		limits := admission.Config{Headers: quota.DefaultHeaders()}
		if cfg.Queue != nil {
			limits.Queues, limits.HasPending = true, cfg.Queue.HasPending
		}
		g.control = admission.New(cfg.Limiter, cfg.Rules, limits)
	}
	if cfg.Shed != nil {
		g.afterAuth = cfg.Shed(g.afterAuth)
	}
	return g, nil
}

// InFlight is how many requests are being answered.
func (g *Gateway) InFlight() int64 { return g.inFlight.Load() }

// Drain has clients told to connect elsewhere, from now on.
func (g *Gateway) Drain() { g.draining.Store(true) }

// Wait returns when all requests are answered, also those that have become WebSockets, which the server does not know of.
// It returns an error if the context ends before.
func (g *Gateway) Wait(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for g.inFlight.Load() > 0 {
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
		x.Rejected = true
		fault.writeTo(&x.response, r)
	}
	if x.response.status == statusClientClosed && r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the status is for logs and metrics: the client has left, or closed its side
	}
}

// Malformed notes a request that could not be read, and was rejected before it was one, and returns its ID.
func (g *Gateway) Malformed(peer net.Addr, status int) string {
	x := &RequestContext{Start: time.Now(), ID: newID(), Rejected: true, Request: &http.Request{URL: new(url.URL)}}
	if tcp, ok := peer.(*net.TCPAddr); ok {
		x.Client = tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	x.response.ResponseWriter, x.response.status = new(recorder), status
	if g.cfg.OnDone != nil {
		g.cfg.OnDone(x)
	}
	return x.ID
}

// serve walks the request along the line. A refusal is not written yet.
func (g *Gateway) serve(x *RequestContext, r *http.Request) *rejection {
	if r.ProtoMajor == 1 && (len(r.TransferEncoding) > 0 || g.draining.Load()) {
		// A request in chunks may have had a length too, which net/http drops silently. A proxy before us may go by that
		// length, and take what follows on the connection for something else.
		x.response.Header().Set("Connection", "close")
	}
	set := g.cfg.Rules()
	if set == nil {
		return reject(http.StatusInternalServerError, "")
	}
	clients := g.clientsFor(set)
	x.set, x.trusted = set, clients.TrustsPeer(r)
	cleanHeader(r, clients, x.trusted)
	x.setID(r)
	x.Client = clients.Addr(r)
	path, fault := readTarget(r)
	if fault != nil {
		if r.ProtoMajor == 1 { // the sender may mean something else by what follows
			x.response.Header().Set("Connection", "close")
		}
		return fault
	}
	x.Path = path
	isInternal := path == InternalPath || strings.HasPrefix(path, InternalPath+"/")
	route := g.routeOf(x, r, isInternal)
	if fault := g.rejectIfFull(); fault != nil {
		return fault
	}
	if g.cfg.Deny.Contains(x.Client) || !g.cfg.Allow.IsEmpty() && !g.cfg.Allow.Contains(x.Client) {
		return reject(http.StatusForbidden, "The server does not accept requests from this address.")
	}
	if fault := g.enter(x, clients); fault != nil {
		return fault
	}
	if isInternal {
		return g.serveInternal(x, r)
	}
	if x.Route = route; route == nil {
		return reject(http.StatusNotFound, "There is nothing at this host and path.")
	}
	if max := x.Route.MaxBody; max > 0 && r.ContentLength > max {
		bounds.BodySize.Reached()
		return reject(http.StatusRequestEntityTooLarge, "The request's body is larger than is accepted here.")
	}
	r = x.attach(r)
	if fault = x.authenticate(r); fault != nil {
		return fault
	}
	g.afterAuth.ServeHTTP(&x.response, r)
	return nil
}

// routeOf finds the route of a request, or nil, and prepares the CORS headers of all responses to the request: also those
// of the checks before it is routed.
func (g *Gateway) routeOf(x *RequestContext, r *http.Request, isInternal bool) (route *Route) {
	switch {
	case isInternal:
		x.Exempt = true
		x.setCORS(g.routes.internalCORS(r), r)
		return nil
	case isServerWide(r):
		return serverWide
	}
	if route = g.routes.find(r.Host, x.Path); route != nil && route.cors != nil {
		x.setCORS(route.cors, r)
	}
	return route
}

// serveInternal answers below InternalPath.
func (g *Gateway) serveInternal(x *RequestContext, r *http.Request) *rejection {
	if g.cfg.InternalHandler == nil {
		return reject(http.StatusNotFound, "There is nothing at this path.")
	}
	if x.preflight {
		x.answerPreflight(&x.response, r)
		return nil
	}
	g.cfg.InternalHandler.ServeHTTP(&x.response, r)
	return nil
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

// rejectIfFull rejects a request if there are too many in flight.
func (g *Gateway) rejectIfFull() *rejection {
	if g.cfg.MaxRequests <= 0 || g.inFlight.Load() <= int64(g.cfg.MaxRequests) {
		return nil
	}
	bounds.Requests.Reached()
	return &rejection{status: http.StatusServiceUnavailable, retryAfter: time.Second, detail: "Too many requests are in flight."}
}

// enter counts a request for its client's address, until end. Clients without one, and trusted proxies that do not say
// whom they speak for, are not bounded.
func (g *Gateway) enter(x *RequestContext, clients *clientip.Finder) *rejection {
	if x.trusted && clients.TrustsAddr(x.Client) {
		return nil
	}
	x.address = keyenc.Subscriber(x.Client, 64)
	if g.shares == nil || !x.address.IsValid() {
		return nil
	}
	if !g.shares.Enter(x.address) {
		bounds.RequestsPerAddress.Reached()
		return &rejection{
			status: http.StatusTooManyRequests, retryAfter: time.Second, limit: int64(g.cfg.MaxAddressRequests),
			detail: "Too many requests of this address are in flight.",
		}
	}
	x.counted = true
	return nil
}

// authenticate finds out whose request it is, and tells the rules. Browsers send preflights without credentials.
func (x *RequestContext) authenticate(r *http.Request) *rejection {
	if x.Route.Authn == nil || x.preflight {
		return nil
	}
	id, refused := x.Route.Authn.Admit(r)
	if refused != nil {
		return &rejection{
			status: refused.Status, detail: toSentence(refused.Detail), challenges: refused.Challenges, retryAfter: refused.RetryAfter,
			limit: refused.Limit,
		}
	}
	x.identity, x.identityForRules = id, admission.Identity{Claims: id.Claims, Attributes: id.Attributes}
	return nil
}

// limit applies the rules to a request, and forwards it if they let it pass.
func (g *Gateway) limit(w http.ResponseWriter, r *http.Request) {
	x := FromContext(r.Context())
	switch {
	case x.preflight:
		x.answerPreflight(w, r)
		return
	case g.control == nil:
		g.forward(w, r)
		return
	}
	a, err := g.control.Admit(w, r, &x.identityForRules, x.try)
	if err != nil {
		admission.WriteError(w, r, err, nil)
		return
	}
	if a.Waited > 0 {
		x.Rule, x.Delay = a.Rule, a.Waited
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
		a.SetHeaders(w.Header(), r)
		a.Done(r.Context(), http.StatusAccepted)
		g.enqueue(w, r, x, a.Queue)
	default:
		a.SetHeaders(w.Header(), r)
		a.Serve(g.forwarder, w, r)
	}
}

// forward hands a request that the limits let pass to its upstream.
func (g *Gateway) forward(w http.ResponseWriter, r *http.Request) {
	x := FromContext(r.Context())
	switch {
	case x.delivery != nil:
		if !x.delivery.claim() {
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
	x.response.unreadBody = nil
	r = x.startTimeout(r)
	x.forwarded = time.Now()
	x.Route.Upstream.ServeHTTP(w, r)
}
