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

// Limiter applies rules to keys through a store. It is safe for concurrent use.
//
// A limiter made with [New] has one rule and one made with [NewWithRules] may have several; Allow and its like apply all
// of them to the key, all or nothing. [Limiter.Decide] applies any rules to any keys.
//
// A nil Limiter decides nothing: its methods return an error that wraps [ErrInvalid], and those that return none do
// nothing.
type Limiter struct {
	rules     []*Rule
	opts      options
	store     Store          // as it was given
	engine    *remote.Engine // between the limiter and its store
	fast      private.Fast   // the store's shortcut; nil: it has none
	permits   permit.Renewal
	suspended atomic.Pointer[suspended]
	scratch   sync.Pool // of *decideBuffers
}

// options are what a limiter is built with.
type options struct {
	events          Events
	limitFor        func(ctx context.Context, key string) *Limit
	timeout         time.Duration
	instances       func() int
	noExtrapolation bool        // in tests
	fastRule        *group.Rule // the only one, if the store's shortcut can decide it
}

// Option changes how a limiter is built.
type Option func(*options)

// WithLimitFor chooses the limit by key at call time: a plan, a tenant's own numbers. The function returns a limit
// made by [Limit.Build], or nil for the rule's own. It is for limiters with one rule.
func WithLimitFor(f func(ctx context.Context, key string) *Limit) Option {
	return func(o *options) { o.limitFor = f }
}

// New returns a limiter with one rule of this name.
func New(store Store, name string, limit Limit, opts ...Option) (*Limiter, error) {
	rule, err := NewRule(Rule{Name: name, Limit: limit})
	if err != nil {
		return nil, err
	}
	return NewWithRules(store, []*Rule{rule}, opts...)
}

// NewWithRules returns a limiter that applies all the rules, which are from [NewRule], to each key: 10 a second and 1,000
// a day, say. With no rules it is good for Decide only.
func NewWithRules(store Store, rules []*Rule, opts ...Option) (*Limiter, error) {
	if store == nil {
		return nil, fmt.Errorf("%w: the store is nil: use memstore.New()", ErrInvalid)
	}
	if v := reflect.ValueOf(store); v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("%w: the store is a nil %T: check the error of the function that opened it", ErrInvalid, store)
	}
	names := make(map[string]bool, len(rules))
	for i, r := range rules {
		if r == nil || r.Limit.params == nil {
			return nil, fmt.Errorf("%w: rule %d was not made by NewRule", ErrInvalid, i)
		}
		if names[r.Name] {
			return nil, fmt.Errorf("%w: two rules are named %q and would share a bucket: give each its own name", ErrInvalid, r.Name)
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
		return nil, fmt.Errorf("%w: WithLimitFor needs a limiter with one rule, this one has %d", ErrInvalid, len(rules))
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

// Close gives back what the limiter has leased, reports what it has spent and not reported, also what it admitted while the
// store was unavailable, sends the settlements that it has kept, and ends and waits for what it does in the background. What
// is held of [Concurrency] limits is not renewed any more, and lapses unless it is released. Decisions after Close are asked
// of the store. The store is the caller's to close.
func (l *Limiter) Close(ctx context.Context) error {
	if l.validate() != nil {
		return nil
	}
	l.permits.Close()
	return l.engine.Close(ctx)
}

// Rules returns the limiter's rules, which must not be changed.
func (l *Limiter) Rules() []*Rule {
	if l == nil {
		return nil
	}
	return l.rules
}

// limitForKey returns the limit that [WithLimitFor] chooses for the key, or nil for the rule's own.
func (l *Limiter) limitForKey(ctx context.Context, key string) *Limit {
	if l == nil || l.opts.limitFor == nil {
		return nil
	}
	return l.opts.limitFor(ctx, key)
}

// Allow spends one on the key if there is room. A permit of a [Concurrency] limit that it takes is not renewed, and expires
// after its TTL: use [Limiter.Acquire] for those.
func (l *Limiter) Allow(ctx context.Context, key string) (d Decision, err error) {
	err = l.allow(ctx, key, 1, &d)
	return d, err
}

// AllowN spends n on the key if there is room for all of it. With several rules the decision is that of the rule
// that matters most to the caller; see [MostRestrictive].
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (d Decision, err error) {
	err = l.allow(ctx, key, n, &d)
	return d, err
}

// allow writes its decision where it is wanted: returned through two calls it would be copied twice, which costs as
// much as making it.
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
	// Most are allowed, and what is known of such a decision is written now: written just before the caller reads it,
	// it would keep the caller waiting.
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
		return fmt.Errorf("%w: cost %d: spend at least 1, or use Peek", ErrInvalid, n)
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
	// As take does, but what is not set is known to be zero, and nothing is copied twice.
	s := l.scratch.Get().(*decideBuffers)
	for i := range s.takes {
		s.takes[i].Key, s.takes[i].Cost = key, n
	}
	if _, err = l.Decide(ctx, s.takes, s.out); err == nil {
		*d = s.out[MostRestrictive(s.out)]
	}
	for i := range s.takes {
		s.takes[i].Key = "" // let go of it
	}
	l.scratch.Put(s)
	return err
}

// allowOwn is a shortcut for limiters with several rules on a store that asks servers, which spares it the translation of takes.
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
		s.own[i].Key = "" // let go of it
	}
	l.scratch.Put(s)
	return err
}

// allowFast is a shortcut for limiters with one rule that is decided from leases or estimates.
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

// allowSlow answers what the shortcut did not.
func (l *Limiter) allowSlow(ctx context.Context, limit *Limit, key string, n int64, failed error, d *Decision) (err error) {
	t := Take{Rule: l.rules[0], Limit: limit, Key: key, Cost: n}
	if failed != nil {
		*d, err = l.failOne(ctx, t, failed)
	} else {
		*d, err = l.take(ctx, t)
	}
	return err
}

// AllowUpTo spends as much as there is room for, between least and most, and says in Granted how much that was.
func (l *Limiter) AllowUpTo(ctx context.Context, key string, least, most int64) (Decision, error) {
	if least <= 0 || most < least {
		return Decision{}, fmt.Errorf("%w: %d to %d: spend at least 1, and no less than least", ErrInvalid, least, most)
	}
	if err := l.validate(); err != nil {
		return Decision{}, err
	}
	if len(l.rules) > 1 {
		return Decision{}, fmt.Errorf("%w: AllowUpTo needs a limiter with one rule: each of %d could grant another amount", ErrInvalid, len(l.rules))
	}
	return l.take(ctx, Take{Key: key, Cost: most, MinGrant: least})
}

// Peek tells what remains and spends nothing: Allowed says whether one would be allowed now.
func (l *Limiter) Peek(ctx context.Context, key string) (Decision, error) {
	if err := l.validate(); err != nil {
		return Decision{}, err
	}
	return l.take(ctx, Take{Key: key})
}

// take applies one take to all rules.
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
		s.takes[i] = Take{Rule: s.takes[i].Rule} // let go of the key, and leave the rest zero for allowGeneral
	}
	l.scratch.Put(s)
	return d, err
}
