package match

import (
	"cmp"
	"strings"
)

// Compare orders patterns: below zero if p comes before q. Of two that a path fits, the more specific comes first. They
// are compared segment by segment: a literal comes before one with a * in it, of which the longer comes first, before a
// * or {name} alone, before the end of the pattern, before **. It is zero for patterns that the same paths fit.
func (p *Pattern) Compare(q *Pattern) int {
	for i := 0; ; i++ {
		a, b := p.rank(i), q.rank(i)
		if a != b || a >= rankEnd {
			return cmp.Compare(a, b)
		}
		if a == rankWild {
			continue
		}
		s, t := p.segments[i].text, q.segments[i].text
		if s != t {
			return cmp.Or(cmp.Compare(len(t), len(s)), strings.Compare(s, t))
		}
	}
}

const (
	rankLiteral = iota
	rankPart    // a * inside
	rankWild
	rankEnd
	rankBelow
)

func (p *Pattern) rank(i int) int {
	switch {
	case i == len(p.segments) && p.below:
		return rankBelow
	case i == len(p.segments):
		return rankEnd
	case p.segments[i].wild:
		return rankWild
	case p.segments[i].wildcard:
		return rankPart
	}
	return rankLiteral
}

// HasPrefix tells whether every path that fits the pattern begins with a canonical path: equals it, or goes on with a slash.
func (p *Pattern) HasPrefix(canonical string) bool {
	if canonical == "/" {
		return true
	}
	i := 0
	for text := range strings.SplitSeq(canonical[1:], "/") {
		if i == len(p.segments) || p.rank(i) != rankLiteral || p.segments[i].text != text {
			return false
		}
		i++
	}
	return true
}

// Table finds the first of several patterns that a path fits, without looking at those that it cannot fit.
type Table struct{ index Index }

// Add enters a pattern under a number.
func (t *Table) Add(p *Pattern, number int) { t.index.Add(p, int32(number)) }

// First is the smallest number whose pattern a canonical path fits, or -1. Dots and spaces at the ends of names, and variation
// selectors, do not count, as for rules.
func (t *Table) First(canonical string) int {
	var room [16]int32
	first := int32(-1)
	for _, n := range t.index.Find(LoosePath(canonical)[1:], room[:0]) {
		if first < 0 || n < first {
			first = n
		}
	}
	return int(first)
}
