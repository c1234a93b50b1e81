package httplimit

import (
	"context"
	"net/http"

	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/rules"
)

// Shedder is load-shedding middleware. It bounds the requests in flight per adaptive limit of the rule set and sheds low
// priorities first, with 503 Service Unavailable and a jittered Retry-After of 1 to 5 seconds.
//
//	shedder := httplimit.NewShedder(watcher.Set)
//	go shedder.Run(ctx)
//	handler = shedder.Middleware(handler)
//
// An adaptive limit follows the time to the first byte of the responses and the share of failures (502, 503, 504). It
// starts at its maximum, so that no request is shed before an overload. Upgraded connections and event streams are in
// flight only until the response starts, because their duration does not depend on the load. A request is not in flight,
// and its time is not measured, while it waits for the client to send the body or read the response, or in a delay queue:
// the upstream does no work for it, and slow clients must not use up the limit. Adaptive limits keep their state by name
// when the set changes.
//
// [Shedder.Run] also sheds requests under CPU pressure of the process.
type Shedder struct{ s *admission.Shedder }

// NewShedder returns a Shedder. The function set is called once per request and may return another set at any time. It
// panics if the function is nil.
func NewShedder(set func() *rules.Set) *Shedder {
	if set == nil {
		panic("httplimit: NewShedder: nil set: pass a function that returns it, such as func() *rules.Set { return set }")
	}
	return &Shedder{admission.NewShedder(set)}
}

// OnShed sets the function that is called for each shed request, before the response is written, with the name of the
// adaptive limit. It must be called before the first request.
func (s *Shedder) OnShed(f func(r *http.Request, limit string)) { s.s.OnShed(f) }

// Run measures the CPU pressure of the process until ctx is done. While goroutines wait too long for a processor,
// adaptive limits shed low priorities, then normal, then high ones. Without Run they protect only the upstream.
func (s *Shedder) Run(ctx context.Context) { s.s.Run(ctx) }

// Middleware returns a handler that sheds requests before they reach next.
func (s *Shedder) Middleware(next http.Handler) http.Handler { return s.s.Middleware(next) }

// MeasureUpstream returns a handler that starts the latency measurement when a request reaches next. Use it around the
// upstream if other handlers between Middleware and the upstream delay requests or respond themselves, which is unrelated
// to overload. It must be called before the first request. Response writers of middleware in between must have an Unwrap
// method.
func (s *Shedder) MeasureUpstream(next http.Handler) http.Handler { return s.s.MeasureUpstream(next) }

// AdaptiveLimitState is the current state of an adaptive limit.
type AdaptiveLimitState struct {
	Name     string
	Limit    int // maximum number of requests in flight
	InFlight int
	// ShedByUpstream counts requests shed because of the upstream, ShedByProcess those shed because of CPU pressure, by
	// priority: ShedByUpstream[rules.PriorityHigh-rules.PriorityLow]. In shadow mode they are counted but served.
	ShedByUpstream, ShedByProcess [4]int64
}

// AdaptiveLimits returns the states of the adaptive limits of the current set, in its order.
func (s *Shedder) AdaptiveLimits() []AdaptiveLimitState {
	var all []AdaptiveLimitState
	for _, g := range s.s.AdaptiveLimits() {
		all = append(all, AdaptiveLimitState(g))
	}
	return all
}

// Pressure returns the CPU pressure of the process: 0 is none, at 1 only requests of priority critical are served.
func (s *Shedder) Pressure() float64 { return s.s.Pressure() }
