package rls

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/rules"
)

// Options configure a [Decider]. With the zero Options only rules set limits, and every client is authorized for every domain.
type Options struct {
	// Overrides accepts limits in requests, and NegativeHits accepts refunds. Both are rejected by default, because they let
	// any client change limits.
	Overrides    bool
	NegativeHits bool

	Shadow bool // the overall code is always OK; the statuses have the codes of the descriptors
	Quota  bool // all limits are in quota mode

	Headers  HeaderNames // if empty, none are sent
	Metadata bool        // dynamic metadata is sent

	// Clients are the authorized domains by name in the client certificate. Nil means that all clients are authorized for all.
	Clients Clients
}

// Decider is a [Service] that decides with a rule set and a limiter.
//
// The descriptors of a request are decided together: if one is over its limit, none is charged, except by rules with
// ChargeDenied. Descriptors in quota mode are the exception: one within its limit is enough; see decideIndependent.
//
// A descriptor with 0 hits is a peek for a cost of 1: it gets OVER_LIMIT when nothing remains.
type Decider struct {
	limiter *sluice.Limiter
	rules   func() *rules.Set
	options Options
	scratch sync.Pool // of *answering
	silents atomic.Pointer[silents]
}

// NewDecider returns a service. It calls rules once per request; if the set is nil, the call fails with Unavailable.
func NewDecider(limiter *sluice.Limiter, rules func() *rules.Set, o Options) *Decider {
	return &Decider{limiter: limiter, rules: rules, options: o, scratch: sync.Pool{New: func() any { return new(answering) }}}
}

// Decided is the result of deciding the descriptors of a request. It can be reused; its content is valid until the next use.
// The zero Decided is ready to use.
type Decided struct {
	Matched   rules.DescriptorMatches
	Decisions []sluice.Decision // of Matched.Takes
	Settles   bool              // set by the caller if the charges will be settled
	OverLimit bool              // the request is denied
}

// decision is the state of one decision.
type decision struct {
	*Decided
	set         *rules.Set
	descriptors []rules.Descriptor
	peeks       bool // a descriptor has cost 0
	refunds     bool // a descriptor has a negative cost
}

// answering is the reusable state of one call.
type answering struct {
	decided     Decided
	descriptors []rules.Descriptor
}

// ShouldRateLimit implements [Service].
func (d *Decider) ShouldRateLimit(ctx context.Context, req *Request, resp *Response) error {
	switch {
	case req.Domain == "":
		return status.Error(codes.InvalidArgument, "rate limit domain must not be empty")
	case len(req.Descriptors) == 0:
		return status.Error(codes.InvalidArgument, "rate limit descriptor list must not be empty")
	}
	if d.options.Clients != nil {
		if err := d.options.Clients.check(ctx, req.Domain); err != nil {
			return err
		}
	}
	set := d.rules()
	if set == nil {
		return status.Error(codes.Unavailable, "no rate limit configuration loaded")
	}
	a := d.scratch.Get().(*answering)
	err := d.read(req, a)
	if err == nil {
		err = rpcError(d.Decide(ctx, set, req.Domain, a.descriptors, &a.decided))
	}
	if err == nil {
		d.answer(a, req, resp)
	}
	clear(a.descriptors) // their strings point into the buffer of the call
	d.scratch.Put(a)
	return err
}

// rpcError converts an error of the limiter to a gRPC status. An unavailable store is not an error: fail modes decide.
func rpcError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	case errors.Is(err, sluice.ErrInvalid):
		return status.Error(codes.Internal, err.Error())
	}
	return status.Error(codes.Unavailable, err.Error())
}

// Decide decides descriptors with a rule set, as [Decider.ShouldRateLimit] does, without authorizing the client.
func (d *Decider) Decide(
	ctx context.Context, set *rules.Set, domain string, descriptors []rules.Descriptor, to *Decided,
) error {
	s := decision{Decided: to, set: set, descriptors: descriptors}
	for i := range descriptors {
		s.peeks = s.peeks || descriptors[i].Cost == 0
		s.refunds = s.refunds || descriptors[i].Cost < 0
	}
	set.MatchDescriptors(domain, descriptors, &to.Matched)
	for i := range to.Matched.Takes {
		to.Matched.Takes[i].Settles = to.Settles
	}
	if err := d.decide(ctx, &s); err != nil {
		return err
	}
	d.Overall(descriptors, to)
	return nil
}

