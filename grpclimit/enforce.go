package grpclimit

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluiceproject/sluice"
)

// enforcer is the common part of the interceptors and the tap handle.
type enforcer struct {
	options
	limiter *sluice.Limiter
	rules   []*sluice.Rule
	key     KeyFunc
	tap     bool      // must not block
	flight  bool      // a rule has a concurrency limit
	scratch sync.Pool // *scratch, for calls that need Decide
}

type scratch struct {
	takes []sluice.Take
	out   []sluice.Decision
}

// newEnforcer panics if its arguments are invalid.
func newEnforcer(limiter *sluice.Limiter, key KeyFunc, opts []Option) *enforcer {
	if limiter == nil || len(limiter.Rules()) == 0 {
		panic("grpclimit: limiter is nil or has no rules: use sluice.New or sluice.NewWithRules")
	}
	if key == nil {
		panic("grpclimit: nil key: use ByPeer() or another KeyFunc")
	}
	g := &enforcer{limiter: limiter, rules: limiter.Rules(), key: key}
	for _, o := range opts {
		o(&g.options)
	}
	for _, r := range g.rules {
		g.flight = g.flight || r.Limit.Algorithm == sluice.Concurrency
	}
	if g.flight && g.perMessage {
		panic("grpclimit: PerMessage is not supported with a Concurrency limit: use two limiters")
	}
	n := len(g.rules)
	if g.limitFor != nil && n > 1 {
		panic("grpclimit: LimitFor requires a limiter with exactly one rule")
	}
	g.scratch.New = func() any { return &scratch{make([]sluice.Take, n), make([]sluice.Decision, n)} }
	return g
}

func (g *enforcer) skips(fullMethod string) bool { return g.skip != nil && g.skip(fullMethod) }

// keyOf returns the key of a call, or the error that ends it.
func (g *enforcer) keyOf(ctx context.Context, fullMethod string) (string, *callError) {
	key, err := g.key(ctx, fullMethod)
	if err == nil {
		return key, nil
	}
	if st, ok := status.FromError(err); ok && st.Code() != codes.OK {
		return "", &callError{status: st}
	}
	return "", failed(ctx)
}

// charge is the charge of a call or a message.
type charge struct {
	sluice.Decision // the most restrictive decision, with the longest Delay of all

	free        bool                // the cost is 0, so that the limiter was not called
	rule        *sluice.Rule        // rule of the decision
	denied      []violation         // decisions of the rules that denied
	reservation *sluice.Reservation // to refund, if it was reserved
	takes       []sluice.Take       // to refund, if it was decided by Decide
	permit      *sluice.Permit      // held until the call ends
}

type violation struct {
	rule *sluice.Rule
	sluice.Decision
}

// admit charges a call or a message and, if it is allowed, blocks for its delay. The charge is refundable only if keep is
// set.
func (g *enforcer) admit(ctx context.Context, fullMethod, key string, req any, keep bool) (charge, *callError) {
	cost := int64(1)
	if g.cost != nil {
		cost = g.cost(ctx, fullMethod, req)
	}
	switch {
	case cost == 0:
		return charge{free: true}, nil
	case cost < 0:
		return charge{}, failed(ctx)
	}
	c, err := g.take(ctx, fullMethod, key, cost, keep)
	switch {
	case err != nil:
		return charge{}, failed(ctx)
	case !c.Allowed:
		return charge{}, g.refuse(&c, cost)
	case c.Delay == 0:
		return c, nil
	case g.tap:
		g.refund(ctx, &c)
		c.Allowed, c.RetryAfter = false, c.Delay
		c.denied = []violation{{c.rule, c.Decision}}
		return charge{}, g.refuse(&c, cost)
	}
	refused := g.wait(ctx, &c)
	if refused != nil {
		c.permit.Release(ctx)
	}
	return c, refused
}

// take calls the cheapest sufficient method of the limiter. Decide ignores WithLimitFor, which a limiter with one rule may
// have; AllowN and Reserve support it.
func (g *enforcer) take(ctx context.Context, fullMethod, key string, cost int64, keep bool) (charge, error) {
	if len(g.rules) > 1 || g.limitFor != nil || g.flight {
		return g.decide(ctx, fullMethod, key, cost, keep)
	}
	c := charge{rule: g.rules[0]}
	var err error
	if keep || c.rule.Limit.Algorithm == sluice.LeakyQueue {
		if c.reservation, err = g.limiter.Reserve(ctx, key, cost); err == nil {
			c.Decision = c.reservation.Decision
		}
	} else {
		c.Decision, err = g.limiter.AllowN(ctx, key, cost)
	}
	if err == nil && !c.Allowed {
		c.denied = []violation{{c.rule, c.Decision}}
	}
	return c, err
}

