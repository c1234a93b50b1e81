package rules

import (
	"fmt"
	"strings"
)

// domainWarnings finds valid but probably unintended parts of a domain: rules that no request reaches, rules without
// effect, and replaces that replace nothing. It gets the configuration for its order, and the trees compiled from it.
func domainWarnings(cfg *Config, trees map[string]*domainTree) []Warning {
	w := &domainWarner{}
	for i := range cfg.Domains {
		t := trees[cfg.Domains[i].Name]
		w.domain = t.name
		w.names = make(map[string]bool)
		for _, l := range t.limits {
			w.names[l.Name] = w.names[l.Name] || !l.Unlimited
		}
		w.level(t.top, nil)
	}
	return w.found
}

type domainWarner struct {
	found  []Warning
	domain string
	names  map[string]bool // names of the domain's limits; true if a limit with the name can be replaced
}

func (w *domainWarner) warn(n *domainNode, path []*domainNode, format string, args ...any) {
	w.found = append(w.found, Warning{
		Pos: n.rule.Pos, Rule: descriptorName(w.domain, path), Msg: fmt.Sprintf(format, args...),
	})
}

func (w *domainWarner) level(l *domainLevel, above []*domainNode) {
	for _, n := range l.inOrder {
		path := append(above[:len(above):len(above)], n)
		switch by := l.coveredBy(n); {
		case by != nil && n.pattern != nil:
			w.warn(n, path, "never matches: the earlier rule %s matches everything that it could match: "+
				"move it before that rule", by.rule.label())
		case by != nil:
			w.warn(n, path, "never matches: the rule %s matches every value of %q, and rules with a * come before "+
				"those for any value: remove one of the two", by.rule.label(), n.rule.Key)
		case n.limit == nil && n.below == nil && !l.exempts(n):
			w.warn(n, path, "has no effect: it has neither a rate_limit nor descriptors, and without it "+
				"the same requests would not be limited either: add a rate_limit, or remove it")
		}
		w.replaces(n, path)
		if n.below != nil {
			w.level(n.below, path)
		}
	}
}

// coveredBy returns a sibling that matches everything that n could match and comes before it. A rule for key and value
// has none. A literal * in a request's value does not count.
func (l *domainLevel) coveredBy(n *domainNode) *domainNode {
	// A pattern covers another if it matches the text of that pattern: no literal of a pattern contains *, so that only
	// a * can have matched the * in the text, and it also matches anything else in its place.
	switch {
	case n.pattern != nil:
		if by := l.wildcards.match(n.composite); by != n {
			return by
		}
	case n.rule.Value == "":
		return l.wildcards.match(n.rule.Key + "_*")
	}
	return nil
}

// exempts reports whether a request that matches n might match a sibling if n did not exist.
func (l *domainLevel) exempts(n *domainNode) bool {
	if n.pattern == nil {
		return l.exemptsComposite(n)
	}
	for _, other := range l.inOrder {
		switch {
		case other == n:
		case other.pattern != nil && other.order > n.order && n.pattern.mayOverlap(other.pattern):
			return true
		case other.rule.Value == "" && n.pattern.mayOverlap(newCompositePattern(other.rule.Key+"_*")):
			return true
		}
	}
	return false
}

// exemptsComposite reports whether exempts holds for a rule without *. A rule for any value is examined last, so that it
// cannot take a request from its siblings; but its key may equal the joined key and value of a request.
func (l *domainLevel) exemptsComposite(n *domainNode) bool {
	if n.rule.Value == "" && !strings.Contains(n.composite, "_") {
		return false
	}
	if l.wildcards.match(n.composite) != nil {
		return true
	}
	for i := range len(n.composite) {
		if n.composite[i] == '_' && l.byComposite[n.composite[:i]] != nil {
			return true
		}
	}
	return false
}

func (w *domainWarner) replaces(n *domainNode, path []*domainNode) {
	if n.limit == nil {
		return
	}
	for _, name := range n.limit.Replaces {
		switch replaceable, exists := w.names[name]; {
		case !exists:
			w.warn(n, path, "replaces %q, but no rate_limit of the domain has this name", name)
		case !replaceable:
			w.warn(n, path, "replaces %q, which is unlimited and so never replaced", name)
		}
	}
}
