package rulefile

import (
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sluiceproject/sluice/rules"
)

// The library attaches comments to values and moves or loses some when writing. So this package handles them: it finds
// them in the text and inserts them into the library's output without comments.

// comment is a comment of a file.
type comment struct {
	place
	text     string // starting with #, without trailing spaces
	gap      int    // number of spaces before it
	next     int    // index of the token that follows
	trailing bool   // it follows a value on the same line
	dashed   bool   // it follows a lone dash, and so belongs to the next token
}

func (l *layout) reject(line int, format string, args ...any) error {
	return &rules.Error{Pos: rules.Position{File: l.name, Line: l.first + line + 1, Column: 1}, Msg: fmt.Sprintf(format, args...)}
}

// scanner walks over the text of a layout.
type scanner struct {
	*layout
	place
	next   int     // token
	opened []place // flow collections around the current place
	ends   map[place]place
}

// scan finds the comments, the ends of flow collections and the bodies of block scalars.
func (l *layout) scan() error {
	s := &scanner{layout: l, ends: make(map[place]place)}
	starts := make(map[place]bool) // starts of flow collections that are not inside others
	l.flowStarts(l.root, starts)
	for s.line < len(l.lines) {
		line := l.lines[s.line]
		if s.at >= len(line) {
			s.place = place{s.line + 1, 0}
			continue
		}
		if s.next < len(l.tokens) && !s.before(l.tokens[s.next].place) {
			if s.next++; !s.skip(&l.tokens[s.next-1]) {
				return l.reject(s.line, "the end of a text was not found: write it more simply")
			}
			continue
		}
		switch c := line[s.at]; {
		case c == '#' && s.beginsComment(line):
			s.comment(line)
			continue
		case (c == '[' || c == '{') && (len(s.opened) > 0 || starts[s.place]):
			s.opened = append(s.opened, s.place)
		case (c == ']' || c == '}') && len(s.opened) > 0:
			s.ends[s.opened[len(s.opened)-1]] = s.place
			s.opened = s.opened[:len(s.opened)-1]
		}
		s.at++
	}
	if s.next < len(l.tokens) || len(s.opened) > 0 {
		return l.reject(0, "a value was not found at its position: write it more simply")
	}
	return s.flowEnds(l.root)
}

// flowStarts adds the starts of flow collections.
func (l *layout) flowStarts(n *yaml.Node, starts map[place]bool) {
	if n == nil {
		return
	}
	if isCollection(n) && isFlow(n) {
		starts[l.bracket(n)] = true
		return
	}
	for _, child := range n.Content {
		l.flowStarts(child, starts)
	}
}

// bracket returns the place of the opening bracket of a flow collection. An anchor may precede it.
func (l *layout) bracket(n *yaml.Node) place {
	p := l.place(n)
	for ; p.line < len(l.lines); p = (place{p.line + 1, 0}) {
		if i := strings.IndexAny(l.lines[p.line][min(p.at, len(l.lines[p.line])):], "[{"); i >= 0 {
			return place{p.line, p.at + i}
		}
	}
	return p
}

func (s *scanner) flowEnds(n *yaml.Node) error {
	if n == nil {
		return nil
	}
	if isCollection(n) && isFlow(n) {
		end, ok := s.ends[s.bracket(n)]
		if !ok {
			return s.reject(n.Line-1, "the end of a list or mapping was not found: write it more simply")
		}
		s.flows[n] = end
	}
	for _, child := range n.Content {
		if err := s.flowEnds(child); err != nil {
			return err
		}
	}
	return nil
}

// beginsComment reports whether the current # begins a comment: after a space, or after the end of a value.
func (s *scanner) beginsComment(line string) bool {
	if s.at == 0 || strings.IndexByte(" \t", line[s.at-1]) >= 0 {
		return true
	}
	return len(s.opened) > 0 && strings.IndexByte(",[]{}", line[s.at-1]) >= 0
}

func (s *scanner) comment(line string) {
	before := strings.TrimRight(line[:s.at], " \t")
	trailing := strings.Trim(before, " \t-") != "" && s.next > 0
	s.comments = append(s.comments, comment{
		place: s.place, text: strings.TrimRight(line[s.at:], " \t"), gap: max(1, s.at-len(before)),
		next: s.next, trailing: trailing, dashed: before != "" && !trailing,
	})
	s.place = place{s.line + 1, 0}
}

