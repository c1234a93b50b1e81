package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/ruletest"
	"github.com/sluiceproject/sluice/rules"
)

// explained is what explain prints. Its fields are for programs to rely on.
type explained struct {
	Request     string                `json:"request"`
	Verdict     string                `json:"verdict"` // allowed, denied, refused, exempt or unlimited
	Why         string                `json:"why"`
	Rules       []explainedRule       `json:"rules,omitempty"`
	Descriptors []explainedDescriptor `json:"descriptors,omitempty"`
}

type explainedRule struct {
	Name       string               `json:"name"`
	File       string               `json:"file,omitempty"`
	Line       int                  `json:"line,omitempty"`
	List       bool                 `json:"list,omitempty"` // an entry of the allow or deny list
	Matches    bool                 `json:"matches"`
	Conditions []explainedCondition `json:"conditions"`
	Key        []explainedKey       `json:"key,omitempty"`
	Limits     []explainedLimit     `json:"limits,omitempty"`
	Notes      []string             `json:"notes,omitempty"`
}

type explainedCondition struct {
	Text  string `json:"text"`
	Value string `json:"value"`
	Holds bool   `json:"holds"`
}

type explainedKey struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// explainedLimit is a limit and its state before the request.
type explainedLimit struct {
	Name         string  `json:"name"`
	Limit        string  `json:"limit"`
	Cost         int64   `json:"cost"`
	Remaining    int64   `json:"remaining"`
	Of           int64   `json:"of"`
	ResetSeconds float64 `json:"reset_seconds"`
}

type explainedDescriptor struct {
	Entries string           `json:"entries"`
	Steps   []string         `json:"steps"`
	Limits  []explainedLimit `json:"limits,omitempty"`
}

// peeker looks at a store, and then tries the request in it. The store is a copy that nobody else has.
type peeker struct{ limiter *sluice.Limiter }

func newPeeker(snapshot string) (*peeker, error) {
	store, err := openStore(snapshot)
	if err != nil {
		return nil, err
	}
	limiter, err := sluice.NewRules(store, nil)
	return &peeker{limiter}, err
}

// states tells what is left of each take's limit.
func (p *peeker) states(ctx context.Context, takes []sluice.Take, cost int64) ([]explainedLimit, error) {
	out := make([]sluice.Decision, 1)
	var all []explainedLimit
	for _, t := range takes {
		if cost > 0 {
			t.Cost = cost
		}
		peek := t
		peek.Cost, peek.MaxDelay = 0, 0
		if _, err := p.limiter.Decide(ctx, []sluice.Take{peek}, out); err != nil {
			return nil, err
		}
		all = append(all, explainedLimit{
			Name: t.Rule.Name, Limit: t.Effective().String(), Cost: t.Cost,
			Remaining: out[0].Remaining, Of: out[0].Limit, ResetSeconds: out[0].ResetAfter.Seconds(),
		})
	}
	return all, nil
}

func (p *peeker) rule(ctx context.Context, r *rules.RuleExplanation, cost int64) (explainedRule, error) {
	x := explainedRule{
		Name: r.Name, File: r.At.File, Line: r.At.Line, List: r.Rule == nil, Matches: r.Matches,
		Conditions: []explainedCondition{}, Notes: r.Notes,
	}
	for _, c := range r.Conditions {
		x.Conditions = append(x.Conditions, explainedCondition(c))
	}
	for _, k := range r.Key {
		x.Key = append(x.Key, explainedKey(k))
	}
	var err error
	x.Limits, err = p.states(ctx, r.Takes, cost)
	return x, err
}

// verdict says what would become of the request.
func (p *peeker) verdict(ctx context.Context, x *explained, e *rules.Explanation, cost int64) error {
	switch {
	case e.Err != nil:
		x.Verdict, x.Why = "refused", strings.TrimPrefix(e.Err.Error(), "rules: ")
	case e.Verdict == rules.Refused:
		x.Verdict, x.Why = "refused", e.Why
	case e.Verdict == rules.Exempt:
		x.Verdict, x.Why = "exempt", e.Why
	case len(e.Takes) == 0 && e.Verdict == rules.Limited:
		x.Verdict, x.Why = "unlimited", "the rules that match have no limit for it"
	case len(e.Takes) == 0:
		x.Verdict, x.Why = "unlimited", "no rule matches"
	default:
		return p.decide(ctx, x, e.Takes, cost)
	}
	return nil
}

func (p *peeker) decide(ctx context.Context, x *explained, takes []sluice.Take, cost int64) error {
	if cost > 0 {
		for i := range takes {
			takes[i].Cost = cost
		}
	}
	ds := make([]sluice.Decision, len(takes))
	allowed, err := p.limiter.Decide(ctx, takes, ds)
	if err != nil {
		return err
	}
	tight := tightest(takes, ds)
	d, name := &ds[tight], takes[tight].Rule.Name
	left := fmt.Sprintf("%d of %d", d.Remaining, d.Limit)
	switch {
	case allowed && d.Delay > 0:
		x.Why = fmt.Sprintf("%s has it wait for %s and leaves %s", name, ruletest.FormatDuration(d.Delay), left)
	case allowed:
		x.Why = name + " leaves " + left
	case d.Never:
		x.Why = fmt.Sprintf("%s can never allow a cost of %d, only %d can be spent at once", name, takes[tight].Cost, d.Limit)
	default:
		x.Why = fmt.Sprintf("%s has %s left, retry after %s", name, left, ruletest.FormatDuration(d.RetryAfter))
	}
	for i := range ds {
		if ds[i].Shadow {
			x.Why += fmt.Sprintf("; %s is in shadow and would have denied it", takes[i].Rule.Name)
		}
	}
	x.Verdict = map[bool]string{true: "allowed", false: "denied"}[allowed]
	return nil
}

