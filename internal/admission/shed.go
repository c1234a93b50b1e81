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

// Shedder turns requests away when not all can be served, the lower priorities first: those of a set's Priorities, at
// the gates of its Shed.
//
// A gate learns how many requests may be in flight behind it from how long it takes until an answer begins and from how
// many fail (502, 503, 504). It begins with its maximum, so that nobody is turned away before there is an overload.
// Requests that Upgrade, and streams of events, are in flight until their answer begins: how long they last says nothing.
// While a request waits for its client to send its body or to read its response, or for its turn (on_limit: delay), it is
// not in flight, and the time is not measured: the upstream does not work on it, and slow clients must not keep others out.
// Besides, [Shedder.Run] watches the process itself.
//
// Who is turned away gets 503 Service Unavailable with a Retry-After of a few seconds that differs from answer to
// answer, so that not all come back at once. What gates have learnt is kept under their names when the set changes.
type Shedder struct {
	set     func() *rules.Set
	onShed  func(r *http.Request, gate string)
	who     func(r *http.Request) *Identity // nil: the request's context knows
	process overload.CPUPressure
	inner   bool // time is measured by Upstream
	current atomic.Pointer[shedSet]

	mu    sync.Mutex // guards gates
	gates map[string]*shedGate
}

// shedSet is what is made once for a set of rules.
type shedSet struct {
	set   *rules.Set
	gates map[*rules.AdaptiveLimit]*shedGate
	loads sync.Pool // of *shedLoad
}

type shedGate struct {
	*overload.AdaptiveLimiter
	byProcess [priorities]atomic.Int64
}

const priorities = int(rules.PriorityCritical-rules.PriorityLow) + 1

// shedMatch is a request beside the set's priorities and gates.
type shedMatch struct {
	request ruleRequest
	matched rules.MatchResult
}

// NewShedder makes a Shedder. The function is asked for the set once per request, and may return another at any time.
func NewShedder(set func() *rules.Set) *Shedder {
	return &Shedder{set: set, gates: make(map[string]*shedGate)}
}

// OnShed has a function be called for each request that is turned away, before it is answered, with the name of the gate.
// It is to be called before requests come.
func (s *Shedder) OnShed(f func(r *http.Request, gate string)) { s.onShed = f }

// IdentifyBy names who requests are from, instead of their contexts. It is to be called before requests come.
func (s *Shedder) IdentifyBy(who func(r *http.Request) *Identity) { s.who = who }

// Run watches the process until the context ends, and has gates turn away low priorities, then normal ones, then high ones
// while goroutines wait too long for a processor. Without it gates only protect what is behind them.
func (s *Shedder) Run(ctx context.Context) { s.process.Run(ctx) }

// Middleware is the middleware: it turns requests away before they reach next.
func (s *Shedder) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		set := s.set()
		if set == nil || !set.HasAdaptiveLimits() {
			next.ServeHTTP(w, r)
			return
		}
		gates := s.setFor(set)
		load, err := gates.load(r, s.identity(r))
		switch {
		case err != nil:
			WriteError(w, r, err, nil)
		case load.AdaptiveLimit == nil:
			next.ServeHTTP(w, r)
		default:
			s.serve(w, r, next, load, gates.gates[load.AdaptiveLimit])
		}
	})
}

// MeasureUpstream has the time be measured from here on, where Handler is not all there is before the upstream: requests may wait
// for their turn in between, or be answered without reaching it, which says nothing about overload. It is to be called
// before requests come. Writers that middleware in between puts around the response need an Unwrap method.
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

