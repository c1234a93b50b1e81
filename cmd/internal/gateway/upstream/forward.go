package upstream

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"
)

// ServeHTTP forwards a request. It panics with http.ErrAbortHandler when an answer that has begun cannot be completed.
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

// attempt has one server answer. It returns nil if the answer has been handed on, or begun to be.
func (g *Group) attempt(rt *roundTrip, s *server) *failure {
	s.inFlight.Add(1)
	defer s.inFlight.Add(-1)
	s.requests.Add(1)
	rt.beginAttempt()
	defer rt.endAttempt() // on every way out
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

// clientClosed reports whether the caller has closed its connection, as opposed to having run out of time.
func clientClosed(ctx context.Context) bool {
	return ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded)
}

// next is what is done after a failure.
type next uint8

const (
	giveUp      next = iota
	dialAnother      // nothing was sent, so another server is no retry
	retry
)

// nexts says what is done after a failure, as long as there is a server, a try or a retry left for it.
var nexts = [failKinds]next{
	failDial:        dialAnother,
	failTimeout:     giveUp,
	failBroken:      giveUp,
	failRepeatable:  retry,
	failRequestBody: giveUp,
	failRequest:     giveUp,
}

// dialTries is how many other servers are tried when connections cannot be made.
const dialTries = 3

// tries are the servers that have failed a request.
type tries struct {
	group          *Group
	tried          []*server
	dials, retries int
}

// again reports whether a request goes to another server after one has failed it.
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

// A retryBudget keeps retries few: a fifth of the requests, and ten at once. When everything fails, retries would only be
// more of what fails.
type retryBudget struct{ tokens atomic.Int64 } // in retryCost-ths of a retry

const (
	retryCost      = 5 // requests that pay for one retry
	maxRetryTokens = 10 * retryCost
)

func (b *retryBudget) fill() { b.tokens.Store(maxRetryTokens) }

// onRequest is called for every request, and adds a token.
func (b *retryBudget) onRequest() {
	// A full budget is the rule, and reading it holds up no other request. That two may pass the check at once does no harm: spend
	// brings it back.
	if b.tokens.Load() < maxRetryTokens {
		b.tokens.Add(1)
	}
}

// spend takes a retry, if there is one.
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

// A resend is the one time that a request is sent again without being a retry: if a connection that had been waiting unused
// ends without a byte, and soon, because the server may have closed it while the request was on its way.
type resend struct{ used bool }

// resendWithin is how long a connection that the server had closed can take to end: a round trip, and some.
const resendWithin = time.Second

// may reports whether a request that was sent at a time may be sent again, and uses it up.
func (s *resend) may(sent time.Time) bool {
	if s.used || time.Since(sent) > resendWithin {
		return false
	}
	s.used = true
	return true
}