func (g *enforcer) decide(ctx context.Context, fullMethod, key string, cost int64, keep bool) (c charge, err error) {
	s := g.scratch.Get().(*scratch)
	defer func() {
		clear(s.takes) // releases the key
		g.scratch.Put(s)
	}()
	if g.limitFor != nil {
		s.takes[0] = sluice.Take{Rule: g.rules[0], Limit: g.limitFor(ctx, fullMethod, key), Key: key, Cost: cost}
	} else {
		s.takes = g.limiter.Takes(ctx, s.takes[:0], key, cost)
	}
	for i := range s.takes {
		s.takes[i].Settles = keep
	}
	if err := g.decideTakes(ctx, s, &c); err != nil {
		return c, err
	}
	tightest := sluice.MostRestrictive(s.out)
	c.Decision, c.rule = s.out[tightest], g.rules[tightest]
	for i := range s.out {
		c.Delay = max(c.Delay, s.out[i].Delay)
		if !s.out[i].Allowed {
			c.denied = append(c.denied, violation{g.rules[i], s.out[i]})
		}
	}
	if c.Allowed && c.reservation == nil && (keep || c.Delay > 0) {
		c.takes = refundTakes(s.takes, s.out)
	}
	return c, nil
}

// permitRetryAfter is the maximum RetryAfter of a denial by a concurrency limit, because it is unknown when a call in flight
// ends.
const permitRetryAfter = time.Second

// decideTakes decides the takes. It acquires one permit of each concurrency limit, whatever the cost of the call.
func (g *enforcer) decideTakes(ctx context.Context, s *scratch, c *charge) error {
	flight := false
	for i := range s.takes {
		if s.takes[i].EffectiveLimit().Algorithm == sluice.Concurrency {
			s.takes[i].Cost, s.takes[i].Settles, flight = 1, false, true
		}
	}
	if !flight {
		_, err := g.limiter.Decide(ctx, s.takes, s.out)
		return err
	}
	if g.tap { // a limit of LimitFor; newEnforcer has checked the rules
		return fmt.Errorf("%w: Concurrency limit is not supported by TapHandle, which does not see when a call ends", sluice.ErrInvalid)
	}
	var err error
	if c.reservation, err = g.limiter.ReserveTakes(ctx, s.takes); err != nil {
		return err
	}
	c.permit = c.reservation.Permit()
	copy(s.out, c.reservation.Decisions())
	for i := range s.out {
		if d := &s.out[i]; s.takes[i].EffectiveLimit().Algorithm == sluice.Concurrency {
			d.RetryAfter, d.ResetAfter = min(d.RetryAfter, permitRetryAfter), min(d.ResetAfter, permitRetryAfter)
		}
	}
	return nil
}

// refundTakes returns the takes that refund the charges.
func refundTakes(takes []sluice.Take, out []sluice.Decision) []sluice.Take {
	back := make([]sluice.Take, 0, len(takes))
	for i := range takes {
		if t, ok := takes[i].Settlement(&out[i], 0); ok {
			back = append(back, t)
		}
	}
	return back
}

// refundTimeout bounds the time that a refund delays a reply.
const refundTimeout = time.Second

// refund refunds a charge. It ignores the cancellation of ctx, because the call may have ended. If the store is unavailable,
// the limiter sends the refund on recovery.
func (g *enforcer) refund(ctx context.Context, c *charge) {
	if c.reservation == nil && len(c.takes) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refundTimeout)
	defer cancel()
	if c.reservation != nil {
		_ = c.reservation.Cancel(ctx)
		return
	}
	_ = g.limiter.Settle(ctx, c.takes)
}

// wait blocks for the delay of a call. If the deadline is earlier, or ctx is done first, it refunds the charge.
func (g *enforcer) wait(ctx context.Context, c *charge) *callError {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < c.Delay {
		g.refund(ctx, c)
		return &callError{status: status.New(codes.DeadlineExceeded, "the delay by the rate limit exceeds the deadline")}
	}
	timer := time.NewTimer(c.Delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		g.refund(ctx, c)
		return failed(ctx)
	}
}

// settle refunds the call if its status code is not charged.
func (g *enforcer) settle(ctx context.Context, c *charge, err error) {
	if g.chargeIf == nil || c.free || g.chargeIf(codeOf(err)) {
		return
	}
	g.refund(ctx, c)
}

// codeOf returns the code that the client gets for a handler's error.
func codeOf(err error) codes.Code {
	if st, ok := status.FromError(err); ok {
		return st.Code()
	}
	return status.FromContextError(err).Code()
}