// read converts the descriptors of a request. It returns an error if they have a limit or negative hits and these are disabled.
func (d *Decider) read(req *Request, a *answering) error {
	a.descriptors = a.descriptors[:0]
	for i := range req.Descriptors {
		from := &req.Descriptors[i]
		to := rules.Descriptor{Entries: from.Entries, Cost: from.cost(req.HitsAddend)}
		if from.Negative {
			if !d.options.NegativeHits {
				return status.Errorf(codes.PermissionDenied, "descriptor %d has negative hits, which are disabled: "+
					"set is_negative_hits to false, or have the operator set rls.accept_negative_hits: true", i+1)
			}
			to.Cost = -to.Cost
		}
		if from.HasOverride {
			if !d.options.Overrides {
				return status.Errorf(codes.PermissionDenied, "descriptor %d has a limit, and limits in requests are disabled: "+
					"leave limit out, or have the operator set rls.accept_limit_overrides: true", i+1)
			}
			to.Limit = from.Override.limit()
		}
		a.descriptors = append(a.descriptors, to)
	}
	return nil
}

// cost returns the hits of the descriptor, else those of the request, else 1, at most sluice.MaxCost.
func (d *Descriptor) cost(request uint32) int64 {
	if d.HasHits {
		return int64(min(d.Hits, sluice.MaxCost))
	}
	return max(1, int64(request))
}

// limit converts the override to a limit. It returns nil if the override is invalid, for example with an unknown unit.
func (o *Override) limit() *sluice.Limit {
	window := time.Duration(o.Unit.Seconds()) * time.Second
	if o.Multiplier > 1 {
		if int64(o.Multiplier) > int64(math.MaxInt64)/max(1, int64(window)) {
			return nil
		}
		window *= time.Duration(o.Multiplier)
	}
	limit, err := sluice.Per(int64(o.RequestsPerUnit), window).WithAlgorithm(sluice.FixedWindow).Build()
	if err != nil {
		return nil
	}
	return limit
}

// decide decides all takes.
func (d *Decider) decide(ctx context.Context, s *decision) error {
	takes := s.Matched.Takes
	if cap(s.Decisions) < len(takes) {
		s.Decisions = make([]sluice.Decision, len(takes))
	}
	s.Decisions = s.Decisions[:len(takes)]
	switch {
	case len(takes) == 0:
		return nil
	case s.refunds || s.peeks && len(takes) > 1 || d.options.Shadow || d.independent(s):
		return d.decideIndependent(ctx, s)
	}
	_, err := d.limiter.Decide(ctx, takes, s.Decisions)
	return err
}

// independent reports whether more than one descriptor is in quota mode, so that one can be over its limit while the request
// is allowed.
func (d *Decider) independent(s *decision) bool {
	n := 0
	for i := range s.Matched.Matches {
		if d.quota(&s.Matched.Matches[i]) {
			n++
		}
	}
	return n > 1
}

// Overall sets to.OverLimit from the decisions: a request is denied if a descriptor is over its limit, or if all descriptors
// in quota mode are.
func (d *Decider) Overall(descriptors []rules.Descriptor, to *Decided) {
	over, quotas, quotasOver := false, 0, 0
	for i := range to.Matched.Matches {
		exceeded := descriptors[i].Cost >= 0 && !to.fits(i)
		if d.quota(&to.Matched.Matches[i]) {
			quotas++
			if exceeded {
				quotasOver++
			}
		} else {
			over = over || exceeded
		}
	}
	to.OverLimit = (over || quotas > 0 && quotas == quotasOver) && !d.options.Shadow
}

// fits reports whether all limits of a descriptor allow it.
func (s *Decided) fits(i int) bool {
	m := &s.Matched.Matches[i]
	for j := m.First; j < m.First+m.N; j++ {
		if !s.Decisions[j].Allowed {
			return false
		}
	}
	return true
}

// counts reports whether the descriptor has a limit that is counted.
func counts(m *rules.DescriptorMatch) bool {
	return m.Limit != nil && !m.Limit.Unlimited && !m.Replaced
}

// quota reports whether the descriptor is in quota mode: one such descriptor within its limit is enough.
func (d *Decider) quota(m *rules.DescriptorMatch) bool {
	switch {
	case counts(m):
		return d.options.Quota || m.Limit.Quota
	case m.Limit != nil && m.Limit.Unlimited:
		return false
	}
	return d.options.Quota // it has no limit, so it allows the others in quota mode
}
