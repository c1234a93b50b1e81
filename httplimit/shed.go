package httplimit

import (
	"context"
	"net/http"

	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/rules"
)

// Shedder turns requests away when not all can be served, the lower priorities first: those of a set's Priorities, by
// its AdaptiveLimits.
//
//	shedder := httplimit.NewShedder(watcher.Set)
//	go shedder.Run(ctx)
//	handler = shedder.Middleware(handler)
//
// An adaptive limit learns how many requests may be in flight behind it from how long it takes until an answer begins and
// from how many fail (502, 503, 504). It begins with its maximum, so that nobody is turned away before there is an overload.
// Requests that Upgrade, and streams of events, are in flight until their answer begins: how long they last says nothing.
// While a request waits for its client to send its body or to read its response, or for its turn (on_limit: delay), it is
// not in flight, and the time is not measured: the upstream does not work on it, and slow clients must not keep others out.
// Besides, [Shedder.Run] watches the process itself.
//
// Who is turned away gets 503 Service Unavailable with a Retry-After of a few seconds that differs from answer to
// answer, so that not all come back at once. What adaptive limits have learnt is kept under their names when the set changes.
type Shedder struct{ s *admission.Shedder }

// NewShedder makes a Shedder. The function is asked for the set once per request, and may return another at any time. It
// panics if the function is nil.
func NewShedder(set func() *rules.Set) *Shedder {
	if set == nil {
		panic("httplimit: NewShedder: the set is nil: pass a function that returns it, such as func() *rules.Set { return set }")
	}
	return &Shedder{admission.NewShedder(set)}
}

// OnShed has a function be called for each request that is turned away, before it is answered, with the name of the
// adaptive limit.
// It is to be called before requests come.
func (s *Shedder) OnShed(f func(r *http.Request, gate string)) { s.s.OnShed(f) }

// Run watches the process until the context ends, and has adaptive limits turn away low priorities, then normal ones, then high ones
// while goroutines wait too long for a processor. Without it adaptive limits only protect what is behind them.
func (s *Shedder) Run(ctx context.Context) { s.s.Run(ctx) }

// Middleware is the middleware: it turns requests away before they reach next.
func (s *Shedder) Middleware(next http.Handler) http.Handler { return s.s.Middleware(next) }

// MeasureUpstream has the time be measured from here on, where Middleware is not all there is before the upstream: requests may wait
// for their turn in between, or be answered without reaching it, which says nothing about overload. It is to be called
// before requests come. Writers that middleware in between puts around the response need an Unwrap method.
func (s *Shedder) MeasureUpstream(next http.Handler) http.Handler { return s.s.MeasureUpstream(next) }

// AdaptiveLimitState is what an adaptive limit does at the moment.
type AdaptiveLimitState struct {
	Name     string
	Limit    int // how many may be in flight
	InFlight int
	// ShedByUpstream is how many were turned away because of what is behind the limit, and ShedByProcess because of this process, of
	// each priority: ShedByUpstream[rules.PriorityHigh-rules.PriorityLow]. In shadow they were served.
	ShedByUpstream, ShedByProcess [4]int64
}

// AdaptiveLimits are those of the set that came last, in its order.
func (s *Shedder) AdaptiveLimits() []AdaptiveLimitState {
	var all []AdaptiveLimitState
	for _, g := range s.s.AdaptiveLimits() {
		all = append(all, AdaptiveLimitState(g))
	}
	return all
}

// Pressure is how much the process has too much to do: 0 if all is well, 1 if only what is critical is served.
func (s *Shedder) Pressure() float64 { return s.s.Pressure() }
