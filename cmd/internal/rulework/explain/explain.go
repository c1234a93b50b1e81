package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/sample"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/rules"
)

// Result is the output of explain. Its fields are stable for programs.
type Result struct {
	Request     string       `json:"request"`
	Outcome     string       `json:"outcome"` // allowed, denied, rejected, exempt or unlimited
	Reason      string       `json:"reason"`
	Rules       []Rule       `json:"rules,omitempty"`
	Descriptors []Descriptor `json:"descriptors,omitempty"`
	LoadClass   *LoadClass   `json:"load_shedding,omitempty"` // nil: the rules say nothing about it
}

// LoadClass is the load-shedding class of a request.
type LoadClass struct {
	Priority      string `json:"priority"`
	File          string `json:"file,omitempty"` // of the entry that sets the priority; empty: no entry matches
	Line          int    `json:"line,omitempty"`
	AdaptiveLimit string `json:"adaptive_limit,omitempty"` // adaptive limit that may shed it; empty: none
	Min           int    `json:"min,omitempty"`
	Max           int    `json:"max,omitempty"`
	Shadow        bool   `json:"shadow,omitempty"`
}

func load(e *rules.LoadClassExplanation) *LoadClass {
	if e == nil {
		return nil
	}
	l := &LoadClass{Priority: e.Priority.String(), File: e.Pos.File, Line: e.Pos.Line}
	if g := e.AdaptiveLimit; g != nil {
		l.AdaptiveLimit, l.Min, l.Max, l.Shadow = g.Name, g.Min, g.Max, g.Shadow
	}
	return l
}

// Rule is one rule, or an entry of the lists, with the result of matching the request.
type Rule struct {
	Name       string      `json:"name"`
	File       string      `json:"file,omitempty"`
	Line       int         `json:"line,omitempty"`
	List       bool        `json:"list,omitempty"` // an entry of the allow or deny list
	Matches    bool        `json:"matched"`
	Conditions []Condition `json:"conditions"`
	Key        []Key       `json:"key,omitempty"`
	Limits     []Limit     `json:"limits,omitempty"`
	Notes      []string    `json:"notes,omitempty"`
}

// Condition is one condition of a rule with the request's value.
type Condition struct {
	Text    string `json:"text"`
	Value   string `json:"value"`
	Matched bool   `json:"matched"`
}

// Key is one part of a rule's key.
type Key struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Limit is a limit with its state before the request.
type Limit struct {
	Name              string  `json:"name"`
	Limit             string  `json:"limit"`
	Cost              int64   `json:"cost"`
	Remaining         int64   `json:"remaining"`
	Max               int64   `json:"max"`
	ResetAfterSeconds float64 `json:"reset_after_seconds"`
	Source            string  `json:"source,omitempty"` // what decides in place of the store: local, open, closed or suspended
}

// Descriptor is one descriptor of the request, and how it found its limits.
type Descriptor struct {
	Entries string   `json:"entries"`
	Steps   []string `json:"steps"`
	Limits  []Limit  `json:"limits,omitempty"`
}

// Explainer explains the outcome of requests, and the remaining quota of their limits.
type Explainer struct {
	Limiter *sluice.Limiter
	// Live means that the store is shared, so that nothing is charged. The outcome then follows from the remaining
	// quota, without the time until a cost above 1 is allowed.
	Live bool
}

// New returns an Explainer for a store that no other limiter uses.
func New(store sluice.Store) (*Explainer, error) {
	limiter, err := sluice.NewWithRules(store, nil)
	return &Explainer{Limiter: limiter}, err
}

// OnlyMatching removes the rules that do not match.
func (a *Result) OnlyMatching() {
	a.Rules = slices.DeleteFunc(a.Rules, func(r Rule) bool { return !r.Matches })
}

// states returns the state of each take's limit.
func (p *Explainer) states(ctx context.Context, takes []sluice.Take, cost int64) ([]Limit, error) {
	out := make([]sluice.Decision, 1)
	var all []Limit
	for _, t := range takes {
		if cost > 0 {
			t.Cost = cost
		}
		peek := t
		peek.Cost, peek.MaxDelay, peek.DryRun = 0, 0, true
		if _, err := p.Limiter.Decide(ctx, []sluice.Take{peek}, out); err != nil {
			return nil, err
		}
		limit := Limit{
			Name: t.Rule.Name, Limit: t.EffectiveLimit().String(), Cost: t.Cost,
			Remaining: out[0].Remaining, Max: out[0].Limit, ResetAfterSeconds: out[0].ResetAfter.Seconds(),
		}
		if source := out[0].Source; source.Degraded() {
			limit.Source = source.String()
		}
		all = append(all, limit)
	}
	return all, nil
}

