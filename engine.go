package sluice

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/internal/remote"
	"github.com/sluiceproject/sluice/internal/step"
)

// These constants are negative, and do not compile, unless both MaxCost are equal.
const (
	_ uint = MaxCost - group.MaxCost
	_ uint = group.MaxCost - MaxCost
)

// decideBuffers are the reusable buffers of one decision.
type decideBuffers struct {
	takes []Take // of the limiter's rules; between calls only Rule and Cost are set
	out   []Decision

	ops     []group.Op
	answers []group.Answer

	own []group.Op // ops of the limiter's rules, for a RemoteStore; only keys and costs change between calls
}

// newBuffers returns buffers for a decision about the limiter's rules.
func (l *Limiter) newBuffers() any {
	b := &decideBuffers{takes: make([]Take, len(l.rules)), out: make([]Decision, len(l.rules))}
	for i, r := range l.rules {
		b.takes[i].Rule = r
	}
	if l.engine.IsRemote() && len(l.rules) > 1 {
		b.own, b.answers = make([]group.Op, len(l.rules)), make([]group.Answer, len(l.rules))
		b.ops = make([]group.Op, len(l.rules)) // inIntegers requires the same capacity as answers
		for i, r := range l.rules {
			b.own[i] = r.inIntegers().Op(r.Limit.params, "", "", 1)
		}
	}
	return b
}

// inIntegers converts takes to ops. The results are valid until the next call.
func (b *decideBuffers) inIntegers(takes []Take) (ops []group.Op, answers []group.Answer, err error) {
	if cap(b.ops) < len(takes) {
		b.ops, b.answers = make([]group.Op, len(takes)), make([]group.Answer, len(takes))
	}
	ops, answers = b.ops[:len(takes)], b.answers[:len(takes)]
	for i := range takes {
		if err = takes[i].op(&ops[i]); err != nil {
			return nil, nil, fmt.Errorf("take %d: %w", i, err)
		}
	}
	return ops, answers, nil
}

// clear releases the keys of the first n ops, so that a pooled buffer does not retain them.
func (b *decideBuffers) clear(n int) {
	for i := range b.ops[:min(n, len(b.ops))] {
		b.ops[i].Key, b.ops[i].HashTag = "", ""
	}
}

// op validates the take and converts it to op. It writes to op instead of returning it, because returning it through
// two calls copies it twice.
func (t *Take) op(op *group.Op) error {
	if t.Rule == nil || t.Rule.info == nil {
		return group.ErrRule
	}
	p := t.EffectiveLimit().params
	if p == nil {
		return group.ErrLimit
	}
	*op = t.Rule.inIntegers().Op(p, t.Key, t.HashTag, t.Cost)
	op.Request.Min, op.Request.DryRun, op.Request.Settles = t.MinGrant, t.DryRun, t.Settles
	op.At, op.Charged, op.Of, op.ID, op.Local = t.Receipt, t.Charged, t.ChargedOf, t.IdempotencyID, t.local
	return op.Validate(t.MaxDelay)
}

// inIntegers returns the rule for the internal packages. A copied rule, which may have been changed, gets a new one.
func (r *Rule) inIntegers() *group.Rule {
	if r.info == nil || r.info.Public == r {
		return r.info
	}
	return &group.Rule{
		ID: r.info.ID, Name: r.Name, Accuracy: group.Accuracy(r.Accuracy), OnFailure: group.FailMode(r.OnFailure),
		Shadow: r.Shadow, ChargeDenied: r.ChargeDenied, Public: r,
	}
}

// silenced returns the rule in shadow mode: it denies no request, and shares the buckets of r.
func (r *Rule) silenced() *Rule {
	quiet := *r
	quiet.Shadow = true
	quiet.info = quiet.inIntegers()
	return &quiet
}

// inWords converts answers to decisions.
func inWords(answers []group.Answer, out []Decision) {
	for i := range answers {
		out[i].set(&answers[i])
	}
}

// set sets the decision to the answer.
func (d *Decision) set(a *group.Answer) {
	d.Allowed, d.ExceedsLimit, d.Blocked, d.ShadowDenied, d.Source = a.Allowed, a.Never, a.Blocked, false, Source(a.Source)
	d.Limit, d.Granted, d.Remaining, d.Receipt = a.Limit, a.Granted, a.Remaining, a.At
	d.Delay, d.RetryAfter, d.ResetAfter = a.Delay, a.RetryAfter, a.ResetAfter
}

func answerOf(d *Decision) group.Answer {
	return group.Answer{
		Allowed: d.Allowed, Never: d.ExceedsLimit, Blocked: d.Blocked, Source: group.Source(d.Source),
		Limit: d.Limit, Granted: d.Granted, Delay: d.Delay, Remaining: d.Remaining, At: d.Receipt,
		RetryAfter: d.RetryAfter, ResetAfter: d.ResetAfter,
	}
}

// adapter lets the engine call a Store with takes.
type adapter struct {
	store   Store
	remote  RemoteStore // store, if it is a RemoteStore
	buffers sync.Pool
}

// newAdapter returns the engine's interface to a store. Remote stores of this repository are called with ops, others
// with takes.
func newAdapter(s Store) remote.Store {
	r, _ := s.(RemoteStore)
	var asked remote.Store
	if own := private.EngineOf(s); own != nil {
		asked = integers{own, r}
	} else {
		a := &adapter{store: s, remote: r}
		a.buffers.New = func() any { return new(decideBuffers) }
		asked = a
	}
	if s, ok := s.(Arrivals); ok {
		return arrivals{asked, s}
	}
	return asked
}

