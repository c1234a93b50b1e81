package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluiceproject/sluice"
)

// Explanation explains how a set matches a request, rule by rule.
type Explanation struct {
	Outcome MatchOutcome
	Reason  string // for MatchRejected and MatchExempt
	Err     error  // the request is rejected because its key or cost cannot be determined
	Rules   []RuleExplanation
	Takes   []sluice.Take // as returned by Match, with keys that remain valid
	// LoadClass is the load-shedding class of the request; nil if the set has no priorities or adaptive limits, or Err
	// is set.
	LoadClass *LoadClassExplanation
}

// LoadClassExplanation is the result of [Set.LoadClass] and the entry it comes from.
type LoadClassExplanation struct {
	LoadClass
	Pos Position // of the entry that sets the priority; zero if none does
}

// RuleExplanation explains how one rule, or one entry of the allow and deny lists, matches a request.
type RuleExplanation struct {
	Name       string
	Pos        Position
	Rule       *Rule // nil for an entry of a list
	Matches    bool
	Conditions []Condition
	Notes      []string // why it does not count although it matches, and where its limits come from
	Key        []KeyPart
	Takes      []sluice.Take
}

// Condition is one condition of a rule with the request's value.
type Condition struct {
	Text    string // "method is POST"
	Value   string // the request's value, masked if secret
	Matched bool
}

// KeyPart is one attribute of a rule's key with its value, masked if secret, as returned by [Set.KeyParts].
type KeyPart struct{ Name, Value string }

// Explain matches a request against every rule and explains why each applies or not. It charges nothing.
func (s *Set) Explain(r Request) *Explanation {
	m := MatchResult{Concurrency: true}
	e := &Explanation{}
	e.Err = s.Match(r, &m)
	e.Outcome, e.Reason = m.Outcome, m.Reason
	for _, t := range m.Takes {
		t.Key = strings.Clone(t.Key)
		e.Takes = append(e.Takes, t)
	}
	if e.Outcome == MatchExempt {
		e.Reason = "on the allow list"
	}
	for i := range s.items {
		e.Rules = append(e.Rules, s.explainItem(&s.fast[i], r))
	}
	e.explainLoadClass(s, r)
	for i := range s.cfg.Rules {
		if rule := &s.cfg.Rules[i]; rule.Disabled {
			off := RuleExplanation{Name: rule.Name, Pos: rule.Pos, Rule: rule, Notes: []string{"is not enabled"}}
			e.Rules = slices.Insert(e.Rules, min(len(e.Rules), i+len(s.cfg.AllowList)+len(s.cfg.DenyList)), off)
		}
	}
	return e
}

func (e *Explanation) explainLoadClass(s *Set, r Request) {
	if len(s.loads.items) == 0 || e.Err != nil {
		return
	}
	var m MatchResult
	m.begin(s, r)
	l, entry, err := s.loadClass(&m)
	if err != nil {
		e.Err = err
		return
	}
	e.LoadClass = &LoadClassExplanation{LoadClass: l}
	if entry >= 0 {
		e.LoadClass.Pos = s.cfg.Priorities[entry].Pos
	}
}

func (s *Set) explainItem(f *fast, r Request) RuleExplanation {
	m := MatchResult{Concurrency: true}
	it := f.item
	m.begin(s, r)
	x := RuleExplanation{Pos: it.source.Pos, Matches: true}
	switch it.kind {
	case denies:
		x.Name = "deny"
	case allows:
		x.Name = "allow"
	default:
		x.Name, x.Pos, x.Rule = it.rule.Name, it.rule.Pos, it.rule
	}
	for i := range it.predicates {
		c := it.predicates[i].explain(&m)
		x.Conditions = append(x.Conditions, c)
		x.Matches = x.Matches && c.Matched
	}
	for _, except := range it.except {
		all, texts := true, []string{}
		for j := range except {
			c := except[j].explain(&m)
			all = all && c.Matched
			texts = append(texts, c.Text)
		}
		x.Conditions = append(x.Conditions, Condition{Text: "except where " + strings.Join(texts, " and "), Matched: !all})
		x.Matches = x.Matches && !all
	}
	if x.Matches && it.kind == limits {
		x.explainTakes(&m, f)
	}
	return x
}

