package rules

import (
	"fmt"
	"strings"
)

// pattern is a path as rules write it: /users/{id}/posts, /files/**, /v*/items/*.json.
type pattern struct {
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

// parsePattern reads a pattern. Literal parts are made canonical like a request's path.
func parsePattern(text string, ignoreCase bool) (*pattern, error) {
	if !strings.HasPrefix(text, "/") {
		return nil, fmt.Errorf(`path %q does not begin with a slash: write "/%s"`, text, text)
	}
	p := &pattern{text: text}
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
		if seg.name != "" && p.capture(seg.name) >= 0 {
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
		if !isName(name) {
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
			return segment{}, notASegment(part)
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

// notASegment says why a request's path cannot have a segment, and what to write.
func notASegment(part string) error {
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

// isName accepts what people name attributes and segments.
func isName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || (c < '0' || c > '9') && c != '-' && c != '.') {
			return false
		}
	}
	return s != ""
}

// capture returns the number of the segment with this name, or -1.
func (p *pattern) capture(name string) int {
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

// matches tells whether a canonical path fits.
func (p *pattern) matches(path string) bool {
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

// nthSegment is a segment of a canonical path, or the empty string.
func nthSegment(path string, n int) string {
	rest := path[1:]
	for ; n > 0; n-- {
		_, rest, _ = strings.Cut(rest, "/")
	}
	text, _, _ := strings.Cut(rest, "/")
	return text
}

// wildcard tells whether the text fits a pattern in which each * stands for any characters, also none. Literals between
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

// pathIndex finds the rules whose pattern a path fits: a tree of segments. Patterns have no ** but at the end, so a
// path is walked once along each branch that it fits.
type pathIndex struct {
	literals map[string]*pathIndex
	wild     *pathIndex
	here     numbers     // rules whose pattern ends here
	below    numbers     // rules whose pattern goes on with **
	globs    *[]pathGlob // segments with a * inside
}

type pathGlob struct {
	segment segment
	next    *pathIndex
}

func (x *pathIndex) add(p *pattern, rule int32) {
	for i := range p.segments {
		x = x.child(&p.segments[i])
	}
	if p.below {
		x.below = x.below.with(rule)
	} else {
		x.here = x.here.with(rule)
	}
}

func (x *pathIndex) child(s *segment) *pathIndex {
	switch {
	case s.wild:
		if x.wild == nil {
			x.wild = new(pathIndex)
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
		next := new(pathIndex)
		*x.globs = append(*x.globs, pathGlob{*s, next})
		return next
	}
	if x.literals == nil {
		x.literals = make(map[string]*pathIndex)
	}
	next := x.literals[s.text]
	if next == nil {
		next = new(pathIndex)
		x.literals[s.text] = next
	}
	return next
}

// find appends the rules whose pattern the rest of a path fits.
func (x *pathIndex) find(rest string, found []int32) []int32 {
	found = x.below.appendTo(found)
	if rest == "" {
		return x.here.appendTo(found)
	}
	text, rest, _ := strings.Cut(rest, "/")
	if next := x.literals[text]; next != nil {
		found = next.find(rest, found)
	}
	if x.wild != nil {
		found = x.wild.find(rest, found)
	}
	if x.globs != nil {
		for i := range *x.globs {
			if g := &(*x.globs)[i]; wildcard(g.segment.text, text) {
				found = g.next.find(rest, found)
			}
		}
	}
	return found
}
