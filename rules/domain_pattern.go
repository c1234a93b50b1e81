package rules

import (
	"maps"
	"slices"
	"strings"
	"unsafe"
)

// compositePattern is a composite with *. Each * matches any text, also the empty text and one with slashes and
// underscores. A text must begin with the literal before the first * and end with the literal after the last *, without
// overlap; the literals between must follow in order.
type compositePattern struct {
	prefix, suffix string
	middle         []string
}

// newCompositePattern parses a text with at least one *.
func newCompositePattern(text string) *compositePattern {
	literals := strings.Split(text, "*")
	last := len(literals) - 1
	return &compositePattern{
		prefix: literals[0],
		suffix: literals[last],
		middle: slices.DeleteFunc(literals[1:last], func(s string) bool { return s == "" }),
	}
}

// matches reports whether text matches. It takes time proportional to the text's length, regardless of the number of *:
// taking a literal at its first occurrence leaves the most text for the following ones, so that nothing is tried twice.
func (p *compositePattern) matches(text string) bool {
	if len(text) < len(p.prefix)+len(p.suffix) ||
		!strings.HasPrefix(text, p.prefix) || !strings.HasSuffix(text, p.suffix) {
		return false
	}
	rest := text[len(p.prefix) : len(text)-len(p.suffix)]
	for _, literal := range p.middle {
		i := strings.Index(rest, literal)
		if i < 0 {
			return false
		}
		rest = rest[i+len(literal):]
	}
	return true
}

// mayOverlap reports whether some text may match both patterns. It may return true if none does, but not the reverse.
func (p *compositePattern) mayOverlap(q *compositePattern) bool {
	n := min(len(p.prefix), len(q.prefix))
	k := min(len(p.suffix), len(q.suffix))
	return p.prefix[:n] == q.prefix[:n] && p.suffix[len(p.suffix)-k:] == q.suffix[len(q.suffix)-k:]
}

// affixes is a set of texts, arranged so that the prefixes of a given text are found without examining the others: they
// form a chain, from the longest to shorter ones.
type affixes[T any] []affix[T]

// affix is one text of affixes, which are sorted.
type affix[T any] struct {
	text   string
	parent int // the longest other text that it begins with, or -1
	value  T
}

func newAffixes[T any](values map[string]T) affixes[T] {
	var all affixes[T]
	var open []int // the texts that the current text begins with
	for _, text := range slices.Sorted(maps.Keys(values)) {
		for len(open) > 0 && !strings.HasPrefix(text, all[open[len(open)-1]].text) {
			open = open[:len(open)-1]
		}
		parent := -1
		if len(open) > 0 {
			parent = open[len(open)-1]
		}
		open = append(open, len(all))
		all = append(all, affix[T]{text, parent, values[text]})
	}
	return all
}

// longest returns the index of the longest text that is a prefix of text, or -1. Shorter prefixes are its parents.
func (a affixes[T]) longest(text string) int {
	low, high := 0, len(a)
	for low < high {
		mid := int(uint(low+high) / 2)
		if a[mid].text <= text {
			low = mid + 1
		} else {
			high = mid
		}
	}
	// The last text that does not sort after the given one begins with the result, because every text that sorts
	// between two texts begins with their common prefix.
	i := low - 1
	if i < 0 {
		return -1
	}
	shared := commonPrefix(a[i].text, text)
	for i >= 0 && len(a[i].text) > shared {
		i = a[i].parent
	}
	return i
}

func commonPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// wildcardIndex finds the first of a level's wildcard rules that matches. It examines only rules that begin and end
// like the composite: thousands of tenants' paths or host names cost no more than a few. Only rules that differ in
// nothing but the text between two * are tried one by one.
type wildcardIndex struct {
	byPrefix affixes[affixes[[]*domainNode]] // then by reversed suffix; equal ones in configuration order
	suffixed bool                            // some rules have a suffix
}

func newWildcardIndex(nodes []*domainNode) wildcardIndex {
	var x wildcardIndex
	groups := make(map[string]map[string][]*domainNode)
	for _, n := range nodes {
		if n.pattern == nil {
			continue
		}
		group := groups[n.pattern.prefix]
		if group == nil {
			group = make(map[string][]*domainNode)
			groups[n.pattern.prefix] = group
		}
		suffix := string(appendReversed(nil, n.pattern.suffix))
		group[suffix] = append(group[suffix], n)
		x.suffixed = x.suffixed || suffix != ""
	}
	bySuffix := make(map[string]affixes[[]*domainNode], len(groups))
	for prefix, group := range groups {
		bySuffix[prefix] = newAffixes(group)
	}
	x.byPrefix = newAffixes(bySuffix)
	return x
}

func (x *wildcardIndex) empty() bool { return len(x.byPrefix) == 0 }

// first returns the first rule that matches the composite, or nil. backwards is the reversed composite; it may be empty
// if no rule has a suffix.
func (x *wildcardIndex) first(composite, backwards string) *domainNode {
	var best *domainNode
	for i := x.byPrefix.longest(composite); i >= 0; i = x.byPrefix[i].parent {
		bySuffix := x.byPrefix[i].value
		for j := bySuffix.longest(backwards); j >= 0; j = bySuffix[j].parent {
			for _, n := range bySuffix[j].value {
				if best != nil && best.order < n.order {
					break
				}
				if n.pattern.matches(composite) {
					best = n
					break
				}
			}
		}
	}
	return best
}

// match is first including the reversal, for callers that are not time-critical.
func (x *wildcardIndex) match(composite string) *domainNode {
	return x.first(composite, string(appendReversed(nil, composite)))
}

func appendReversed(b []byte, s string) []byte {
	for i := len(s) - 1; i >= 0; i-- {
		b = append(b, s[i])
	}
	return b
}

// EntryMatch is the way in which an entry of a descriptor found its rule.
type EntryMatch uint8

const (
	EntryUnmatched EntryMatch = iota
	EntryExact                // by key and value
	EntryWildcard             // by a rule with a *
	EntryKeyOnly              // by a rule for any value
)

var entryMatchNames = [...]string{"no rule", "exact", "wildcard", "key only"}

func (m EntryMatch) String() string { return entryMatchNames[min(int(m), len(entryMatchNames)-1)] }

// compositeScratch is scratch space for composites.
type compositeScratch struct{ forwards, backwards []byte }

// choose finds the rule for an entry. There is at most one, and it remains the choice even if nothing below it matches.
func (l *domainLevel) choose(e *Entry, s *compositeScratch) (*domainNode, EntryMatch) {
	s.forwards = append(append(append(s.forwards[:0], e.Key...), '_'), e.Value...)
	composite := unsafe.String(&s.forwards[0], len(s.forwards)) // not used after this call
	if n := l.byComposite[composite]; n != nil {
		return n, EntryExact
	}
	if !l.wildcards.empty() {
		var backwards string
		if l.wildcards.suffixed {
			s.backwards = appendReversed(s.backwards[:0], composite)
			backwards = unsafe.String(&s.backwards[0], len(s.backwards))
		}
		if n := l.wildcards.first(composite, backwards); n != nil {
			return n, EntryWildcard
		}
	}
	if n := l.byComposite[e.Key]; n != nil {
		return n, EntryKeyOnly
	}
	return nil, EntryUnmatched
}
