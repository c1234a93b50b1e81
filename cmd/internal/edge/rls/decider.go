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

// Options are how a [Decider] answers. With the zero Options only rules set limits, and every client may ask about every domain.
type Options struct {
	// Overrides takes limits that requests bring, and NegativeHits lets them give back what was spent. Who may send either
	// sets limits, so both are refused unless asked for.
	Overrides    bool
	NegativeHits bool

	Shadow bool // the overall code is always OK; statuses say what it would have been
	Quota  bool // all limits are as if of quota_mode

	Headers  HeaderNames // empty: none are sent
	Metadata bool        // dynamic metadata is sent

	// Clients says by a name in a client's certificate which domains it may ask about. Nil: all clients all of them.
	Clients Clients
}

// Decider is a [Service] that decides by the rules of a set and a limiter.
//
// The descriptors of a request are decided together: if one is over its limit, none is charged, unless the rules charge
// what is denied. Descriptors in quota mode, of which one with room is enough, are the exception; see decideIndependent.
//
// A descriptor of no hits asks whether one more would have room. So it says OVER_LIMIT when nothing remains.
type Decider struct {
	limiter *sluice.Limiter
	rules   func() *rules.Set
	options Options
	scratch sync.Pool // of *answering
	silents atomic.Pointer[silents]
}

// NewDecider returns a service. It asks for the rules once a request; a nil set answers Unavailable.
func NewDecider(limiter *sluice.Limiter, rules func() *rules.Set, o Options) *Decider {
	return &Decider{limiter: limiter, rules: rules, options: o, scratch: sync.Pool{New: func() any { return new(answering) }}}
}

// Decided is what became of the descriptors of a request. It is reused: what it holds is good until the next use. The
// zero Decided works.
type Decided struct {
	Matched   rules.DescriptorMatches
	Decisions []sluice.Decision // of Matched.Takes
	Settles   bool              // set by the caller: what is charged will be settled
	OverLimit bool              // the request is denied
}

// decision is the memory of one decision.
type decision struct {
	*Decided
	set         *rules.Set
	descriptors []rules.Descriptor
	peeks       bool // some descriptor only asks
	refunds     bool // some descriptor gives back
}

// answering is the memory of one answer.
type answering struct {
	decided     Decided
	descriptors []rules.Descriptor
}

// ShouldRateLimit answers a request.
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
	clear(a.descriptors) // their strings are the call's
	d.scratch.Put(a)
	return err
}

// rpcError is an error of the limiter as one of gRPC. A store that cannot answer is none: the rules' fail modes answer.
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

// Decide decides descriptors by a set of rules, as [Decider.ShouldRateLimit] does. It does not ask who the client is.
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

// read says what the request's descriptors cost.
func (d *Decider) read(req *Request, a *answering) error {
	a.descriptors = a.descriptors[:0]
	for i := range req.Descriptors {
		from := &req.Descriptors[i]
		to := rules.Descriptor{Entries: from.Entries, Cost: from.cost(req.HitsAddend)}
		if from.Negative {
			if !d.options.NegativeHits {
				return status.Errorf(codes.PermissionDenied, "descriptor %d gives hits back, which is switched off here: "+
					"set is_negative_hits to false, or have the operator set negative_hits: true", i+1)
			}
			to.Cost = -to.Cost
		}
		if from.HasOverride {
			if !d.options.Overrides {
				return status.Errorf(codes.PermissionDenied, "descriptor %d brings a limit, which is switched off here: "+
					"leave limit out, or have the operator set overrides: true", i+1)
			}
			to.Limit = from.Override.limit()
		}
		a.descriptors = append(a.descriptors, to)
	}
	return nil
}

// cost is what the descriptor takes: its own hits, else the request's, else 1. More than a take can be saturates.
func (d *Descriptor) cost(request uint32) int64 {
	if d.HasHits {
		return int64(min(d.Hits, sluice.MaxCost))
	}
	return max(1, int64(request))
}

// limit is the override as a limit, or nil if it makes no sense, such as one of an unknown unit.
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

// decide has the limiter decide about all takes.
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

// independent reports whether there are descriptors in quota mode of which one may be over its limit while the request
// goes on: there is more than one of them.
func (d *Decider) independent(s *decision) bool {
	n := 0
	for i := range s.Matched.Matches {
		if d.quota(&s.Matched.Matches[i]) {
			n++
		}
	}
	return n > 1
}

// Overall says by the decisions whether a request is denied: a descriptor is over its limit, or all of those are of which
// one with room is enough.
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

// fits reports whether a descriptor has room in all of its limits.
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

// quota reports whether one descriptor of its kind with room is enough.
func (d *Decider) quota(m *rules.DescriptorMatch) bool {
	switch {
	case counts(m):
		return d.options.Quota || m.Limit.Quota
	case m.Limit != nil && m.Limit.Unlimited:
		return false
	}
	return d.options.Quota // it passes, and that is enough for the others
}