func (p *Explainer) rule(ctx context.Context, r *rules.RuleExplanation, cost int64) (Rule, error) {
	x := Rule{
		Name: r.Name, File: r.Pos.File, Line: r.Pos.Line, List: r.Rule == nil, Matches: r.Matches,
		Conditions: []Condition{}, Notes: r.Notes,
	}
	for _, c := range r.Conditions {
		x.Conditions = append(x.Conditions, Condition(c))
	}
	for _, k := range r.Key {
		x.Key = append(x.Key, Key(k))
	}
	var err error
	x.Limits, err = p.states(ctx, r.Takes, cost)
	return x, err
}

// outcome sets the outcome of the request and its reason.
func (p *Explainer) outcome(ctx context.Context, x *Result, e *rules.Explanation, cost int64) error {
	switch {
	case e.Err != nil:
		x.Outcome, x.Reason = "rejected", strings.TrimPrefix(e.Err.Error(), "rules: ")
	case e.Outcome == rules.MatchRejected:
		x.Outcome, x.Reason = "rejected", e.Reason
	case e.Outcome == rules.MatchExempt:
		x.Outcome, x.Reason = "exempt", e.Reason
	case len(e.Takes) == 0 && e.Outcome == rules.MatchLimited:
		x.Outcome, x.Reason = "unlimited", "the matching rules set no limit for this request"
	case len(e.Takes) == 0:
		x.Outcome, x.Reason = "unlimited", "no rule matches"
	default:
		return p.decide(ctx, x, e.Takes, cost)
	}
	return nil
}

func (p *Explainer) decide(ctx context.Context, x *Result, takes []sluice.Take, cost int64) error {
	if cost > 0 {
		for i := range takes {
			takes[i].Cost = cost
		}
	}
	ds := make([]sluice.Decision, len(takes))
	allowed, err := p.try(ctx, takes, ds)
	if err != nil {
		return err
	}
	reasons := []string{}
	if tight := mostRestrictive(ds); tight >= 0 && ds[tight].Allowed == allowed {
		reasons = append(reasons, reason(&takes[tight], &ds[tight], allowed))
	}
	for i := range ds {
		name := takes[i].Rule.Name
		switch {
		case ds[i].ShadowDenied:
			reasons = append(reasons, name+" is in shadow mode and would have denied the request")
		case ds[i].Source == sluice.SourceSuspended && len(reasons) == 0:
			reasons = append(reasons, name+" is "+suspendedText)
		case ds[i].Source == sluice.SourceSuspended:
			reasons = append(reasons, name+" is suspended")
		case ds[i].Source.Degraded():
			reasons = append(reasons, fmt.Sprintf("store unavailable: on_failure of %s decides (%v)", name, ds[i].Source))
		}
	}
	x.Reason = strings.Join(reasons, "; ")
	x.Outcome = map[bool]string{true: "allowed", false: "denied"}[allowed]
	return nil
}

// isCounted reports whether the numbers of a decision are counts. Those of suspended rules and of fail modes that do
// not count are not.
func isCounted(s sluice.Source) bool { return !s.Degraded() || s == sluice.SourceFailLocal }

// mostRestrictive returns [sluice.MostRestrictive] of the decisions that counted, or -1 if none did.
func mostRestrictive(ds []sluice.Decision) int {
	var counted []sluice.Decision
	var at []int
	for i := range ds {
		if isCounted(ds[i].Source) {
			counted, at = append(counted, ds[i]), append(at, i)
		}
	}
	if len(counted) == 0 {
		return -1
	}
	return at[sluice.MostRestrictive(counted)]
}