func (x *RuleExplanation) explainTakes(m *MatchResult, f *fast) {
	it, r := f.item, f.rule
	k, complete, err := m.key(f)
	if err == nil {
		x.Key, _ = m.set.itemParts(it, k)
		err = m.take(f)
	}
	switch {
	case err != nil:
		x.Notes = append(x.Notes, err.Error())
	case !complete && r.OnMissing == MissingSkip:
		x.Notes = append(x.Notes, "does not apply: the request lacks an attribute of per (on_missing: skip)")
	case len(m.Shadowed) > 0:
		x.Notes = append(x.Notes, "would reject the request: it lacks an attribute of per, or its key or cost cannot be read, or an override or tier denies it")
	case !complete && r.OnMissing == MissingReject:
		x.Notes = append(x.Notes, "rejects the request: it lacks an attribute of per (on_missing: reject)")
	case !complete:
		x.Notes = append(x.Notes, "all requests without the attribute share one bucket")
	}
	_, overridden := it.overrides[k]
	tier := ""
	if it.tierBy != byNothing {
		if v, found, _ := m.referred(it, it.tierBy, r.Tiers.By.Name); found == Present {
			if _, has := it.tiers[v]; has {
				tier = v
			}
		}
	}
	switch {
	case overridden:
		x.Notes = append(x.Notes, "the limits are those of an override for this key")
	case tier != "":
		x.Notes = append(x.Notes, fmt.Sprintf("the limits are those of tier %q", tier))
	}
	if err == nil && len(m.Takes)+len(m.Shadowed) == 0 && m.Outcome != MatchRejected && (complete || r.OnMissing == MissingShare) {
		x.Notes = append(x.Notes, "is unlimited for this key")
	}
	if !r.Shadow && !r.enforces(k) {
		x.Notes = append(x.Notes, fmt.Sprintf("is in shadow mode for this key: it is enforced for %s of the keys", percent(r.EnforceBasisPoints)))
	} else if r.Shadow {
		x.Notes = append(x.Notes, "is in shadow mode: it reports and does not deny")
	}
	for _, t := range m.Takes {
		t.Key = strings.Clone(t.Key)
		x.Takes = append(x.Takes, t)
	}
}

// percent formats hundredths of a percent.
func percent(hundredths int) string {
	s := fmt.Sprintf("%d.%02d", hundredths/100, hundredths%100)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".") + "%"
}

func (m *MatchResult) shownValue(attr int) string {
	text, found, err := m.value(attr)
	switch {
	case err != nil:
		return "(" + err.Error() + ")"
	case found == Absent:
		return "(none)"
	case m.set.attrs[attr].secret:
		shown, _ := m.set.showPart(&part{attr: attr}, string(appendSecret(nil, &m.set.secret, text)))
		return shown
	}
	return text
}

func (p *predicate) explain(m *MatchResult) Condition {
	c := Condition{Text: p.source.String()}
	if p.ip {
		c.Value = "(no address)"
		if m.addr != (netip.Addr{}) {
			c.Value = m.addr.String()
		}
	} else {
		c.Value = m.shownValue(p.attr)
		if m.set.attrs[p.attr].secret && p.present == nil { // the rule's values are as secret as the request's
			c.Text = p.source.Ref.Name + " equals the rule's value (secret)"
		}
	}
	c.Matched, _ = p.holds(m)
	return c
}

// String describes the condition: "method is POST or PUT".
func (p *Predicate) String() string {
	if p.Present != nil {
		if *p.Present {
			return p.Ref.Name + " is present"
		}
		return p.Ref.Name + " is absent"
	}
	var parts []string
	add := func(verb string, values []string) {
		const most = 5
		if len(values) > most {
			values = append(slices.Clone(values[:most-1]), fmt.Sprintf("one of %d more", len(values)-most+1))
		}
		if len(values) > 0 {
			parts = append(parts, verb+" "+strings.Join(values, " or "))
		}
	}
	is := "is"
	if p.Ref.Name == "ip" {
		is = "is in"
	}
	add(is, p.Values)
	add("is", p.Patterns)
	add("begins with", p.Prefixes)
	add("ends with", p.Suffixes)
	add("matches", p.Regexps)
	text := p.Ref.Name + " " + strings.Join(parts, ", or ")
	if p.Not {
		return "not: " + text
	}
	return text
}
