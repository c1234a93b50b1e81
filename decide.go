package sluice

import (
	"context"
	"errors"
	"fmt"
)

// Decide applies several takes at once, all or nothing: if one is denied, none is charged but those of ChargeDenied
// rules. Takes of shadow rules never deny: their decisions are reported as Allowed, with ShadowDenied set where the rule
// would have denied. It fills out[i] for takes[i] and tells whether all were allowed.
func (l *Limiter) Decide(ctx context.Context, takes []Take, out []Decision) (bool, error) {
	allowed, err := l.decideQuiet(ctx, takes, out)
	if err == nil && l.opts.events.ofDecisions() {
		l.reportDecisions(ctx, takes, out)
	}
	return allowed, err
}

// Takes appends to dst the takes that [Limiter.AllowN] would make, one for each of the limiter's rules, with the limit that
// [WithLimitFor] chooses for the key. They may be changed before they are passed to [Limiter.Decide] or
// [Limiter.ReserveTakes].
func (l *Limiter) Takes(ctx context.Context, dst []Take, key string, cost int64) []Take {
	limit := l.limitForKey(ctx, key)
	for _, rule := range l.Rules() {
		dst = append(dst, Take{Rule: rule, Limit: limit, Key: key, Cost: cost})
	}
	return dst
}

// apply has the store decide about the takes of rules that are not switched off.
func (l *Limiter) apply(ctx context.Context, takes []Take, out []Decision) error {
	if s := l.suspended.Load(); s != nil {
		return l.applySuspended(ctx, *s, takes, out)
	}
	return l.applyAll(ctx, takes, out)
}

// applyAll has the store decide, or the rules' fail modes if it cannot.
func (l *Limiter) applyAll(ctx context.Context, takes []Take, out []Decision) error {
	if !l.engine.IsRemote() {
		err := l.store.Apply(ctx, takes, out)
		if err == nil || errors.Is(err, ErrInvalid) {
			return err
		}
		return l.fail(ctx, takes, out, err)
	}
	b := l.scratch.Get().(*decideBuffers)
	ops, answers, err := b.inIntegers(takes)
	if err == nil {
		if err = l.engine.Apply(ctx, ops, answers); err == nil {
			inWords(answers, out)
		}
	}
	b.clear(len(takes))
	l.scratch.Put(b)
	return err
}

// fail has the rules' fail modes decide.
func (l *Limiter) fail(ctx context.Context, takes []Take, out []Decision, failed error) error {
	ops, answers, err := new(decideBuffers).inIntegers(takes)
	if err == nil {
		err = l.engine.Fail(ctx, ops, answers, failed)
	}
	if err == nil {
		inWords(answers, out)
	}
	return err
}

func (l *Limiter) failOne(ctx context.Context, t Take, err error) (Decision, error) {
	takes, out := []Take{t}, []Decision{{}}
	if err := l.fail(ctx, takes, out, err); err != nil {
		return Decision{}, err
	}
	out[0].Rule = t.Rule
	l.opts.events.report(ctx, t, out[0])
	return out[0], nil
}

// ReportShadowed reports takes of rules in shadow as denied in shadow, without deciding them: the request lacks what they
// count by, or that cannot be read. See package rules.
func (l *Limiter) ReportShadowed(ctx context.Context, takes []Take) {
	if l == nil || !l.opts.events.ofDecisions() {
		return
	}
	for i := range takes {
		l.opts.events.report(ctx, takes[i], Decision{Allowed: true, ShadowDenied: true, Rule: takes[i].Rule})
	}
}

// decideQuiet is [Limiter.Decide] for callers that ask again until they are allowed. It does not report the decisions to
// [Events], because a request that had to wait would be counted as denied many times; reportDecisions reports the last.
func (l *Limiter) decideQuiet(ctx context.Context, takes []Take, out []Decision) (bool, error) {
	if err := l.validate(); err != nil {
		return false, err
	}
	if len(out) < len(takes) {
		return false, fmt.Errorf("%w: %d takes but room for %d decisions", ErrInvalid, len(takes), len(out))
	}
	for i := range takes {
		if takes[i].Rule == nil {
			return false, fmt.Errorf("%w: take %d has no rule", ErrInvalid, i)
		}
	}
	out = out[:len(takes)]
	if err := l.apply(ctx, takes, out); err != nil {
		return false, err
	}
	return allowShadowed(takes, out), nil
}

// allowShadowed has takes of shadow rules be allowed, names each decision's rule, and reports whether all that cost something are.
func allowShadowed(takes []Take, out []Decision) bool {
	allowed := true
	for i := range takes {
		d := &out[i]
		if takes[i].Rule.Shadow && !d.Allowed {
			d.Allowed, d.ShadowDenied = true, true
		}
		d.Rule = takes[i].Rule
		allowed = allowed && (d.Allowed || takes[i].Cost == 0)
	}
	return allowed
}

// reportDecisions tells [Events] of decisions by decideQuiet, or by the caller itself.
func (l *Limiter) reportDecisions(ctx context.Context, takes []Take, out []Decision) {
	if l == nil {
		return
	}
	for i := range takes {
		if takes[i].Cost != 0 {
			l.opts.events.report(ctx, takes[i], out[i])
		}
	}
}

// ofDecisions reports whether an event of decisions is set.
func (e *Events) ofDecisions() bool { return e.OnDecision != nil || e.OnDenial != nil }

func (e *Events) report(ctx context.Context, t Take, d Decision) {
	if e.OnDecision != nil {
		e.OnDecision(ctx, t, d)
	}
	if e.OnDenial != nil && (!d.Allowed || d.ShadowDenied) {
		e.OnDenial(ctx, t, d)
	}
}

// validate returns an error for a limiter that was not made by [New] or [NewWithRules].
func (l *Limiter) validate() error {
	switch {
	case l == nil:
		return fmt.Errorf("%w: the limiter is nil: check the error of New or NewWithRules", ErrInvalid)
	case l.store == nil:
		return fmt.Errorf("%w: the limiter has no store: make it with New or NewWithRules", ErrInvalid)
	}
	return nil
}

// validateRules is validate for methods that apply the limiter's own rules; instead names the method for callers that have none.
func (l *Limiter) validateRules(instead string) error {
	if err := l.validate(); err != nil {
		return err
	}
	if len(l.rules) == 0 {
		return fmt.Errorf("%w: this limiter has no rules: use %s", ErrInvalid, instead)
	}
	return nil
}
