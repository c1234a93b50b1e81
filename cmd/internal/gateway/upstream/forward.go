package upstream

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"
)

// ServeHTTP forwards a request. It panics with http.ErrAbortHandler if a response that has started cannot be completed.
func (g *Group) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g.cfg.Timeouts.Total > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), g.cfg.Timeouts.Total)
		defer cancel()
		r = r.WithContext(ctx)
	}
	g.retryBudget.onRequest()
	rt := &roundTrip{group: g, w: w, control: *http.NewResponseController(w), r: r}
	if r.ProtoMajor == 1 && r.ProtoMinor > 0 {
		rt.upgrade = upgradeOf(r.Header)
	}
	if rt.poolable = rt.upgrade == "" && usesPool(r); rt.poolable {
		if f := rt.readSmall(); f != nil {
			g.refuse(w, r, nil, f)
			return
		}
	}
	for t := (tries{group: g}); ; {
		s := g.pick(r, t.tried)
		f := g.attempt(rt, s)
		if f == nil {
			return
		}
		if r.Context().Err() != nil || !t.again(s, f) {
			rt.closeUnread()
			g.refuse(w, r, s, f)
			return
		}
	}
}

// attempt sends the request to one server. It returns nil if the response was sent to the caller, or its start was.
func (g *Group) attempt(rt *roundTrip, s *server) *failure {
	s.inFlight.Add(1)
	defer s.inFlight.Add(-1)
	s.requests.Add(1)
	rt.beginAttempt()
	defer rt.endAttempt()
	if g.cfg.OnServerChosen != nil {
		g.cfg.OnServerChosen(rt.r, s.name)
	}
	if f := rt.send(s); f != nil {
		if !clientClosed(rt.r.Context()) {
			g.failed(s, f)
		}
		return f
	}
	g.deliver(rt, s)
	return nil
}

// clientClosed reports whether the caller has closed its connection, and not a deadline has expired.
func clientClosed(ctx context.Context) bool {
	return ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded)
}

// next is the reaction to a failure.
type next uint8

const (
	giveUp      next = iota
	dialAnother      // nothing was sent, so that it does not count as a retry
	retry
)

// nexts is the reaction to each kind of failure, within the limits of servers, attempts and retries.
var nexts = [failKinds]next{
	failDial:        dialAnother,
	failTimeout:     giveUp,
	failBroken:      giveUp,
	failRepeatable:  retry,
	failRequestBody: giveUp,
	failRequest:     giveUp,
}

// dialTries is the maximum number of further servers after failed connections.
const dialTries = 3

// tries tracks the servers that have failed a request.
type tries struct {
	group          *Group
	tried          []*server
	dials, retries int
}

// again reports whether a request is sent to another server after a failure.
func (t *tries) again(s *server, f *failure) bool {
	g := t.group
	switch nexts[f.kind] {
	case giveUp:
		return false
	case dialAnother:
		if g.cfg.Retries <= 0 || len(t.tried)+1 >= len(g.servers) || t.dials >= dialTries {
			return false
		}
		t.dials++
	case retry:
		if t.retries >= g.cfg.Retries || !g.retryBudget.spend() {
			return false
		}
		t.retries++
	}
	s.retried.Add(1)
	t.tried = append(t.tried, s)
	return true
}

// A retryBudget bounds retries to 20 % of the requests, with a burst of 10. In an outage, unbounded retries would only add
// failing requests.
type retryBudget struct{ tokens atomic.Int64 } // in units of 1/retryCost of a retry

const (
	retryCost      = 5 // tokens per retry; every request adds one
	maxRetryTokens = 10 * retryCost
)

func (b *retryBudget) fill() { b.tokens.Store(maxRetryTokens) }

// onRequest is called for every request and adds a token.
func (b *retryBudget) onRequest() {
	// The budget is usually full, and reading it does not contend with other requests. Concurrent requests may exceed the
	// maximum slightly, which is harmless.
	if b.tokens.Load() < maxRetryTokens {
		b.tokens.Add(1)
	}
}

// spend reports whether the budget allows a retry, and takes it.
func (b *retryBudget) spend() bool {
	for {
		left := b.tokens.Load()
		if left < retryCost {
			return false
		}
		if b.tokens.CompareAndSwap(left, left-retryCost) {
			return true
		}
	}
}

// A resend allows one request to be sent again once without counting as a retry: if an idle connection ends soon after the
// request without a byte of a response, because the server may have closed it while the request was on its way.
type resend struct{ used bool }

// resendWithin is the maximum time until the end of a connection that the server has closed is noticed: a round trip plus a
// margin.
const resendWithin = time.Second

// may reports whether a request that was sent at the given time may be sent again, and if so marks the resend as used.
func (s *resend) may(sent time.Time) bool {
	if s.used || time.Since(sent) > resendWithin {
		return false
	}
	s.used = true
	return true
}
