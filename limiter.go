package sluice

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/permit"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/internal/remote"
)

// Limiter applies rules to keys and keeps their state in a store. It is safe for concurrent use.
//
// A limiter from [New] has one rule, a limiter from [NewWithRules] may have several. Allow and similar methods apply
// all of them to the key, all or nothing. [Limiter.Decide] applies any rules to any keys.
//
// The methods of a nil Limiter return an error that wraps [ErrInvalid]; methods without an error result do nothing.
type Limiter struct {
	rules     []*Rule
	opts      options
	store     Store          // as passed to New
	engine    *remote.Engine // between the limiter and its store
	fast      private.Fast   // fast path of the store, or nil
	permits   permit.Renewal
	suspended atomic.Pointer[suspended]
	scratch   sync.Pool // of *decideBuffers
}

// options are the settings of a limiter.
type options struct {
	events          Events
	limitFor        func(ctx context.Context, key string) *Limit
	timeout         time.Duration
	instances       func() int
	noExtrapolation bool        // set by tests only
	fastRule        *group.Rule // the limiter's only rule, if the fast path of the store can decide it
}

// Option configures a [Limiter].
type Option func(*options)

// WithLimitFor sets a function that chooses the limit for a key at call time, for example by plan or tenant. f returns
// a limit created by [Limit.Build], or nil for the rule's own limit. It is called concurrently. The limiter must have
// exactly one rule.
func WithLimitFor(f func(ctx context.Context, key string) *Limit) Option {
	return func(o *options) { o.limitFor = f }
}

// New returns a limiter with one rule of the given name and limit, with [AccuracyExact] and [FailLocal].
func New(store Store, name string, limit Limit, opts ...Option) (*Limiter, error) {
	rule, err := NewRule(Rule{Name: name, Limit: limit})
	if err != nil {
		return nil, err
	}
	return NewWithRules(store, []*Rule{rule}, opts...)
}

// NewWithRules returns a limiter that applies all rules to each key, such as 10 per second and 1,000 per day. The rules
// must be created by [NewRule] and have different names. A limiter without rules supports only methods that take rules
// or buckets, such as [Limiter.Decide].
func NewWithRules(store Store, rules []*Rule, opts ...Option) (*Limiter, error) {
	if store == nil {
		return nil, fmt.Errorf("%w: new limiter: store is nil: use memstore.New()", ErrInvalid)
	}
	if v := reflect.ValueOf(store); v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("%w: new limiter: store is a nil %T: check the error of the function that opened it", ErrInvalid, store)
	}
	names := make(map[string]bool, len(rules))
	for i, r := range rules {
		if r == nil || r.Limit.params == nil {
			return nil, fmt.Errorf("%w: new limiter: rule %d was not created by NewRule", ErrInvalid, i)
		}
		if names[r.Name] {
			return nil, fmt.Errorf("%w: new limiter: two rules are named %q and would share buckets: use different names", ErrInvalid, r.Name)
		}
		names[r.Name] = true
	}
	l := &Limiter{store: store, rules: rules}
	for _, o := range opts {
		if o != nil {
			o(&l.opts)
		}
	}
	if l.opts.limitFor != nil && len(rules) != 1 {
		return nil, fmt.Errorf("%w: new limiter: WithLimitFor needs exactly one rule, not %d", ErrInvalid, len(rules))
	}
	l.engine = remote.New(remote.Config{
		Store: newAdapter(store), Timeout: l.opts.timeout, Instances: l.opts.instances, Events: l.opts.events.ofEngine(),
		NoExtrapolation: l.opts.noExtrapolation,
	})
	l.permits.Init(l.engine, l.engine.IsRemote())
	l.fast = private.FastOf(store)
	if l.fast != nil && len(rules) == 1 && !rules[0].Shadow && !rules[0].ChargeDenied {
		l.opts.fastRule = rules[0].inIntegers()
	}
	l.scratch.New = l.newBuffers
	return l, nil
}

// Close stops the limiter's background work and waits for it to end. It returns leases to the store, reports unreported
// usage, including usage admitted while the store was unavailable, and sends pending settlements. Permits are no longer
// renewed and expire after their TTL unless they are released. Decisions after Close call the store. Close does not
// close the store.
func (l *Limiter) Close(ctx context.Context) error {
	if l.validate() != nil {
		return nil
	}
	l.permits.Close()
	return l.engine.Close(ctx)
}

