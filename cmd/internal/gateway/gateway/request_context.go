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
	Client   netip.Addr    // as limits count it; the zero Addr if it was not known
	Path     string        // canonical; empty if it has no such form
	Route    *Route        // nil: none was found
	Queued   bool          // stored, to be delivered later
	Item     string        // ID of the queue item; empty if it was not stored
	Rule     string        // that denied, delayed or queued it
	Delay    time.Duration // in the delay queue
	Shed     bool          // because of overload, if the program notes it
	Rejected bool          // before limits: malformed, from a denied address, unauthenticated …
	Exempt   bool          // no rule is for it: a CORS preflight, or below InternalPath
	Server   string        // that it was forwarded to, if the program notes it
	Request  *http.Request // as it came, but for headers that were dropped and the path's spelling

	lines            [lineCount]string // of headers that are set
	trusted          bool              // the peer may say whom it speaks for
	set              *rules.Set        // that the request was identified by
	address          netip.Prefix      // that it counts for; the zero Prefix: none
	counted          bool              // it is counted
	preflight        bool              // of a route with CORS
	response         responseWriter
	body             *body // nil: there is none
	forwarded        time.Time
	identity         authn.Identity
	identityForRules admission.Identity // of identity, for the rules
	try              admission.Try
	timeout          *timeout  // nil: none
	delivery         *delivery // nil: it has just come

	// Room for what nearly all have, so that a request context is one piece of memory.
	context contextWithRequest
	sent    body
}

// User is who the request is from, or empty.
func (x *RequestContext) User() string { return x.identity.User }

// Plan is the plan of the user.
func (x *RequestContext) Plan() string { return x.identity.Attributes["plan"] }

// Header is that of the answer.
func (x *RequestContext) Header() http.Header { return x.response.Header() }

// Status is what the client was answered, or 0 if the connection ended before.
func (x *RequestContext) Status() int { return x.response.status }

// BytesOut is the size of the answer's body.
func (x *RequestContext) BytesOut() int64 { return x.response.bytes }

// BytesIn is how much of the request's body was read.
func (x *RequestContext) BytesIn() int64 {
	if x.body == nil {
		return 0
	}
	return x.body.count.Load()
}

// UpstreamTime is how long the upstream took to begin its answer, and whether it was asked at all.
func (x *RequestContext) UpstreamTime() (took time.Duration, asked bool) {
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

// IdentityOf is who a request of the gateway is from.
func IdentityOf(r *http.Request) *admission.Identity {
	if x := FromContext(r.Context()); x != nil {
		return &x.identityForRules
	}
	return nil
}

// Client is the address of the client whose request has the context, as limits count it.
func Client(ctx context.Context) netip.Addr {
	if x := FromContext(ctx); x != nil {
		return x.Client
	}
	return netip.Addr{}
}

// Address is the address that the request with the context counts for where one client gets a share of what all have, IPv6 by
// /64. It is the zero Prefix for clients without one, and for trusted proxies that do not name their client.
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
		return true // by New's clients
	}
	return c.Context.Value(key)
}

// netHTTPReads is how much of a body net/http reads after the handler, before the response is sent.
const netHTTPReads = 256 << 10

func (g *Gateway) begin(w http.ResponseWriter, r *http.Request) *RequestContext {
	g.inFlight.Add(1)
	x := &RequestContext{Start: time.Now(), Request: r}
	x.response.ResponseWriter, x.response.isGRPC = w, isGRPC(r)
	x.response.start(r.ProtoMajor)
	if r.Body != nil && r.Body != http.NoBody {
		x.body = &x.sent
		x.body.ReadCloser = r.Body
		// net/http closes the connection itself if more is missing, or if the client waits to be told to go on.
		if r.ProtoMajor == 1 && r.ContentLength > 0 && r.ContentLength < netHTTPReads && r.Header.Get("Expect") == "" {
			x.response.unreadBody = x.body
		}
	}
	return x
}

// lastPieceTimeout is how long a client may take to send what no handler reads, and to take the last of its answer.
const lastPieceTimeout = 10 * time.Second

// end is also called while a handler panics, as those do whose client or upstream has gone in the middle of an answer.
func (g *Gateway) end(x *RequestContext) {
	if x.body != nil && !x.response.hijacked {
		rest := lastPieceTimeout
		if x.response.status == http.StatusRequestTimeout {
			rest = 0 // it has had its time
		}
		x.body.end(x.response.ResponseWriter, x.Request.ProtoMajor, rest)
	}
	x.response.end(2 * lastPieceTimeout) // the last piece is waited for before the answer is sent
	x.timeout.end()
	if x.counted {
		g.shares.Leave(x.address)
	}
	if g.cfg.OnDone != nil {
		g.cfg.OnDone(x)
	}
	g.inFlight.Add(-1) // last: when Wait returns, every request has been reported
}

// attach makes a request whose context carries the RequestContext. A body that says how long it is has been looked at.
func (x *RequestContext) attach(r *http.Request) *http.Request {
	x.context = contextWithRequest{r.Context(), x}
	to := r.WithContext(&x.context)
	to.Trailer = nil // fields that come after the body were read by no rule and by no authentication
	if x.body != nil {
		if x.Route.MaxBody > 0 && r.ContentLength < 0 {
			// It gets no writer to announce the end of the connection to: it would write to the header on the goroutine that
			// reads the body, while the response begins on another. The end was announced with the chunks, in serve.
			x.body.ReadCloser = http.MaxBytesReader(nil, x.body.ReadCloser, x.Route.MaxBody)
		}
		// Only in the copy: the server has to know its own body again, or it waits for what a client that expects to be
		// told to go on (100-continue) will never send.
		to.Body = x.body
	}
	return to
}

// setID gives the request an id, or keeps that of a trusted peer.
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

// Headers that are set for every request have room of their own here, so that they need none each.
const (
	lineID = iota
	lineResponseID
	lineFor
	lineHost
	lineCount
)

// singleLine is a header with one line.
func (x *RequestContext) singleLine(i int, text string) []string {
	x.lines[i] = text
	return x.lines[i : i+1 : i+1]
}

// startTimeout has the request end if the upstream does not begin to answer in time. Each piece of the request's body
// begins the time anew, because an upstream answers when it has read it.
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

// timeout is a timer that begins anew until it is stopped. That of a nil timeout never ends.
type timeout struct {
	after  time.Duration
	timer  *time.Timer
	cancel context.CancelCauseFunc

	mu      sync.Mutex // guards stopped: bodies are read while the answer begins
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

// end lets go of the request too.
func (t *timeout) end() {
	if t != nil {
		t.stop()
		t.cancel(nil)
	}
}
