package rules

import (
	"maps"
	"slices"
	"strings"
	"unsafe"
)

// compositePattern is a composite with * in it. Each * stands for any text, also for none and for one with slashes and
// underscores. What stands before the first is how a text must begin, what stands after the last is how it must end,
// and the two may not overlap; what stands between must follow in order.
type compositePattern struct {
	prefix, suffix string
	middle         []string
}

// newCompositePattern reads a text that has at least one *.
func newCompositePattern(text string) *compositePattern {
	literals := strings.Split(text, "*")
	last := len(literals) - 1
	return &compositePattern{
		prefix: literals[0],
		suffix: literals[last],
		middle: slices.DeleteFunc(literals[1:last], func(s string) bool { return s == "" }),
	}
}

// matches takes time proportional to the text's length however many * there are: a literal that is taken where it first
// occurs leaves the most for those after it, so that nothing needs to be tried twice.
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

// mayOverlap is false only if no text matches both.
func (p *compositePattern) mayOverlap(q *compositePattern) bool {
	n := min(len(p.prefix), len(q.prefix))
	k := min(len(p.suffix), len(q.suffix))
	return p.prefix[:n] == q.prefix[:n] && p.suffix[len(p.suffix)-k:] == q.suffix[len(q.suffix)-k:]
}

// affixes is a set of texts, arranged so that those that a given text begins with are found without looking at the
// others: they are a chain, from the longest to shorter ones.
type affixes[T any] []affix[T]

// affix is one text of affixes, which are sorted.
type affix[T any] struct {
	text   string
	parent int // the longest other that it begins with, or -1
	value  T
}

func newAffixes[T any](values map[string]T) affixes[T] {
	var all affixes[T]
	var open []int // those that the text at hand begins with
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

// longest is the number of the longest that the text begins with, or -1. The next shorter ones are its parents.
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
	// The last that does not sort behind the text begins with the one that is looked for, because whatever sorts
	// between two texts begins with what both begin with.
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

// wildcardIndex finds the first of a level's wildcard rules that matches. It looks only at rules that begin and end as
// the composite does: thousands of tenants' paths, or of their host names, cost no more than a few. Only rules that
// differ in nothing but what is between two * are tried one by one.
type wildcardIndex struct {
	byPrefix affixes[affixes[[]*domainNode]] // then by reversed suffix; those with both alike in configuration order
	suffixed bool                            // some have a suffix
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

// first returns the first rule that matches the composite, or nil. Backwards is the composite reversed; it may be empty
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

// match is first with the reversing done, for what is not in a hurry.
func (x *wildcardIndex) match(composite string) *domainNode {
	return x.first(composite, string(appendReversed(nil, composite)))
}

func appendReversed(b []byte, s string) []byte {
	for i := len(s) - 1; i >= 0; i-- {
		b = append(b, s[i])
	}
	return b
}

// EntryMatch is how an entry of a descriptor found its rule.
type EntryMatch uint8

const (
	EntryUnmatched EntryMatch = iota
	EntryExact                // by key and value
	EntryWildcard             // by a rule with a * in it
	EntryKeyOnly              // by a rule for any value
)

var entryMatchNames = [...]string{"no rule", "exact", "wildcard", "key only"}

func (m EntryMatch) String() string { return entryMatchNames[min(int(m), len(entryMatchNames)-1)] }

// compositeScratch is room to write composites in.
type compositeScratch struct{ forwards, backwards []byte }

// choose finds the rule for an entry. There is at most one, and it stays the choice even if nothing below it matches.
func (l *domainLevel) choose(e *Entry, s *compositeScratch) (*domainNode, EntryMatch) {
	s.forwards = append(append(append(s.forwards[:0], e.Key...), '_'), e.Value...)
	composite := unsafe.String(&s.forwards[0], len(s.forwards)) // not kept beyond this call
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
