package admission

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice/internal/overload"
	"github.com/sluiceproject/sluice/internal/problem"
	"github.com/sluiceproject/sluice/internal/quota"
	"github.com/sluiceproject/sluice/rules"
)

// Shedder is load-shedding middleware. It bounds the requests in flight per adaptive limit of the rule set and sheds low
// priorities first, with 503 Service Unavailable. Retry-After is jittered, so that clients do not all retry at once.
//
// An adaptive limit follows the time to the first byte of the responses and the share of failures (502, 503, 504). It
// starts at its maximum, so that no request is shed before an overload. Upgraded connections and event streams are in
// flight only until the response starts, because their duration does not depend on the load. A request is not in flight,
// and its time is not measured, while it waits for the client to send the body or read the response, or in a delay queue:
// the upstream does no work for it, and slow clients must not use up the limit. Adaptive limits keep their state by name
// when the set changes.
//
// [Shedder.Run] also sheds requests under CPU pressure of the process.
type Shedder struct {
	set     func() *rules.Set
	onShed  func(r *http.Request, limit string)
	who     func(r *http.Request) *Identity // nil: from the request's context
	process overload.CPUPressure
	inner   bool // the latency is measured by MeasureUpstream
	current atomic.Pointer[shedSet]

	mu       sync.Mutex // guards limiters
	limiters map[string]*shedLimiter
}

// shedSet holds data derived from a rule set.
type shedSet struct {
	set      *rules.Set
	limiters map[*rules.AdaptiveLimit]*shedLimiter
	loads    sync.Pool // *shedMatch
}

type shedLimiter struct {
	*overload.AdaptiveLimiter
	byProcess [priorities]atomic.Int64
}

const priorities = int(rules.PriorityCritical-rules.PriorityLow) + 1

// shedMatch is pooled memory to find the priority and the adaptive limit of a request.
type shedMatch struct {
	request ruleRequest
	matched rules.MatchResult
}

// NewShedder returns a Shedder. The function set is called once per request and may return another set at any time.
func NewShedder(set func() *rules.Set) *Shedder {
	return &Shedder{set: set, limiters: make(map[string]*shedLimiter)}
}

// OnShed sets the function that is called for each shed request, before the response is written, with the name of the
// adaptive limit. It must be called before the first request.
func (s *Shedder) OnShed(f func(r *http.Request, limit string)) { s.onShed = f }

// IdentifyBy sets the function that returns the identity of a request, which replaces that of its context. It must be
// called before the first request.
func (s *Shedder) IdentifyBy(who func(r *http.Request) *Identity) { s.who = who }

// Run measures the CPU pressure of the process until ctx is done. While goroutines wait too long for a processor,
// adaptive limits shed low priorities, then normal, then high ones. Without Run they protect only the upstream.
func (s *Shedder) Run(ctx context.Context) { s.process.Run(ctx) }

// Middleware returns a handler that sheds requests before they reach next.
func (s *Shedder) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		set := s.set()
		if set == nil || !set.HasAdaptiveLimits() {
			next.ServeHTTP(w, r)
			return
		}
		current := s.setFor(set)
		load, err := current.load(r, s.identity(r))
		switch {
		case err != nil:
			WriteError(w, r, err, nil)
		case load.AdaptiveLimit == nil:
			next.ServeHTTP(w, r)
		default:
			s.serve(w, r, next, load, current.limiters[load.AdaptiveLimit])
		}
	})
}

