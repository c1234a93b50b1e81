package match

import (
	"cmp"
	"fmt"
	"strings"
)

// Pattern is a path as rules write it: /users/{id}/posts, /files/**, /v*/items/*.json.
type Pattern struct {
	text     string
	segments []segment
	below    bool // ** at the end: whatever follows, also nothing
}

// segment is one part of a pattern, between slashes.
type segment struct {
	text     string
	wild     bool   // any segment: * or {name}
	name     string // of a {name}
	wildcard bool   // text has a * somewhere
}

// Text is the pattern as it was written.
func (p *Pattern) Text() string { return p.text }

// LiteralPattern is the pattern that one canonical path fits and no other.
func LiteralPattern(path string) *Pattern {
	p := &Pattern{text: path}
	for text := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if text != "" {
			p.segments = append(p.segments, segment{text: text})
		}
	}
	return p
}

// ParsePattern reads a pattern. Literal parts are made canonical like a request's path.
func ParsePattern(text string, ignoreCase bool) (*Pattern, error) {
	if !strings.HasPrefix(text, "/") {
		return nil, fmt.Errorf(`path %q does not begin with a slash: write "/%s"`, text, text)
	}
	p := &Pattern{text: text}
	rest := text
	if cut, ok := strings.CutSuffix(rest, "/**"); ok {
		rest, p.below = cut, true
	}
	if strings.Contains(rest, "**") {
		return nil, fmt.Errorf("path %q: ** may only stand alone at the end, as in /files/**", text)
	}
	if rest == "" || rest == "/" {
		return p, nil
	}
	for part := range strings.SplitSeq(strings.TrimSuffix(rest[1:], "/"), "/") {
		seg, err := parseSegment(part, ignoreCase)
		if err != nil {
			return nil, fmt.Errorf("path %q: %w", text, err)
		}
		if seg.name != "" && p.Capture(seg.name) >= 0 {
			return nil, fmt.Errorf("path %q: two segments are called {%s}: give each its own name", text, seg.name)
		}
		p.segments = append(p.segments, seg)
	}
	return p, nil
}

func parseSegment(part string, ignoreCase bool) (segment, error) {
	if part == "*" {
		return segment{text: part, wild: true}, nil
	}
	if strings.HasPrefix(part, "{") && strings.HasSuffix(part, "}") {
		name := part[1 : len(part)-1]
		if !IsName(name) {
			return segment{}, fmt.Errorf("%q is not a name for a segment: use letters, digits and _ as in {user_id}", part)
		}
		return segment{text: part, wild: true, name: name}, nil
	}
	if strings.ContainsAny(part, "{}") {
		return segment{}, fmt.Errorf("%q: a {name} stands for a whole segment, between two slashes", part)
	}
	// The stars are kept out of the way of the canonicaliser by taking the parts between them one by one.
	var literals []string
	for literal := range strings.SplitSeq(part, "*") {
		canonical, err := CanonicalPath("/x" + literal + "x") // so that . and .. cannot be all of it
		inner, whole := strings.CutPrefix(canonical, "/x")
		inner, whole2 := strings.CutSuffix(inner, "x")
		if err != nil || !whole || !whole2 || strings.ContainsAny(inner, "/*") || strings.Contains(literal, ";") {
			return segment{}, NotASegment(part)
		}
		literals = append(literals, inner)
	}
	if part == "" || part == "." || part == ".." {
		return segment{}, fmt.Errorf("%q is not a segment that a request's path can have: leave it out", part)
	}
	text := strings.Map(withoutSelectors, strings.Join(literals, "*"))
	switch plain := trimmedName(text); {
	case plain == "":
		return segment{}, fmt.Errorf("%q: no path has a segment of dots and spaces alone: leave it out", part)
	case plain != text:
		return segment{}, fmt.Errorf("%q: dots and spaces at the ends of a name are ignored, because some servers ignore them: write %q", part, plain)
	}
	if ignoreCase {
		text = strings.ToLower(text)
	}
	return segment{text: text, wildcard: strings.Contains(text, "*")}, nil
}

// NotASegment says why a request's path cannot have a segment, and what to write.
func NotASegment(part string) error {
	advice := "write it in its plain spelling"
	switch {
	case strings.Contains(part, "?"):
		advice = "a path ends before the question mark: match parameters with query"
	case strings.Contains(part, ";"):
		advice = "paths count without the semicolon and what follows it: leave that out"
	case strings.Contains(part, "/"):
		advice = "a slash separates segments: write one segment"
	case trimmedName(part) == "":
		advice = "leave it out"
	}
	return fmt.Errorf("%q is not a segment that a request's path can have: %s", part, advice)
}

// IsName accepts what people name attributes and segments.
func IsName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || (c < '0' || c > '9') && c != '-' && c != '.') {
			return false
		}
	}
	return s != ""
}

// Capture returns the number of the segment with this name, or -1.
func (p *Pattern) Capture(name string) int {
	for i := range p.segments {
		if p.segments[i].name == name {
			return i
		}
	}
	return -1
}

func (s *segment) matches(text string) bool {
	switch {
	case s.wild:
		return text != ""
	case s.wildcard:
		return wildcard(s.text, text)
	}
	return s.text == text
}

// matches reports whether a canonical path fits.
func (p *Pattern) Matches(path string) bool {
	rest := path[1:]
	for i := range p.segments {
		if rest == "" {
			return false
		}
		var text string
		text, rest, _ = strings.Cut(rest, "/")
		if !p.segments[i].matches(text) {
			return false
		}
	}
	return rest == "" || p.below
}

// NthSegment is a segment of a canonical path, or the empty string.
func NthSegment(path string, n int) string {
	rest := path[1:]
	for ; n > 0; n-- {
		_, rest, _ = strings.Cut(rest, "/")
	}
	text, _, _ := strings.Cut(rest, "/")
	return text
}

// wildcard reports whether the text fits a pattern in which each * stands for any characters, also none. Literals between
// stars are looked for from the left, which finds a fit if there is one.
func wildcard(pattern, text string) bool {
	first, rest, starred := strings.Cut(pattern, "*")
	if !starred {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, first)
	if !ok {
		return false
	}
	for {
		literal, after, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(text, literal)
		}
		i := strings.Index(text, literal)
		if i < 0 {
			return false
		}
		text, rest = text[i+len(literal):], after
	}
}

// Covers tells that every path that fits the narrow pattern fits this one.
func (p *Pattern) Covers(narrow *Pattern) bool {
	if len(p.segments) > len(narrow.segments) || !p.below && (narrow.below || len(p.segments) != len(narrow.segments)) {
		return false
	}
	for i := range p.segments {
		wide, n := &p.segments[i], &narrow.segments[i]
		if !wide.wild && (n.wild || n.wildcard && wide.text != n.text || !n.wildcard && !wide.matches(n.text)) {
			return false
		}
	}
	return true
}

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

// HasPrefix reports whether every path that fits the pattern begins with a canonical path: equals it, or goes on with a slash.
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