// skip moves past a token, or to a place where comments are unambiguous. It reports whether the token's end was found.
func (s *scanner) skip(t *token) bool {
	switch style := t.node.Style; {
	case isCollection(t.node):
		return true // an anchor, or empty brackets that come next
	case style&yaml.DoubleQuotedStyle != 0:
		return s.skipQuoted(t, '"')
	case style&yaml.SingleQuotedStyle != 0:
		return s.skipQuoted(t, '\'')
	case style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return s.skipBlock(t)
	}
	if strings.HasPrefix(s.lines[s.line][s.at:], t.node.Value) { // else it has an anchor, or several lines
		t.end = s.at + len(t.node.Value)
	}
	s.at++ // in plain text no # follows a space
	return true
}

func (s *scanner) skipQuoted(t *token, quote byte) bool {
	open := false
	for ; s.line < len(s.lines); s.place = (place{s.line + 1, 0}) {
		for line := s.lines[s.line]; s.at < len(line); s.at++ {
			switch {
			case !open:
				open = line[s.at] == quote
			case quote == '"' && line[s.at] == '\\':
				s.at++
			case quote == '\'' && strings.HasPrefix(line[s.at:], "''"):
				s.at++
			case line[s.at] == quote:
				s.at++
				if s.line == t.line && t.node.Anchor == "" {
					t.end = s.at
				}
				if s.at < len(line) && line[s.at] == '#' {
					s.comment(line)
				}
				return true
			}
		}
	}
	return false
}

// skipBlock records the place of the text of a block scalar, and reports whether it was found. A comment may follow its
// | or >.
func (s *scanner) skipBlock(t *token) bool {
	header := s.lines[s.line]
	i := strings.IndexAny(header[s.at:], "|>")
	if i < 0 {
		return false
	}
	s.at += i + 1
	indent := 0
	for ; s.at < len(header) && strings.IndexByte("+-123456789", header[s.at]) >= 0; s.at++ {
		if c := header[s.at]; c >= '1' {
			indent = int(c - '0')
			if n := len(t.blocks); n > 0 {
				indent += t.blocks[n-1]
			}
		}
	}
	from := s.line + 1
	if j := strings.IndexByte(header[s.at:], '#'); j >= 0 {
		s.at += j
		s.comment(header)
	}
	to := from
	for ; to < len(s.lines); to++ {
		line := s.lines[to]
		spaces := len(line) - len(strings.TrimLeft(line, " "))
		switch {
		case spaces == len(line):
		case indent == 0 && spaces > t.column():
			indent = spaces
		case indent == 0 || spaces < indent:
			t.body = body{from, to, indent}
			s.place = place{to, 0}
			return true
		}
	}
	t.body = body{from, to, indent}
	s.place = place{to, 0}
	return true
}

// column returns the indentation of the token's block.
func (t *token) column() int {
	if len(t.blocks) == 0 {
		return -1
	}
	return t.blocks[len(t.blocks)-1]
}

// checkScan checks with the library that the found comments are comments: without them the file has the same values and
// no comments.
func (l *layout) checkScan() error {
	lines := append([]string(nil), l.lines...)
	for i := len(l.comments) - 1; i >= 0; i-- {
		c := &l.comments[i]
		lines[c.line] = strings.TrimRight(lines[c.line][:c.at], " \t")
	}
	bare, err := parseTree(strings.Join(lines, "\n"))
	if err == nil && (!sameTree(l.root, bare) || hasComments(bare)) {
		err = errors.New("a comment can be read as text: move it to a separate line")
	}
	if err != nil {
		return l.reject(0, "%v", err)
	}
	return nil
}

func hasComments(n *yaml.Node) bool {
	if n == nil {
		return false
	}
	if n.HeadComment != "" || n.LineComment != "" || n.FootComment != "" {
		return true
	}
	for _, child := range n.Content {
		if hasComments(child) {
			return true
		}
	}
	return false
}