// Rules returns the limiter's rules. The caller must not change the slice.
func (l *Limiter) Rules() []*Rule {
	if l == nil {
		return nil
	}
	return l.rules
}

// limitForKey returns the limit that [WithLimitFor] chooses for key, or nil for the rule's own limit.
func (l *Limiter) limitForKey(ctx context.Context, key string) *Limit {
	if l == nil || l.opts.limitFor == nil {
		return nil
	}
	return l.opts.limitFor(ctx, key)
}

// Allow decides a take of cost 1 for key and charges it if it is allowed. Allow acquires a permit of a [Concurrency]
// limit but does not renew it, so that it expires after its TTL; use [Limiter.Acquire] instead.
func (l *Limiter) Allow(ctx context.Context, key string) (d Decision, err error) {
	err = l.allow(ctx, key, 1, &d)
	return d, err
}

// AllowN decides a take of cost n for key and charges all of it or nothing; n must be at least 1. With several rules it
// returns the most restrictive decision; see [MostRestrictive].
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (d Decision, err error) {
	err = l.allow(ctx, key, n, &d)
	return d, err
}

// allow writes the decision to d instead of returning it. Returned through two calls it would be copied twice, which
// costs as much as making it.
func (l *Limiter) allow(ctx context.Context, key string, n int64, d *Decision) error {
	if l == nil || l.opts.fastRule == nil || n <= 0 || l.suspended.Load() != nil {
		return l.allowGeneral(ctx, key, n, d)
	}
	limit := &l.rules[0].Limit
	if l.opts.limitFor != nil {
		if chosen := l.opts.limitFor(ctx, key); chosen != nil {
			limit = chosen
		}
		if limit.params == nil {
			return l.allowSlow(ctx, limit, key, n, nil, d)
		}
	}
	// Most takes are allowed. The fields that are known for an allowed take are written here, because writes
	// immediately before the caller reads the decision would stall those reads.
	d.Allowed = true
	d.Limit = limit.params.Limit()
	d.Granted = n
	d.Rule = l.rules[0]
	p, err := l.fast.TakeFast(ctx, l.opts.fastRule, limit.params, key, n)
	if p.At == 0 || err != nil {
		*d = Decision{}
		return l.allowSlow(ctx, limit, key, n, err, d)
	}
	if p.RetryAfter > 0 {
		d.Allowed = false
		d.Granted = 0
	}
	d.Remaining = p.Remaining
	d.Receipt = p.At
	d.RetryAfter = p.RetryAfter
	d.ResetAfter = p.ResetAfter
	if l.opts.events.ofDecisions() {
		l.reportFast(ctx, limit, key, n, d)
	}
	return nil
}

func (l *Limiter) reportFast(ctx context.Context, limit *Limit, key string, n int64, d *Decision) {
	l.opts.events.report(ctx, Take{Rule: l.rules[0], Limit: limit, Key: key, Cost: n}, *d)
}

func (l *Limiter) allowGeneral(ctx context.Context, key string, n int64, d *Decision) (err error) {
	if n <= 0 {
		return fmt.Errorf("%w: cost %d: use at least 1, or Peek", ErrInvalid, n)
	}
	if err := l.validate(); err != nil {
		return err
	}
	if l.allowFast(ctx, key, n, d) {
		return nil
	}
	if l.opts.limitFor != nil || len(l.rules) == 0 {
		*d, err = l.take(ctx, Take{Key: key, Cost: n})
		return err
	}
	if len(l.rules) > 1 && l.engine.IsRemote() && n <= MaxCost && l.suspended.Load() == nil {
		return l.allowOwn(ctx, key, n, d)
	}
	// Like take, but unset fields are known to be zero and nothing is copied twice.
	s := l.scratch.Get().(*decideBuffers)
	for i := range s.takes {
		s.takes[i].Key, s.takes[i].Cost = key, n
	}
	if _, err = l.Decide(ctx, s.takes, s.out); err == nil {
		*d = s.out[MostRestrictive(s.out)]
	}
	for i := range s.takes {
		s.takes[i].Key = "" // so that the pool does not retain it
	}
	l.scratch.Put(s)
	return err
}

