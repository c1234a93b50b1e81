package rules

import (
	"fmt"
	"strings"
)

// DescriptorExplanation explains how a descriptor found its limit, or why it has none.
type DescriptorExplanation struct {
	Limit    *DescriptorLimit // nil: not limited
	Replaced bool
	Steps    []DescriptorStep // one for each examined entry
	Outcome  string           // how it ended
}

// DescriptorStep is the choice of a rule for one entry.
type DescriptorStep struct {
	Entry Entry
	By    EntryMatch
	Rule  *DescriptorRule // nil: no rule was found
	// Considered lists the other rules that were examined, or would have been, with the reason why they were not
	// chosen, in that order.
	Considered []string
}

// maxConsidered is the maximum number of listed wildcards that do not match.
const maxConsidered = 10

// ExplainDescriptors explains step by step how [Set.MatchDescriptors] matches a request's descriptors.
func (s *Set) ExplainDescriptors(domain string, ds []Descriptor) []DescriptorExplanation {
	return explainDescriptors(s.domains[domain], domain, ds)
}

func explainDescriptors(t *domainTree, domain string, ds []Descriptor) []DescriptorExplanation {
	var m DescriptorMatches
	t.match(ds, &m)
	all := make([]DescriptorExplanation, len(ds))
	for i := range ds {
		x := &all[i]
		if t == nil {
			x.Outcome = fmt.Sprintf("there is no domain %q: not limited", domain)
			continue
		}
		x.Limit, x.Replaced = m.Matches[i].Limit, m.Matches[i].Replaced
		x.Steps, x.Outcome = t.explain(ds[i].Entries)
		if x.Replaced {
			x.Outcome = fmt.Sprintf("replaced by %s: not counted", strings.Join(replacers(&m, x.Limit.Name), " and "))
		}
	}
	return all
}

// replacers returns the rules of a request that replace a name.
func replacers(m *DescriptorMatches, name string) []string {
	var by []string
	seen := make(map[*DescriptorLimit]bool)
	for i := range m.Matches {
		limit := m.Matches[i].Limit
		if limit == nil || seen[limit] {
			continue
		}
		seen[limit] = true
		for _, replaced := range limit.Replaces {
			if replaced == name {
				by = append(by, descriptorName(limit.Domain, limit.path))
				break
			}
		}
	}
	return by
}

// explain walks the tree like find, with the same choices.
func (t *domainTree) explain(entries []Entry) (steps []DescriptorStep, outcome string) {
	if len(entries) == 0 {
		return nil, "the descriptor has no entries: not limited"
	}
	var scratch compositeScratch
	var path []*domainNode
	level := t.top
	for i := range entries {
		e := &entries[i]
		above := descriptorName(t.name, path)
		if level == nil {
			return steps, fmt.Sprintf("the rule %s ends here but the descriptor goes on with entry %d, %s: not limited",
				above, i+1, e.label())
		}
		n, by := level.choose(e, &scratch)
		step := DescriptorStep{Entry: *e, By: by, Considered: level.considered(e, n, by)}
		if n == nil {
			outcome = fmt.Sprintf("entry %d: %s below %s: not limited", i+1, level.nothingFor(e), above)
			return append(steps, step), outcome
		}
		step.Rule = n.rule
		steps = append(steps, step)
		path, level = append(path, n), n.below
	}
	return steps, path[len(path)-1].outcome(descriptorName(t.name, path))
}

// outcome describes the outcome of a descriptor that ends at this rule.
func (n *domainNode) outcome(name string) string {
	switch {
	case n.limit == nil && n.below != nil:
		return fmt.Sprintf("whitelisted: %s has no rate_limit of its own, only rules below it", name)
	case n.limit == nil:
		return fmt.Sprintf("whitelisted: %s has no rate_limit", name)
	case n.limit.Unlimited:
		return fmt.Sprintf("%s is unlimited: not counted", name)
	}
	limits := make([]string, len(n.limit.Rules))
	for i, r := range n.limit.Rules {
		limits[i] = r.Limit.String()
	}
	s := fmt.Sprintf("limited by %s: %s", name, strings.Join(limits, " and "))
	if n.limit.Shadow {
		s += ", in shadow mode"
	}
	return s
}

func (e *Entry) label() string { return nameToken(e.Key) + "=" + nameToken(e.Value) }

// nothingFor describes which rule a level lacks for an entry.
func (l *domainLevel) nothingFor(e *Entry) string {
	for _, n := range l.inOrder {
		if n.rule.Key == e.Key {
			return fmt.Sprintf("no rule for %s, and none for any value of %q,", e.label(), e.Key)
		}
	}
	return fmt.Sprintf("no rule for key %q", e.Key)
}

// considered lists the siblings of the chosen rule in the order in which they are examined.
func (l *domainLevel) considered(e *Entry, chosen *domainNode, by EntryMatch) []string {
	var all []string
	if by != EntryExact {
		all = append(all, fmt.Sprintf("no rule is exactly %s", e.label()))
	}
	unmatched := 0
	for _, n := range l.inOrder {
		switch {
		case n == chosen || n.pattern == nil:
		case by == EntryWildcard && n.order > chosen.order:
			if n.pattern.matches(e.Key + "_" + e.Value) {
				all = append(all, fmt.Sprintf("wildcard %s matches too, but comes later", n.rule.label()))
			}
		case by == EntryExact:
			if n.pattern.matches(e.Key + "_" + e.Value) {
				all = append(all, fmt.Sprintf("wildcard %s matches too, but an exact rule comes first", n.rule.label()))
			}
		case n.rule.Key == e.Key || strings.Contains(n.rule.Key, "*"): // it does not match, or it would have been chosen
			if unmatched++; unmatched <= maxConsidered {
				all = append(all, fmt.Sprintf("wildcard %s does not match", n.rule.label()))
			}
		}
	}
	if unmatched > maxConsidered {
		all = append(all, fmt.Sprintf("%d more wildcards do not match", unmatched-maxConsidered))
	}
	if n := l.byComposite[e.Key]; n != nil && n != chosen {
		all = append(all, fmt.Sprintf("the rule %s for any value comes last", n.rule.label()))
	}
	return all
}

// Lines returns the explanation as text, one line per step.
func (x *DescriptorExplanation) Lines() []string {
	var lines []string
	for i := range x.Steps {
		s := &x.Steps[i]
		line := fmt.Sprintf("entry %d, %s: %v", i+1, s.Entry.label(), s.By)
		if s.Rule != nil {
			line += " " + s.Rule.label()
			if at := s.Rule.Pos.String(); at != "" {
				line += " at " + at
			}
		}
		lines = append(lines, line)
		for _, other := range s.Considered {
			lines = append(lines, "  "+other)
		}
	}
	return append(lines, x.Outcome)
}