// reason describes the decision of a limit.
func reason(t *sluice.Take, d *sluice.Decision, allowed bool) string {
	name, left := t.Rule.Name, fmt.Sprintf("%d of %d", d.Remaining, d.Limit)
	switch {
	case allowed && d.Delay > 0:
		return fmt.Sprintf("delayed by %s: %s has %s left afterwards", term.Duration(d.Delay), name, left)
	case d.Allowed:
		return name + " has " + left + " left afterwards"
	case d.ExceedsLimit:
		return fmt.Sprintf("the cost of %d exceeds the limit of %s, which is %d at once", t.Cost, name, d.Limit)
	case d.Blocked:
		return fmt.Sprintf("the key is blocked under %s, retry after %s", name, term.Duration(d.RetryAfter))
	case d.RetryAfter == 0:
		return fmt.Sprintf("%s has %s left, and the request costs %d", name, left, t.Cost)
	}
	return fmt.Sprintf("%s has %s left, retry after %s", name, left, term.Duration(d.RetryAfter))
}

// try decides the takes, or only predicts their decisions.
func (p *Explainer) try(ctx context.Context, takes []sluice.Take, ds []sluice.Decision) (bool, error) {
	if !p.Live {
		return p.Limiter.Decide(ctx, takes, ds)
	}
	peeks := slices.Clone(takes)
	for i := range peeks {
		peeks[i].Cost, peeks[i].DryRun = 0, true
	}
	if _, err := p.Limiter.Decide(ctx, peeks, ds); err != nil {
		return false, err
	}
	allowed := true
	for i := range ds {
		d, cost := &ds[i], takes[i].Cost
		counts := isCounted(d.Source)
		switch {
		case counts && d.Allowed && !d.ShadowDenied && d.Delay == 0 && cost > d.Remaining:
			d.Allowed, d.ExceedsLimit = takes[i].Rule.Shadow, cost > d.Limit
			d.ShadowDenied = d.Allowed
		case counts && d.Allowed && !d.ShadowDenied:
			d.Remaining = max(0, d.Remaining-cost)
		}
		allowed = allowed && d.Allowed
	}
	return allowed, nil
}

// HTTP explains a request. With a cost of 0, the rules determine the cost. With matching, rules that do not match are
// left out.
func (p *Explainer) HTTP(ctx context.Context, set *rules.Set, h *sample.HTTP, cost int64, matching bool) (*Result, error) {
	sent, err := h.Request()
	if err != nil {
		return nil, err
	}
	e := set.Explain(httplimit.NewRulesRequest(sent, set))
	path, _, _ := strings.Cut(h.Target, "?") // a query may contain a secret
	x := &Result{Request: h.Method + " " + h.Host + path, Rules: []Rule{}, LoadClass: load(e.LoadClass)}
	for i := range e.Rules {
		if r := &e.Rules[i]; r.Matches || !matching {
			rule, err := p.rule(ctx, r, cost)
			if err != nil {
				return nil, err
			}
			x.Rules = append(x.Rules, rule)
		}
	}
	return x, p.outcome(ctx, x, e, cost)
}

// Domain explains a request to a domain.
func (p *Explainer) Domain(ctx context.Context, set *rules.Set, d *sample.Descriptors) (*Result, error) {
	x := &Result{Request: d.String()}
	var m rules.DescriptorMatches
	set.MatchDescriptors(d.Domain, d.Each, &m)
	for i, e := range set.ExplainDescriptors(d.Domain, d.Each) {
		one := sample.Descriptors{Each: d.Each[i : i+1]}
		each := m.Matches[i]
		limits, err := p.states(ctx, m.Takes[each.First:each.First+each.N], 0)
		if err != nil {
			return nil, err
		}
		x.Descriptors = append(x.Descriptors, Descriptor{
			Entries: strings.TrimPrefix(one.String(), ": "), Steps: e.Lines(), Limits: limits,
		})
	}
	switch {
	case !m.DomainFound:
		x.Outcome, x.Reason = "unlimited", fmt.Sprintf("there is no domain %q%s", d.Domain, otherDomains(set))
	case len(m.Takes) == 0:
		x.Outcome, x.Reason = "unlimited", "the domain has no limit for these descriptors"
	default:
		return x, p.decide(ctx, x, m.Takes, 0)
	}
	return x, nil
}

// otherDomains lists the existing domains.
func otherDomains(set *rules.Set) string {
	var names []string
	for i := range set.Config().Domains {
		names = append(names, set.Config().Domains[i].Name)
	}
	if len(names) == 0 {
		return "; the rules define no domain"
	}
	return "; the rules define " + strings.Join(names, ", ")
}
