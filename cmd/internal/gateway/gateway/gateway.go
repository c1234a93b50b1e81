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

// Config is the configuration of a Gateway. Routes and Rules are required.
type Config struct {
	Routes []Route
	// Rules returns the current rule set. It is called for every request and may return another set at any time.
	Rules func() *rules.Set
	// Limiter decides the limits of the rules. Nil disables all limits.
	Limiter *sluice.Limiter
	// Queue stores requests of rules with on_limit: queue. Nil: they are denied.
	Queue Queue
	// Workers is the number of queued requests that are delivered concurrently; 0 means 16.
	Workers int
	// Shed is load-shedding middleware before the limits. It may be nil.
	Shed func(http.Handler) http.Handler
	// Deny lists rejected client addresses, and Allow the only accepted ones; an empty Allow accepts all.
	Allow, Deny match.AddrSet
	// MaxRequests bounds the requests in flight, and MaxAddressRequests those of one client address or IPv6 /64. 0 means
	// unbounded.
	MaxRequests, MaxAddressRequests int
	// InternalHandler serves the paths below [InternalPath]. Nil: 404.
	InternalHandler http.Handler
	// OnDone is called for every request after its response. It must not retain the RequestContext. It may be nil.
	OnDone func(*RequestContext)
	// OnAttempt is called for every attempt to deliver a queued request, after its outcome is stored. It must not retain the
	// Attempt. It may be nil.
	OnAttempt func(*Attempt)
	Log       *slog.Logger // default slog.Default()
}

// InternalPath is the prefix of paths that the gateway serves itself. No route may be below it.
const InternalPath = "/.sluice"

// Gateway is a reverse proxy: an HTTP handler that forwards requests to upstreams.
type Gateway struct {
	cfg       Config
	log       *slog.Logger
	routes    *routeTable
	control   *admission.Controller // nil: no limits
	afterAuth http.Handler          // handles authenticated requests
	forwarder http.Handler          // the upstreams
	clients   atomic.Pointer[clientsOf]
	inFlight  atomic.Int64                  // requests without a complete response, open WebSockets included
	shares    *shares.Counter[netip.Prefix] // requests in flight by client address; nil: unbounded
	draining  atomic.Bool
}

// clientsOf holds the Finder of a rule set.
type clientsOf struct {
	set *rules.Set
	*clientip.Finder
}

// New returns a Gateway.
func New(cfg Config) (*Gateway, error) {
	g := &Gateway{cfg: cfg, log: cfg.Log}
	if g.log == nil {
		g.log = slog.Default()
	}
	if cfg.Rules == nil {
		return nil, errors.New("gateway: Config.Rules is nil")
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

// InFlight returns the number of requests in flight.
func (g *Gateway) InFlight() int64 { return g.inFlight.Load() }

// Drain sends Connection: close with all further HTTP/1 responses, so that clients connect to another instance.
func (g *Gateway) Drain() { g.draining.Store(true) }

// Wait blocks until no request is in flight, WebSockets included, which http.Server.Shutdown does not wait for. It returns an
// error if ctx is done before.
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
		panic(http.ErrAbortHandler) // the status is for logs and metrics only: the client has disconnected or closed its side
	}
}

// Malformed reports a request that the HTTP server has rejected because it could not parse it, and returns its ID.
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

// serve passes the request through all steps. It returns a rejection that the caller must write, or nil if a response was
// written.
func (g *Gateway) serve(x *RequestContext, r *http.Request) *rejection {
	if r.ProtoMajor == 1 && (len(r.TransferEncoding) > 0 || g.draining.Load()) {
		// A chunked request may also have had a Content-Length, which net/http drops silently. A proxy in front may use that
		// length and interpret the following bytes on the connection differently (request smuggling).
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
		if r.ProtoMajor == 1 { // the sender may interpret the following bytes on the connection differently
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
		return reject(http.StatusNotFound, "No route matches this host and path.")
	}
	if max := x.Route.MaxBody; max > 0 && r.ContentLength > max {
		bounds.BodySize.Reached()
		return reject(http.StatusRequestEntityTooLarge, "The request body exceeds the maximum size of this route.")
	}
	r = x.attach(r)
	if fault = x.authenticate(r); fault != nil {
		return fault
	}
	g.afterAuth.ServeHTTP(&x.response, r)
	return nil
}

// routeOf returns the route of a request, or nil, and prepares the CORS headers of the response, also for rejections by the
// checks before the request is routed.
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

// serveInternal serves a request below InternalPath.
func (g *Gateway) serveInternal(x *RequestContext, r *http.Request) *rejection {
	if g.cfg.InternalHandler == nil {
		return reject(http.StatusNotFound, "Nothing is served at this path.")
	}
	if x.preflight {
		x.answerPreflight(&x.response, r)
		return nil
	}
	g.cfg.InternalHandler.ServeHTTP(&x.response, r)
	return nil
}

// clientsFor returns the Finder of a set. While one set replaces another, concurrent requests may still use the old one.
func (g *Gateway) clientsFor(set *rules.Set) *clientip.Finder {
	last := g.clients.Load()
	if last == nil || last.set != set {
		next := &clientsOf{set, admission.ClientIP(set)}
		g.clients.CompareAndSwap(last, next)
		last = next
	}
	return last.Finder
}

// rejectIfFull rejects a request if MaxRequests are in flight.
func (g *Gateway) rejectIfFull() *rejection {
	if g.cfg.MaxRequests <= 0 || g.inFlight.Load() <= int64(g.cfg.MaxRequests) {
		return nil
	}
	bounds.Requests.Reached()
	return &rejection{status: http.StatusServiceUnavailable, retryAfter: time.Second, detail: "Too many requests are in flight."}
}

// enter counts a request for its client's address until end. Clients without an address, and trusted proxies that do not
// forward a client's address, are unbounded.
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
			detail: "Too many requests from this address are in flight.",
		}
	}
	x.counted = true
	return nil
}

// authenticate authenticates a request and sets the identity for the rules. Preflights are skipped, because browsers send
// them without credentials.
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

// limit applies the rules to a request and forwards it if it is allowed.
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
		w.Header()["Cache-Control"] = noStore
		admission.WriteError(w, r, err, nil)
		return
	}
	if a.Waited > 0 {
		x.Rule, x.Delay = a.Rule, a.Waited
	}
	switch a.Outcome {
	case admission.Rejected:
		w.Header()["Cache-Control"] = noStore
		admission.WriteRejection(w, r)
	case admission.Denied:
		x.Rule = a.Rule
		if x.delivery != nil {
			x.delivery.deny(&a)
		} else {
			w.Header()["Cache-Control"] = noStore
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

// forward forwards an allowed request to its upstream.
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
