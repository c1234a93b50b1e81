package sluice

import (
	"context"
	"errors"
	"fmt"
)

// Decide applies several takes, all or nothing: if one is denied, none is charged except those of ChargeDenied rules. Takes
// of shadow rules never deny: their decisions are Allowed, with ShadowDenied set if the rule would have denied. Decide
// sets out[i] for takes[i]; out must be at least as long as takes. It reports whether all takes were allowed.
func (l *Limiter) Decide(ctx context.Context, takes []Take, out []Decision) (bool, error) {
	allowed, err := l.decideQuiet(ctx, takes, out)
	if err == nil && l.opts.events.ofDecisions() {
		l.reportDecisions(ctx, takes, out)
	}
	return allowed, err
}

// Takes appends to dst the takes that [Limiter.AllowN] would make: one for each of the limiter's rules, with the limit
// chosen by [WithLimitFor]. They may be changed before they are passed to [Limiter.Decide] or [Limiter.ReserveTakes].
func (l *Limiter) Takes(ctx context.Context, dst []Take, key string, cost int64) []Take {
	limit := l.limitForKey(ctx, key)
	for _, rule := range l.Rules() {
		dst = append(dst, Take{Rule: rule, Limit: limit, Key: key, Cost: cost})
	}
	return dst
}

// apply decides takes: those of suspended rules are allowed, the others are applied to the store.
func (l *Limiter) apply(ctx context.Context, takes []Take, out []Decision) error {
	if s := l.suspended.Load(); s != nil {
		return l.applySuspended(ctx, *s, takes, out)
	}
	return l.applyAll(ctx, takes, out)
}

// applyAll applies takes to the store. If the store is unavailable, the rules' fail modes decide.
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

// fail decides takes by the rules' fail modes. failed is the store's error.
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

// ReportShadowed reports takes of shadow rules to [Events] as shadow-denied without deciding them. It is for requests
// that lack an attribute that the rule counts by, or whose attribute cannot be read. See package rules.
func (l *Limiter) ReportShadowed(ctx context.Context, takes []Take) {
	if l == nil || !l.opts.events.ofDecisions() {
		return
	}
	for i := range takes {
		l.opts.events.report(ctx, takes[i], Decision{Allowed: true, ShadowDenied: true, Rule: takes[i].Rule})
	}
}

// decideQuiet is [Limiter.Decide] for callers that retry until they are allowed. It does not report to [Events],
// because a delayed request would be counted as denied many times. The caller reports the last decision with
// reportDecisions.
func (l *Limiter) decideQuiet(ctx context.Context, takes []Take, out []Decision) (bool, error) {
	if err := l.validate(); err != nil {
		return false, err
	}
	if len(out) < len(takes) {
		return false, fmt.Errorf("%w: decide: %d takes but only %d decisions: out must be at least as long as takes", ErrInvalid, len(takes), len(out))
	}
	for i := range takes {
		if takes[i].Rule == nil {
			return false, fmt.Errorf("%w: decide: take %d has no rule", ErrInvalid, i)
		}
	}
	out = out[:len(takes)]
	if err := l.apply(ctx, takes, out); err != nil {
		return false, err
	}
	return allowShadowed(takes, out), nil
}

// allowShadowed allows the takes of shadow rules and sets each decision's Rule. It reports whether all takes with a
// cost are allowed.
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

// reportDecisions calls [Events] for decisions made with decideQuiet, or by the caller itself.
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

// ofDecisions reports whether OnDecision or OnDenial is set.
func (e *Events) ofDecisions() bool { return e.OnDecision != nil || e.OnDenial != nil }

func (e *Events) report(ctx context.Context, t Take, d Decision) {
	if e.OnDecision != nil {
		e.OnDecision(ctx, t, d)
	}
	if e.OnDenial != nil && (!d.Allowed || d.ShadowDenied) {
		e.OnDenial(ctx, t, d)
	}
}

// validate returns an error if the limiter was not created by [New] or [NewWithRules].
func (l *Limiter) validate() error {
	switch {
	case l == nil:
		return fmt.Errorf("%w: limiter is nil: check the error of New or NewWithRules", ErrInvalid)
	case l.store == nil:
		return fmt.Errorf("%w: limiter has no store: create it with New or NewWithRules", ErrInvalid)
	}
	return nil
}

// validateRules is validate for methods that apply the limiter's own rules. The error of a limiter without rules
// recommends the method named by instead.
func (l *Limiter) validateRules(instead string) error {
	if err := l.validate(); err != nil {
		return err
	}
	if len(l.rules) == 0 {
		return fmt.Errorf("%w: limiter has no rules: use %s", ErrInvalid, instead)
	}
	return nil
}
