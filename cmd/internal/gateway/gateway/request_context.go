package gateway

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/authn"
	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/rules"
)

// RequestContext is a request and its outcome.
type RequestContext struct {
	Start    time.Time
	ID       string
	Client   netip.Addr    // address that limits use; the zero Addr if unknown
	Path     string        // canonical; empty if there is no canonical form
	Route    *Route        // nil: none was found
	Queued   bool          // stored, to be delivered later
	Item     string        // ID of the queue item; empty if it was not stored
	Rule     string        // rule that denied, delayed or queued it
	Delay    time.Duration // in the delay queue
	Shed     bool          // shed because of overload; set by the program
	Rejected bool          // before limits: malformed, from a denied address, unauthenticated …
	Exempt   bool          // not subject to rules: a CORS preflight, or below InternalPath
	Server   string        // server that it was forwarded to; set by the program
	Request  *http.Request // as received, except removed headers and the canonical path

	lines            [lineCount]string // values of headers that are set
	trusted          bool              // the peer is a trusted proxy
	set              *rules.Set        // rule set that the request was identified by
	address          netip.Prefix      // address or IPv6 /64 that it counts for; the zero Prefix: none
	counted          bool              // it is counted for address
	preflight        bool              // it is a preflight for a route with CORS
	response         responseWriter
	body             *body // nil: none
	forwarded        time.Time
	identity         authn.Identity
	identityForRules admission.Identity // claims and attributes of identity
	try              admission.Try
	timeout          *timeout  // nil: none
	delivery         *delivery // nil: not from the queue

	// Embedded values of nearly all requests, so that a RequestContext is one allocation.
	context contextWithRequest
	sent    body
}

// User returns the authenticated user, or the empty string.
func (x *RequestContext) User() string { return x.identity.User }

// Plan returns the plan of the user, or the empty string.
func (x *RequestContext) Plan() string { return x.identity.Attributes["plan"] }

// Header returns the header of the response.
func (x *RequestContext) Header() http.Header { return x.response.Header() }

// Status returns the status of the response, or 0 if the connection ended before.
func (x *RequestContext) Status() int { return x.response.status }

// BytesOut returns the size of the response's body.
func (x *RequestContext) BytesOut() int64 { return x.response.bytes }

// BytesIn returns the number of bytes of the request's body that were read.
func (x *RequestContext) BytesIn() int64 {
	if x.body == nil {
		return 0
	}
	return x.body.count.Load()
}

// UpstreamTime returns the time to the first byte of the upstream's response. forwarded is false if the request was not
// forwarded.
func (x *RequestContext) UpstreamTime() (took time.Duration, forwarded bool) {
	if x.forwarded.IsZero() {
		return 0, false
	}
	if x.response.startedAt.IsZero() {
		return time.Since(x.forwarded), true
	}
	return x.response.startedAt.Sub(x.forwarded), true
}

// FromContext returns the RequestContext of a request's context, or nil. It is valid while the request is handled.
func FromContext(ctx context.Context) *RequestContext {
	x, _ := ctx.Value(requestContextKey{}).(*RequestContext)
	return x
}

// IdentityOf returns the identity of a request of the gateway, or nil for other requests.
func IdentityOf(r *http.Request) *admission.Identity {
	if x := FromContext(r.Context()); x != nil {
		return &x.identityForRules
	}
	return nil
}

// Client returns the client's address that limits use for the request with this context.
func Client(ctx context.Context) netip.Addr {
	if x := FromContext(ctx); x != nil {
		return x.Client
	}
	return netip.Addr{}
}

// Address returns the address or IPv6 /64 that the request with this context counts for, where each client gets a share of
// a common resource. It is the zero Prefix for clients without an address, and for trusted proxies that do not forward a
// client's address.
func Address(ctx context.Context) netip.Prefix {
	if x := FromContext(ctx); x != nil {
		return x.address
	}
	return netip.Prefix{}
}

type requestContextKey struct{}

// contextWithRequest is a request's context that carries its RequestContext.
type contextWithRequest struct {
	context.Context
	x *RequestContext
}

func (c *contextWithRequest) Value(key any) any {
	switch key {
	case requestContextKey{}:
		return c.x
	case bounds.Counted{}:
		return true // the gateway has already read the forwarding header
	}
	return c.Context.Value(key)
}

// netHTTPReads is the maximum number of bytes of a body that net/http reads after the handler, before it sends the response.
const netHTTPReads = 256 << 10