// tightest is the decision that matters most, of rules that are enforced if there are any.
func tightest(takes []sluice.Take, ds []sluice.Decision) int {
	best := -1
	for i := range ds {
		switch {
		case best < 0, takes[best].Rule.Shadow && !takes[i].Rule.Shadow:
			best = i
		case takes[i].Rule.Shadow && !takes[best].Rule.Shadow:
		case sluice.Tightest([]sluice.Decision{ds[best], ds[i]}) == 1:
			best = i
		}
	}
	return best
}

func (p *peeker) domain(ctx context.Context, set *rules.Set, d *ruletest.Descriptors) (*explained, error) {
	x := &explained{Request: d.String()}
	var m rules.MatchedDescriptors
	set.MatchDescriptors(d.Domain, d.Each, &m)
	for i, e := range set.ExplainDescriptors(d.Domain, d.Each) {
		one := ruletest.Descriptors{Each: d.Each[i : i+1]}
		each := m.Each[i]
		limits, err := p.states(ctx, m.Takes[each.First:each.First+each.N], 0)
		if err != nil {
			return nil, err
		}
		x.Descriptors = append(x.Descriptors, explainedDescriptor{
			Entries: strings.TrimPrefix(one.String(), ": "), Steps: e.Lines(), Limits: limits,
		})
	}
	switch {
	case !m.Known:
		x.Verdict, x.Why = "unlimited", fmt.Sprintf("there is no domain %q%s", d.Domain, otherDomains(set))
	case len(m.Takes) == 0:
		x.Verdict, x.Why = "unlimited", "the domain has no limit for it"
	default:
		return x, p.decide(ctx, x, m.Takes, 0)
	}
	return x, nil
}

// otherDomains lists the domains that there are.
func otherDomains(set *rules.Set) string {
	var names []string
	for i := range set.Config().Domains {
		names = append(names, set.Config().Domains[i].Name)
	}
	if len(names) == 0 {
		return ": the rules have none"
	}
	return ": the rules have " + strings.Join(names, ", ")
}

func (x *explained) write(w io.Writer) error {
	s := newStyle(w)
	var b strings.Builder
	verdict := s.green(x.Verdict)
	if x.Verdict == "denied" || x.Verdict == "refused" {
		verdict = s.red(x.Verdict)
	}
	fmt.Fprintf(&b, "%s\n%s: %s\n", s.bold(printable(x.Request)), verdict, printable(x.Why))
	for i := range x.Rules {
		x.Rules[i].write(&b, s)
	}
	for i := range x.Descriptors {
		d := &x.Descriptors[i]
		fmt.Fprintf(&b, "\n%s\n", s.bold(printable(d.Entries)))
		for _, step := range d.Steps {
			fmt.Fprintf(&b, "  %s\n", printable(step))
		}
		writeLimits(&b, d.Limits)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *explainedRule) write(b *strings.Builder, s style) {
	name := r.Name
	if r.List {
		name += " list"
	}
	at := ""
	if r.File != "" {
		at = s.faint(fmt.Sprintf("  %s:%d", printable(r.File), r.Line))
	}
	fmt.Fprintf(b, "\n%s %s%s\n", s.mark(r.Matches), s.bold(printable(name)), at)
	for _, c := range r.Conditions {
		value := ""
		if c.Value != "" {
			value = s.faint(" — " + printable(c.Value))
		}
		fmt.Fprintf(b, "  %s %s%s\n", s.mark(c.Holds), printable(c.Text), value)
	}
	if len(r.Conditions) == 0 && r.Matches {
		fmt.Fprintf(b, "  %s all requests\n", s.mark(true))
	}
	for _, k := range r.Key {
		fmt.Fprintf(b, "  counts by %s = %s\n", printable(k.Name), printable(k.Value))
	}
	if r.Matches && !r.List && len(r.Key) == 0 {
		fmt.Fprintf(b, "  counts everybody together\n")
	}
	writeLimits(b, r.Limits)
	for _, note := range r.Notes {
		fmt.Fprintf(b, "  %s\n", printable(note))
	}
}

func writeLimits(b *strings.Builder, limits []explainedLimit) {
	for _, l := range limits {
		cost := ""
		if l.Cost != 1 {
			cost = fmt.Sprintf(", the request costs %d", l.Cost)
		}
		state := "nothing is spent"
		if l.ResetSeconds > 0 {
			reset := time.Duration(l.ResetSeconds * float64(time.Second)).Round(time.Millisecond)
			state = "all of it again after " + ruletest.FormatDuration(reset)
		}
		fmt.Fprintf(b, "  limit %s: %d of %d left, %s%s\n", l.Limit, l.Remaining, l.Of, state, cost)
	}
}
