package match

import "strings"

// Index finds the rules whose pattern a path fits: a tree of segments. Patterns have no ** but at the end, so a
// path is walked once along each branch that it fits.
type Index struct {
	literals map[string]*Index
	wild     *Index
	here     Numbers     // rules whose pattern ends here
	below    Numbers     // rules whose pattern goes on with **
	globs    *[]pathGlob // segments with a * inside
}

type pathGlob struct {
	segment segment
	next    *Index
}

func (x *Index) Add(p *Pattern, rule int32) {
	for i := range p.segments {
		x = x.child(&p.segments[i])
	}
	if p.below {
		x.below = x.below.With(rule)
	} else {
		x.here = x.here.With(rule)
	}
}

func (x *Index) child(s *segment) *Index {
	switch {
	case s.wild:
		if x.wild == nil {
			x.wild = new(Index)
		}
		return x.wild
	case s.wildcard:
		if x.globs == nil {
			x.globs = new([]pathGlob)
		}
		for _, g := range *x.globs {
			if g.segment.text == s.text {
				return g.next
			}
		}
		next := new(Index)
		*x.globs = append(*x.globs, pathGlob{*s, next})
		return next
	}
	if x.literals == nil {
		x.literals = make(map[string]*Index)
	}
	next := x.literals[s.text]
	if next == nil {
		next = new(Index)
		x.literals[s.text] = next
	}
	return next
}

// Find appends the rules whose pattern the rest of a path fits.
func (x *Index) Find(rest string, found []int32) []int32 {
	found = x.below.AppendTo(found)
	if rest == "" {
		return x.here.AppendTo(found)
	}
	text, rest, _ := strings.Cut(rest, "/")
	if next := x.literals[text]; next != nil {
		found = next.Find(rest, found)
	}
	if x.wild != nil {
		found = x.wild.Find(rest, found)
	}
	if x.globs != nil {
		for i := range *x.globs {
			if g := &(*x.globs)[i]; wildcard(g.segment.text, text) {
				found = g.next.Find(rest, found)
			}
		}
	}
	return found
}

// Numbers is a list of items that is mostly one long, which then needs no memory of its own.
type Numbers struct {
	first int32
	n     int32
	more  *[]int32
}

// With returns the list with another number.
func (l Numbers) With(number int32) Numbers {
	switch {
	case l.n == 0:
		l.first = number
	case l.more == nil:
		l.more = &[]int32{number}
	default:
		*l.more = append(*l.more, number)
	}
	l.n++
	return l
}

// AppendTo appends the numbers to others.
func (l *Numbers) AppendTo(found []int32) []int32 {
	switch l.n {
	case 0:
		return found
	case 1:
		return append(found, l.first)
	}
	return append(append(found, l.first), *l.more...)
}
