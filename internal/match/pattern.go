package match

import (
	"cmp"
	"fmt"
	"strings"
)

// Pattern is a path pattern of a rule: /users/{id}/posts, /files/**, /v*/items/*.json.
type Pattern struct {
	text     string
	segments []segment
	below    bool // ** at the end: any further segments, or none
}

// segment is the part of a pattern between two slashes.
type segment struct {
	text     string
	wild     bool   // any segment: * or {name}
	name     string // NAME of {NAME}
	wildcard bool   // text contains a *
}

// Text returns the pattern as written.
func (p *Pattern) Text() string { return p.text }

// LiteralPattern returns the pattern that matches only one canonical path.
func LiteralPattern(path string) *Pattern {
	p := &Pattern{text: path}
	for text := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if text != "" {
			p.segments = append(p.segments, segment{text: text})
		}
	}
	return p
}

// ParsePattern parses a pattern. It brings literal parts into canonical form like the path of a request.
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
		return nil, fmt.Errorf("path %q: ** is only valid as the last segment, as in /files/**", text)
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
			return nil, fmt.Errorf("path %q: two segments have the name {%s}: rename one", text, seg.name)
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
			return segment{}, fmt.Errorf("%q is not a valid segment name: use letters, digits and _, as in {user_id}", part)
		}
		return segment{text: part, wild: true, name: name}, nil
	}
	if strings.ContainsAny(part, "{}") {
		return segment{}, fmt.Errorf("%q: {name} must be a whole segment, between two slashes", part)
	}
	// The parts between the stars are canonicalized one by one, because a star is not valid in a path.
	var literals []string
	for literal := range strings.SplitSeq(part, "*") {
		canonical, err := CanonicalPath("/x" + literal + "x") // surrounded by x, so that it cannot be . or ..
		inner, whole := strings.CutPrefix(canonical, "/x")
		inner, whole2 := strings.CutSuffix(inner, "x")
		if err != nil || !whole || !whole2 || strings.ContainsAny(inner, "/*") || strings.Contains(literal, ";") {
			return segment{}, NotASegment(part)
		}
		literals = append(literals, inner)
	}
	if part == "" || part == "." || part == ".." {
		return segment{}, fmt.Errorf("%q cannot be a segment of a request's path: remove it", part)
	}
	text := strings.Map(withoutSelectors, strings.Join(literals, "*"))
	switch plain := trimmedName(text); {
	case plain == "":
		return segment{}, fmt.Errorf("%q: no path has a segment of dots and spaces alone: remove it", part)
	case plain != text:
		return segment{}, fmt.Errorf("%q: dots and spaces at the ends of a name are ignored, because some servers ignore them: write %q", part, plain)
	}
	if ignoreCase {
		text = strings.ToLower(text)
	}
	return segment{text: text, wildcard: strings.Contains(text, "*")}, nil
}

// NotASegment returns an error with the reason why no path of a request has the segment, and what to write.
func NotASegment(part string) error {
	advice := "write it unescaped"
	switch {
	case strings.Contains(part, "?"):
		advice = "a path ends before the question mark: match parameters with query"
	case strings.Contains(part, ";"):
		advice = "a path is matched without the semicolon and the text after it: remove them"
	case strings.Contains(part, "/"):
		advice = "a slash separates segments: write one segment"
	case trimmedName(part) == "":
		advice = "remove it"
	}
	return fmt.Errorf("%q cannot be a segment of a request's path: %s", part, advice)
}

// IsName reports whether s is a valid name of an attribute or a segment.
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

// Capture returns the index of the segment {name}, or -1.
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

// Matches reports whether the pattern matches a canonical path.
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

// NthSegment returns the nth segment of a canonical path, or "".
func NthSegment(path string, n int) string {
	rest := path[1:]
	for ; n > 0; n-- {
		_, rest, _ = strings.Cut(rest, "/")
	}
	text, _, _ := strings.Cut(rest, "/")
	return text
}

// wildcard reports whether pattern matches text, where each * matches any characters, or none. It searches the literals
// between the stars from the left, which finds a match if there is one.
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

// Covers reports whether the pattern matches every path that narrow matches.
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

// Compare orders patterns: it returns a value below zero if p comes before q. Of two patterns that match a path, the
// more specific comes first. They are compared segment by segment: a literal comes before a segment with a *, of which
// the longer comes first; then follow * or {name} alone, the end of the pattern, and **. It returns zero for patterns
// that match the same paths.
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

// HasPrefix reports whether every path that matches the pattern equals canonical, or begins with canonical and a slash.
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

// Index finds the rules whose pattern matches a path. It is a tree of segments. Patterns contain ** only at the end, so
// that a path is walked once along each matching branch.
type Index struct {
	literals map[string]*Index
	wild     *Index
	here     Numbers     // rules whose pattern ends here
	below    Numbers     // rules whose pattern continues with **
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

// Find appends the rules whose pattern matches the rest of a path.
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

// Numbers is a list of numbers. It usually has one entry, which needs no allocation.
type Numbers struct {
	first int32
	n     int32
	more  *[]int32
}

// With returns the list with number added.
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

// AppendTo appends the numbers to found.
func (l *Numbers) AppendTo(found []int32) []int32 {
	switch l.n {
	case 0:
		return found
	case 1:
		return append(found, l.first)
	}
	return append(append(found, l.first), *l.more...)
}

// Table finds the first of several patterns that match a path, without trying those that cannot match.
type Table struct{ index Index }

// Add adds a pattern under a number.
func (t *Table) Add(p *Pattern, number int) { t.index.Add(p, int32(number)) }

// First returns the smallest number whose pattern matches a canonical path, or -1. As for rules, dots and spaces at the
// ends of names and variation selectors are ignored.
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