// MeasureUpstream returns a handler that starts the latency measurement when a request reaches next. Use it around the
// upstream if other handlers between Middleware and the upstream delay requests or respond themselves, which is unrelated
// to overload. It must be called before the first request. Response writers of middleware in between must have an Unwrap
// method.
func (s *Shedder) MeasureUpstream(next http.Handler) http.Handler {
	s.inner = true
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := shedTicketOf(w); f != nil {
			f.begin()
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Shedder) identity(r *http.Request) *Identity {
	if s.who == nil {
		return nil
	}
	return s.who(r)
}

func (s *shedSet) load(r *http.Request, who *Identity) (rules.LoadClass, error) {
	l := s.loads.Get().(*shedMatch)
	l.request.http, l.request.who = r, who
	load, err := s.set.LoadClass(&l.request, &l.matched)
	l.matched.Clear()
	l.request.http, l.request.who = nil, nil
	s.loads.Put(l)
	return load, err
}

// setFor returns the shedSet of a set.
func (s *Shedder) setFor(set *rules.Set) *shedSet {
	if now := s.current.Load(); now != nil && now.set == set {
		return now
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.current.Load(); now != nil && now.set == set {
		return now
	}
	made := &shedSet{set: set, limiters: make(map[*rules.AdaptiveLimit]*shedLimiter)}
	ip := ClientIP(set)
	made.loads.New = func() any { return &shedMatch{request: ruleRequest{ip: ip}} }
	kept := make(map[string]*shedLimiter)
	for i := range set.Config().AdaptiveLimits {
		g := &set.Config().AdaptiveLimits[i]
		cfg := overload.Config{Min: g.Min, Max: g.Max, Shadow: g.Shadow}
		limiter := s.limiters[g.Name]
		if limiter == nil {
			limiter = &shedLimiter{AdaptiveLimiter: overload.NewAdaptiveLimiter(cfg)}
		} else {
			limiter.Configure(cfg)
		}
		kept[g.Name], made.limiters[g] = limiter, limiter
	}
	s.limiters = kept
	s.current.Store(made)
	return made
}

// serve calls next if the adaptive limit admits the request, and otherwise sheds it.
func (s *Shedder) serve(w http.ResponseWriter, r *http.Request, next http.Handler, load rules.LoadClass, limiter *shedLimiter) {
	p := overload.Priority(load.Priority - rules.PriorityLow)
	if !s.process.Admits(p) {
		if limiter.byProcess[p].Add(1); !load.AdaptiveLimit.Shadow {
			s.shed(w, r, load.AdaptiveLimit.Name)
			return
		}
	}
	f := &shedTicket{skippedUpstream: s.inner}
	if !limiter.Acquire(p, &f.ticket) {
		s.shed(w, r, load.AdaptiveLimit.Name)
		return
	}
	f.responseWriter = responseWriter{ResponseWriter: w, ticket: f}
	if r.Body != nil && r.Body != http.NoBody {
		with := *r
		with.Body = &clientBody{r.Body, f}
		r = &with
	}
	panicked := true
	defer func() { f.leave(r, panicked) }()
	next.ServeHTTP(f.wrap(), r)
	panicked = false
}

// Bounds of the random Retry-After of shed requests.
const (
	minShedRetryAfter = time.Second
	maxShedRetryAfter = 5 * time.Second
)

func (s *Shedder) shed(w http.ResponseWriter, r *http.Request, limit string) {
	if s.onShed != nil {
		s.onShed(r, limit)
	}
	after := minShedRetryAfter + rand.N(maxShedRetryAfter-minShedRetryAfter)
	seconds := strconv.FormatInt(quota.CeilSeconds(after), 10)
	w.Header().Set("Retry-After", seconds)
	w.Header().Set("Cache-Control", "no-store")
	p := problem.Problem{
		Type: problem.TypeCapacity, Title: http.StatusText(http.StatusServiceUnavailable), Status: http.StatusServiceUnavailable,
		Detail: "The server is overloaded and has shed this request; retry in " + seconds + " s.", Instance: problem.Instance(r),
		RetryAfterMS: after.Milliseconds(),
	}
	p.Write(w)
}

// shedTicket is a request that an adaptive limit has admitted, and the writer of its response.
type shedTicket struct {
	responseWriter
	ticket          overload.Ticket
	skippedUpstream bool // it has not reached the upstream
}

// wait marks the start, and resume the end, of a time in which the request waits for its client or in a delay queue. Both do
// nothing on a nil ticket.
func (f *shedTicket) wait() {
	if f != nil {
		f.ticket.Wait()
	}
}

func (f *shedTicket) resume() {
	if f != nil {
		f.ticket.Resume()
	}
}

// clientBody is a request's body. Reading it waits for the client.
type clientBody struct {
	io.ReadCloser
	ticket *shedTicket
}

func (b *clientBody) Read(p []byte) (int, error) {
	b.ticket.wait()
	defer b.ticket.resume()
	return b.ReadCloser.Read(p)
}

// upstreamBody is the body of a response while it is copied to the client. Only reading it waits for the upstream.
type upstreamBody struct {
	io.Reader
	ticket *shedTicket
}

func (b *upstreamBody) Read(p []byte) (int, error) {
	b.ticket.resume()
	defer b.ticket.wait()
	return b.Reader.Read(p)
}

func (f *shedTicket) begin() {
	f.skippedUpstream = false
	f.ticket.StartTimer()
}

// firstByte ends the measurement. An upgraded connection or an event stream is no longer in flight afterwards.
func (f *shedTicket) firstByte() {
	f.ticket.ResponseStarted()
	events := strings.HasPrefix(f.Header().Get("Content-Type"), "text/event-stream")
	if f.status == http.StatusSwitchingProtocols || events && f.status == http.StatusOK {
		f.ticket.Done(f.outcomeOf())
	}
}

// outcomeOf returns the outcome of a status for the adaptive limit.
func (f *shedTicket) outcomeOf() overload.Outcome {
	switch status := f.status; {
	case f.skippedUpstream, status == http.StatusTooManyRequests: // a rate limit, ours or the upstream's
		return overload.NotForwarded
	case status == http.StatusBadGateway, status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		return overload.Failed
	case status == statusClientClosed, status == http.StatusRequestTimeout: // 408: the client did not send its request
		return overload.ClientClosed
	}
	return overload.Responded
}

func (f *shedTicket) leave(r *http.Request, panicked bool) {
	o := f.outcomeOf()
	switch {
	case o == overload.NotForwarded:
	case f.status == 0 && r.Context().Err() != nil:
		o = overload.ClientClosed
	case f.status == 0 && panicked:
		o = overload.Failed
	}
	f.ticket.Done(o)
}

// shedTicketOf returns the ticket of the request that w belongs to, or nil.
func shedTicketOf(w http.ResponseWriter) *shedTicket {
	for {
		if o, ok := w.(interface{ ticketOf() *shedTicket }); ok {
			if f := o.ticketOf(); f != nil {
				return f
			}
		}
		below, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return nil
		}
		w = below.Unwrap()
	}
}

func (o *responseWriter) ticketOf() *shedTicket { return o.ticket }

// AdaptiveLimitState is the current state of an adaptive limit.
type AdaptiveLimitState struct {
	Name     string
	Limit    int // maximum number of requests in flight
	InFlight int
	// ShedByUpstream counts requests shed because of the upstream, ShedByProcess those shed because of CPU pressure, by
	// priority: ShedByUpstream[rules.PriorityHigh-rules.PriorityLow]. In shadow mode they are counted but served.
	ShedByUpstream, ShedByProcess [priorities]int64
}

// AdaptiveLimits returns the states of the adaptive limits of the current set, in its order.
func (s *Shedder) AdaptiveLimits() []AdaptiveLimitState {
	set := s.set()
	if set == nil || !set.HasAdaptiveLimits() {
		return nil
	}
	made := s.setFor(set)
	all := make([]AdaptiveLimitState, 0, len(made.limiters))
	for i := range set.Config().AdaptiveLimits {
		of := &set.Config().AdaptiveLimits[i]
		g := made.limiters[of]
		state := AdaptiveLimitState{Name: of.Name, Limit: g.Limit(), InFlight: g.InFlight()}
		for p := range priorities {
			state.ShedByUpstream[p], state.ShedByProcess[p] = g.Shed(overload.Priority(p)), g.byProcess[p].Load()
		}
		all = append(all, state)
	}
	return all
}

// Pressure returns the CPU pressure of the process: 0 is none, at 1 only requests of priority critical are served.
func (s *Shedder) Pressure() float64 { return s.process.Pressure() }

// SetAside excludes the request from the samples of the adaptive limit, because its outcome is unrelated to the upstream.
func (o *responseWriter) SetAside() {
	if o.ticket != nil {
		o.ticket.skippedUpstream = true
	}
}