func (g *Gateway) begin(w http.ResponseWriter, r *http.Request) *RequestContext {
	g.inFlight.Add(1)
	x := &RequestContext{Start: time.Now(), Request: r}
	x.response.ResponseWriter, x.response.isGRPC = w, isGRPC(r)
	x.response.start(r.ProtoMajor)
	if r.Body != nil && r.Body != http.NoBody {
		x.body = &x.sent
		x.body.ReadCloser = r.Body
		// net/http closes the connection itself if more is missing, or if the client waits for 100 Continue.
		if r.ProtoMajor == 1 && r.ContentLength > 0 && r.ContentLength < netHTTPReads && r.Header.Get("Expect") == "" {
			x.response.unreadBody = x.body
		}
	}
	return x
}

// lastPieceTimeout bounds the time in which a client sends the unread rest of its request, and reads the rest of the response.
const lastPieceTimeout = 10 * time.Second

// end finishes a request. It is also called during a panic of the handler, which aborts a response whose client or upstream
// has closed its connection.
func (g *Gateway) end(x *RequestContext) {
	if x.body != nil && !x.response.hijacked {
		rest := lastPieceTimeout
		if x.response.status == http.StatusRequestTimeout {
			rest = 0 // its timeout has expired
		}
		x.body.end(x.response.ResponseWriter, x.Request.ProtoMajor, rest)
	}
	x.response.end(2 * lastPieceTimeout) // the rest of the request is read before the response is sent
	x.timeout.end()
	if x.counted {
		g.shares.Leave(x.address)
	}
	if g.cfg.OnDone != nil {
		g.cfg.OnDone(x)
	}
	g.inFlight.Add(-1) // last: when Wait returns, every request has been reported
}

// attach returns a request whose context carries the RequestContext. The Content-Length, if known, has been checked.
func (x *RequestContext) attach(r *http.Request) *http.Request {
	x.context = contextWithRequest{r.Context(), x}
	to := r.WithContext(&x.context)
	to.Trailer = nil // neither rules nor authentication have read the trailers
	if x.body != nil {
		if x.Route.MaxBody > 0 && r.ContentLength < 0 {
			// MaxBytesReader gets no writer for Connection: close, because it would write the header on the goroutine that
			// reads the body, while the response starts on another. serve has set the header for chunked requests.
			x.body.ReadCloser = http.MaxBytesReader(nil, x.body.ReadCloser, x.Route.MaxBody)
		}
		// Only in the copy: the server must recognize its own body, or it waits for a body that a client which expects 100
		// Continue never sends.
		to.Body = x.body
	}
	return to
}

// setID sets the ID of the request: that of a trusted peer, or a new one.
func (x *RequestContext) setID(r *http.Request) {
	if lines := r.Header[RequestID]; x.trusted && len(lines) == 1 && isID(lines[0]) {
		x.ID = lines[0]
	} else {
		x.ID = newID()
		r.Header[RequestID] = x.singleLine(lineID, x.ID)
	}
	x.response.Header()[RequestID] = x.singleLine(lineResponseID, x.ID)
}

func newID() string {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(b[8:], rand.Uint64())
	var text [32]byte
	hex.Encode(text[:], b[:])
	return string(text[:])
}

func isID(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return s != "" && len(s) <= 128
}

// Indexes of RequestContext.lines, the memory of headers that are set for every request, which saves an allocation each.
const (
	lineID = iota
	lineResponseID
	lineFor
	lineHost
	lineCount
)

// singleLine returns a header with one line.
func (x *RequestContext) singleLine(i int, text string) []string {
	x.lines[i] = text
	return x.lines[i : i+1 : i+1]
}

// startTimeout cancels the request if the response does not start within the route's timeout. Each piece of the request's
// body restarts the timer, because an upstream responds after it has read the body.
func (x *RequestContext) startTimeout(r *http.Request) *http.Request {
	after := x.Route.Timeout
	if after <= 0 {
		return r
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	t := &timeout{after: after, cancel: cancel}
	t.timer = time.AfterFunc(after, t.expire)
	x.timeout, x.response.timeout = t, t
	if x.body != nil {
		x.body.timeout.Store(t)
	}
	return r.WithContext(ctx)
}

// timeout is a timer that can be restarted until it is stopped. A nil timeout never expires.
type timeout struct {
	after  time.Duration
	timer  *time.Timer
	cancel context.CancelCauseFunc

	mu      sync.Mutex // guards stopped: the body may be read while the response starts
	stopped bool
}

func (t *timeout) expire() { t.cancel(context.DeadlineExceeded) }

func (t *timeout) reset() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.stopped {
		t.timer.Reset(t.after)
	}
}

func (t *timeout) stop() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	t.timer.Stop()
}

// end stops the timer and releases the context.
func (t *timeout) end() {
	if t != nil {
		t.stop()
		t.cancel(nil)
	}
}
