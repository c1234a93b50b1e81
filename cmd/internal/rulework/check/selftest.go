package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/fileerrors"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

// selftest uses up every limit of a set in a separate store until it denies. A limit that never denies has no effect.
func selftest(ctx context.Context, set *rules.Set) ([]fileerrors.Diagnostic, error) {
	t, err := newSelftester()
	if err != nil {
		return nil, err
	}
	cfg := set.Config()
	for i := range cfg.Rules {
		if err := t.rule(ctx, &cfg.Rules[i]); err != nil {
			return t.found, err
		}
	}
	for i := range cfg.Domains {
		for _, l := range set.DescriptorLimits(cfg.Domains[i].Name) {
			for j, rule := range l.Rules {
				at := l.Source.Limits[j].Pos
				if at == (rules.Position{}) {
					at = l.Source.Pos
				}
				if err := t.spend(ctx, limitPlace{at, rule.Name, ""}, rule, 1, 0); err != nil {
					return t.found, err
				}
			}
		}
	}
	return t.found, nil
}

// limitPlace identifies the tested limit.
type limitPlace struct {
	at    rules.Position
	rule  string
	where string // tier or override
}

type selftester struct {
	limiter *sluice.Limiter
	found   []fileerrors.Diagnostic
	keys    int
}

func newSelftester() (*selftester, error) {
	now := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	store, err := memstore.Open(memstore.Config{Now: func() time.Time { return now }})
	if err != nil {
		return nil, err
	}
	limiter, err := sluice.NewWithRules(store, nil)
	return &selftester{limiter: limiter}, err
}

func (t *selftester) rule(ctx context.Context, r *rules.Rule) error {
	if r.Disabled {
		return nil
	}
	each := func(where string, list []rules.Limit) error {
		for i := range list {
			l := &list[i]
			if l.Unlimited || l.DenyAll {
				continue
			}
			rule, err := sluice.NewRule(sluice.Rule{Name: r.Name, Limit: l.Limit, ChargeDenied: r.ChargeDenied})
			if err != nil {
				return fmt.Errorf("self-test of rule %s: %w", r.Name, err)
			}
			if err := t.spend(ctx, limitPlace{l.Pos, r.Name, where}, rule, max(1, r.Cost.Default), r.MaxDelay); err != nil {
				return err
			}
		}
		return nil
	}
	if err := each("", r.Limits); err != nil {
		return err
	}
	if r.Tiers != nil {
		for _, tier := range slices.Sorted(maps.Keys(r.Tiers.Limits)) {
			if err := each(fmt.Sprintf(" in tier %q", tier), r.Tiers.Limits[tier]); err != nil {
				return err
			}
		}
	}
	for i := range r.Overrides {
		if err := each(" for "+strings.Join(r.Overrides[i].Key, ", "), r.Overrides[i].Limits); err != nil {
			return err
		}
	}
	return nil
}

// maxSpends is the maximum number of takes to use up a limit. Each takes as much as possible, so that a few are enough
// unless each is delayed.
const maxSpends = 100_000

// spend uses up a new key in steps that become smaller, until not even one request of the rule's cost is allowed.
func (t *selftester) spend(ctx context.Context, p limitPlace, rule *sluice.Rule, cost int64, wait time.Duration) error {
	t.keys++
	key := fmt.Sprintf("self-test-%d", t.keys)
	out := make([]sluice.Decision, 1)
	step := max(cost, rule.Limit.Max())
	for range maxSpends {
		take := sluice.Take{Rule: rule, Key: key, Cost: step, MaxDelay: wait}
		if _, err := t.limiter.Decide(ctx, []sluice.Take{take}, out); err != nil {
			return fmt.Errorf("self-test of rule %s: %w", p.rule, err)
		}
		if denied := !out[0].Allowed || out[0].ShadowDenied; !denied {
			continue
		}
		if step <= cost {
			return nil
		}
		step = max(cost, step/2)
	}
	verdict, advice := "can never deny", ""
	if d := out[0].Delay; d > 0 {
		verdict, advice = "hardly ever denies", fmt.Sprintf(" after a delay of %s: lower max_delay", term.Duration(d))
	}
	msg := fmt.Sprintf("%s%s: the self-test used the limit %v %d times over, and the next request was still allowed%s",
		verdict, p.where, rule.Limit, maxSpends, advice)
	t.found = append(t.found, fileerrors.New("warning", p.at, p.rule, msg))
	return nil
}