// integers calls a store with ops.
type integers struct {
	engine private.Engine
	remote RemoteStore
}

func (s integers) Shards() int { return max(1, s.remote.Shards()) }

func (s integers) Shard(op *group.Op) int { return s.engine.ShardOf(op) }

func (s integers) Apply(ctx context.Context, ops []group.Op, out []group.Answer) error {
	return s.engine.ApplyOps(ctx, ops, out)
}

// arrivals adds Patience for stores that implement [Arrivals].
type arrivals struct {
	remote.Store
	store Arrivals
}

func (a arrivals) Patience(timeout time.Duration) (left time.Duration, own bool) {
	return a.store.Patience(timeout)
}

func (a *adapter) Shards() int {
	if a.remote == nil {
		return 0
	}
	return max(1, a.remote.Shards())
}

func (a *adapter) Shard(op *group.Op) int {
	b := a.buffers.Get().(*decideBuffers)
	defer a.buffers.Put(b)
	if len(b.takes) == 0 {
		b.takes, b.out = make([]Take, 1), make([]Decision, 1)
	}
	b.takes[0] = takeOf(op)
	return a.remote.Shard(&b.takes[0])
}

func (a *adapter) Apply(ctx context.Context, ops []group.Op, out []group.Answer) error {
	b := a.buffers.Get().(*decideBuffers)
	if cap(b.takes) < len(ops) {
		b.takes, b.out = make([]Take, len(ops)), make([]Decision, len(ops))
	}
	takes, decisions := b.takes[:len(ops)], b.out[:len(ops)]
	for i := range ops {
		takes[i] = takeOf(&ops[i])
	}
	err := a.store.Apply(ctx, takes, decisions)
	if err == nil {
		for i := range decisions {
			out[i] = answerOf(&decisions[i])
		}
		clear(takes)
		a.buffers.Put(b) // not after an error, because the store may still use them
	}
	return err
}

// takeOf returns the take that an op was converted from, or an equivalent take for an op of the engine.
func takeOf(op *group.Op) Take {
	r := &op.Request
	t := Take{
		Rule: op.By.Public.(*Rule), Key: op.Key, HashTag: op.HashTag, Cost: r.Cost, MinGrant: r.Min,
		MaxDelay: time.Duration(r.MaxDelay) * time.Microsecond, Receipt: op.At, DryRun: r.DryRun, Settles: r.Settles,
		Charged: op.Charged, ChargedOf: op.Of, IdempotencyID: op.ID, local: op.Local,
	}
	if charge := t.Rule.ChargeDenied && op.Params.Kind != step.Permits; op.Shadow != t.Rule.Shadow || r.Charge != charge {
		rule := *t.Rule
		rule.Shadow, rule.ChargeDenied = op.Shadow, r.Charge
		t.Rule = &rule
	}
	if op.Params == t.Rule.Limit.params {
		return t
	}
	limit := op.Params.Owner.(*Limit)
	if limit.params != op.Params { // op.Params is a part of the limit
		part := *limit
		part.Count, part.Burst, part.SoftExcess, part.params = op.Params.Count, op.Params.Burst, op.Params.SoftExcess, op.Params
		limit = &part
	}
	t.Limit = limit
	return t
}

func init() {
	private.RuleOf = func(rule any) *group.Rule { return rule.(*Rule).inIntegers() }
	private.Silenced = func(rule any) any { return rule.(*Rule).silenced() }
	private.ParamsOf = func(limit any) *step.Params { return limit.(*Limit).params }
	private.MakePart = func(limit, whole any) { limit.(*Limit).whole = whole.(*Limit).params.Numbers() }
	private.SupportsLease = func(limit any) bool { return limit.(*Limit).supportsLease() }
	private.SupportsEventual = func(limit any) bool { return limit.(*Limit).supportsEventual() }
	private.CheckBucket = func(bucket any) error { return bucket.(*Bucket).validate() }
	private.CheckListOptions = func(query any) error { return query.(*ListOptions).setDefaults() }
	private.CheckResetOptions = func(options any) error { return options.(*ResetOptions).validate() }
	private.DecideQuiet = func(ctx context.Context, limiter, takes, out any) (bool, error) {
		return limiter.(*Limiter).decideQuiet(ctx, *takes.(*[]Take), *out.(*[]Decision))
	}
	private.ReportDecisions = func(ctx context.Context, limiter, takes, out any) {
		limiter.(*Limiter).reportDecisions(ctx, *takes.(*[]Take), *out.(*[]Decision))
	}
	private.HoldPermits = func(limiter, takes, out any) any {
		return limiter.(*Limiter).holdPermits(*takes.(*[]Take), *out.(*[]Decision))
	}
	private.SettleOnce = func(ctx context.Context, limiter any, id string, remember time.Duration, takes any) (bool, int64, error) {
		return limiter.(*Limiter).settleOnce(ctx, id, remember, takes.([]Take))
	}
	private.Refund = func(ctx context.Context, limiter, takes, out any) error {
		return limiter.(*Limiter).refund(ctx, *takes.(*[]Take), *out.(*[]Decision))
	}
	private.IsSuspended = func(limiter any, rule string) bool { return limiter.(*Limiter).isSuspended(rule) }
	private.HasLimitFor = func(limiter any) bool { return limiter.(*Limiter).opts.limitFor != nil }
	private.IsRemote = func(limiter any) bool { return limiter.(*Limiter).engine.IsRemote() }
}