// setFor returns what was made for the set.
func (s *Shedder) setFor(set *rules.Set) *shedSet {
	if now := s.current.Load(); now != nil && now.set == set {
		return now
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.current.Load(); now != nil && now.set == set {
		return now
	}
	made := &shedSet{set: set, gates: make(map[*rules.AdaptiveLimit]*shedGate)}
	ip := ClientIP(set)
	made.loads.New = func() any { return &shedMatch{request: ruleRequest{ip: ip}} }
	kept := make(map[string]*shedGate)
	for i := range set.Config().AdaptiveLimits {
		g := &set.Config().AdaptiveLimits[i]
		cfg := overload.Config{Min: g.Min, Max: g.Max, Shadow: g.Shadow}
		gate := s.gates[g.Name]
		if gate == nil {
			gate = &shedGate{AdaptiveLimiter: overload.NewAdaptiveLimiter(cfg)}
		} else {
			gate.Configure(cfg)
		}
		kept[g.Name], made.gates[g] = gate, gate
	}
	s.gates = kept
	s.current.Store(made)
	return made
}

// serve has the request pass the gate, or turns it away.
func (s *Shedder) serve(w http.ResponseWriter, r *http.Request, next http.Handler, load rules.LoadClass, gate *shedGate) {
	p := overload.Priority(load.Priority - rules.PriorityLow)
	if !s.process.Admits(p) {
		if gate.byProcess[p].Add(1); !load.AdaptiveLimit.Shadow {
			s.shed(w, r, load.AdaptiveLimit.Name)
			return
		}
	}
	f := &shedTicket{skippedUpstream: s.inner}
	if !gate.Acquire(p, &f.ticket) {
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

// Retry-After is between these.
const (
	minShedRetryAfter = time.Second
	maxShedRetryAfter = 5 * time.Second
)

func (s *Shedder) shed(w http.ResponseWriter, r *http.Request, gate string) {
	if s.onShed != nil {
		s.onShed(r, gate)
	}
	after := minShedRetryAfter + rand.N(maxShedRetryAfter-minShedRetryAfter)
	seconds := strconv.FormatInt(quota.CeilSeconds(after), 10)
	w.Header().Set("Retry-After", seconds)
	p := problem.Problem{
		Type: problem.TypeCapacity, Title: http.StatusText(http.StatusServiceUnavailable), Status: http.StatusServiceUnavailable,
		Detail: "More requests have come than can be served at the moment; retry in " + seconds + " s.", Instance: problem.Instance(r),
		RetryAfterMS: after.Milliseconds(),
	}
	p.Write(w)
}

// shedTicket is a request that has passed a gate, and the writer of its answer.
type shedTicket struct {
	responseWriter
	ticket          overload.Ticket
	skippedUpstream bool // it has not got to the upstream
}

// wait begins a time in which the request waits for its client, and resume ends it. Both do nothing without a ticket.
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

// upstreamBody is a response's body that is copied to the client. Only reading it waits for the upstream.
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

// firstByte ends the measuring, and the request in flight of what will last as long as it likes.
func (f *shedTicket) firstByte() {
	f.ticket.ResponseStarted()
	events := strings.HasPrefix(f.Header().Get("Content-Type"), "text/event-stream")
	if f.status == http.StatusSwitchingProtocols || events && f.status == http.StatusOK {
		f.ticket.Done(f.outcomeOf())
	}
}

// outcomeOf says what the status tells of overload.
func (f *shedTicket) outcomeOf() overload.Outcome {
	switch status := f.status; {
	case f.skippedUpstream, status == http.StatusTooManyRequests: // a limit, whoever's it is
		return overload.NotForwarded
	case status == http.StatusBadGateway, status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		return overload.Failed
	case status == statusClientLeft, status == http.StatusRequestTimeout: // it did not send its request
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

// shedTicketOf finds the ticket of the request that the writer answers.
func shedTicketOf(w http.ResponseWriter) *shedTicket {
	for {
		if o, ok := w.(interface{ flightOf() *shedTicket }); ok {
			if f := o.flightOf(); f != nil {
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

func (o *responseWriter) flightOf() *shedTicket { return o.ticket }

// AdaptiveLimitState is what a gate does at the moment.
type AdaptiveLimitState struct {
	Name     string
	Limit    int // how many may be in flight
	InFlight int
	// ShedByUpstream is how many were turned away because of what is behind the gate, and ShedByProcess because of this process, of
	// each priority: ShedByUpstream[rules.PriorityHigh-rules.PriorityLow]. In shadow they were served.
	ShedByUpstream, ShedByProcess [priorities]int64
}

// AdaptiveLimits are the gates of the set that came last, in its order.
func (s *Shedder) AdaptiveLimits() []AdaptiveLimitState {
	set := s.set()
	if set == nil || !set.HasAdaptiveLimits() {
		return nil
	}
	made := s.setFor(set)
	all := make([]AdaptiveLimitState, 0, len(made.gates))
	for i := range set.Config().AdaptiveLimits {
		of := &set.Config().AdaptiveLimits[i]
		g := made.gates[of]
		state := AdaptiveLimitState{Name: of.Name, Limit: g.Limit(), InFlight: g.InFlight()}
		for p := range priorities {
			state.ShedByUpstream[p], state.ShedByProcess[p] = g.Shed(overload.Priority(p)), g.byProcess[p].Load()
		}
		all = append(all, state)
	}
	return all
}

// Pressure is how much the process has too much to do: 0 if all is well, 1 if only what is critical is served.
func (s *Shedder) Pressure() float64 { return s.process.Pressure() }

// SetAside excludes the request from what the adaptive limit learns from: its outcome is unrelated to the upstream.
func (o *responseWriter) SetAside() {
	if o.ticket != nil {
		o.ticket.skippedUpstream = true
	}
}