// allowOwn is a fast path for limiters with several rules on a RemoteStore, which skips the conversion of takes.
func (l *Limiter) allowOwn(ctx context.Context, key string, n int64, d *Decision) error {
	s := l.scratch.Get().(*decideBuffers)
	for i := range s.own {
		s.own[i].Key, s.own[i].Request.Cost = key, n
	}
	err := l.engine.Apply(ctx, s.own, s.answers[:len(s.own)])
	if err == nil {
		inWords(s.answers[:len(s.own)], s.out)
		allowShadowed(s.takes, s.out)
		*d = s.out[MostRestrictive(s.out)]
		if l.opts.events.ofDecisions() {
			for i := range s.takes {
				l.opts.events.report(ctx, Take{Rule: s.takes[i].Rule, Key: key, Cost: n}, s.out[i])
			}
		}
	}
	for i := range s.own {
		s.own[i].Key = "" // so that the pool does not retain it
	}
	l.scratch.Put(s)
	return err
}

// allowFast is a fast path for limiters with one rule that is decided from leases or estimates. It reports whether it
// decided.
func (l *Limiter) allowFast(ctx context.Context, key string, n int64, d *Decision) bool {
	if len(l.rules) != 1 || l.rules[0].Accuracy == AccuracyExact || l.rules[0].Shadow || l.opts.limitFor != nil ||
		!l.engine.IsRemote() || l.suspended.Load() != nil {
		return false
	}
	rule := l.rules[0]
	a, ok := l.engine.TakeFast(ctx, rule.inIntegers(), rule.Limit.params, key, n)
	if !ok {
		return false
	}
	d.Source = SourceLease
	if rule.Accuracy == AccuracyEventual {
		d.Source = SourceEventual
	}
	d.Limit, d.Remaining, d.Receipt, d.RetryAfter, d.ResetAfter = rule.Limit.params.Limit(), a.Remaining, a.At, a.RetryAfter, a.ResetAfter
	d.Rule = rule
	if a.RetryAfter == 0 {
		d.Allowed, d.Granted = true, n
	}
	if l.opts.events.ofDecisions() {
		l.reportFast(ctx, nil, key, n, d)
	}
	return true
}

// allowSlow decides a take that the fast path could not decide, by the rule's fail mode if failed is not nil.
func (l *Limiter) allowSlow(ctx context.Context, limit *Limit, key string, n int64, failed error, d *Decision) (err error) {
	t := Take{Rule: l.rules[0], Limit: limit, Key: key, Cost: n}
	if failed != nil {
		*d, err = l.failOne(ctx, t, failed)
	} else {
		*d, err = l.take(ctx, t)
	}
	return err
}

// AllowUpTo decides a take for key and charges as much as the limit allows, from least to most. Granted is the charged
// amount. least must be at least 1, and the limiter must have exactly one rule.
func (l *Limiter) AllowUpTo(ctx context.Context, key string, least, most int64) (Decision, error) {
	if least <= 0 || most < least {
		return Decision{}, fmt.Errorf("%w: cost %d to %d: least must be at least 1 and at most most", ErrInvalid, least, most)
	}
	if err := l.validate(); err != nil {
		return Decision{}, err
	}
	if len(l.rules) > 1 {
		return Decision{}, fmt.Errorf("%w: AllowUpTo needs exactly one rule, not %d: each could grant a different amount", ErrInvalid, len(l.rules))
	}
	return l.take(ctx, Take{Key: key, Cost: most, MinGrant: least})
}

// Peek returns the state of key without charging it. Allowed reports whether a take of cost 1 would be allowed now.
func (l *Limiter) Peek(ctx context.Context, key string) (Decision, error) {
	if err := l.validate(); err != nil {
		return Decision{}, err
	}
	return l.take(ctx, Take{Key: key})
}

// take applies one take to all of the limiter's rules.
func (l *Limiter) take(ctx context.Context, t Take) (Decision, error) {
	if err := l.validateRules("Decide"); err != nil {
		return Decision{}, err
	}
	if l.opts.limitFor != nil && t.Limit == nil {
		t.Limit = l.opts.limitFor(ctx, t.Key)
	}
	s := l.scratch.Get().(*decideBuffers)
	for i := range s.takes {
		k := &s.takes[i]
		k.Limit, k.Key, k.Cost, k.MinGrant, k.MaxDelay, k.Receipt = t.Limit, t.Key, t.Cost, t.MinGrant, t.MaxDelay, t.Receipt
	}
	_, err := l.Decide(ctx, s.takes, s.out)
	var d Decision
	if err == nil {
		d = s.out[MostRestrictive(s.out)]
	}
	for i := range s.takes {
		s.takes[i] = Take{Rule: s.takes[i].Rule} // so that the pool does not retain the key, and the other fields are zero for allowGeneral
	}
	l.scratch.Put(s)
	return d, err
}
