package match

import (
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

// matches tells whether a canonical path fits.
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
