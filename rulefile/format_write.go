package rulefile

import (
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"
)

// write lays out the file: the library writes the values, and comments and blank lines are inserted between its lines.
func (l *layout) write() ([]byte, error) {
	tree, folded := l.bare()
	text, err := encode(tree)
	if err != nil {
		return nil, l.reject(0, "%v", err)
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	w := &writer{in: l, out: &layout{name: l.name, lines: lines, flows: make(map[*yaml.Node]place)}}
	if w.out.root, err = parseTree(text); err != nil {
		return nil, l.reject(0, "%v", err)
	}
	if w.out.root != nil {
		w.out.collect(w.out.root, nil, true, -1)
	}
	if len(w.out.tokens) != len(l.tokens) {
		return nil, l.reject(0, "a value was lost during formatting: write it more simply")
	}
	if err := w.out.scan(); err != nil {
		return nil, err
	}
	for _, i := range folded {
		w.refold(&w.out.tokens[i])
	}
	w.restore()
	w.forceBlanks(w.out.root, "", len(w.out.lines))
	w.run()
	return []byte(w.b.String()), nil
}

// bare returns a copy of the tree without comments, with flow collections in their final style. It also returns the
// indices of folded texts: they become literal texts, because the library would join their lines.
func (l *layout) bare() (root *yaml.Node, folded []int) {
	copies := make(map[*yaml.Node]*yaml.Node)
	root = l.copyNode(l.root, copies)
	for i := range l.tokens {
		t := &l.tokens[i]
		if t.node.Style&yaml.FoldedStyle == 0 {
			continue
		}
		var text []string
		for _, line := range l.lines[t.body.from:t.body.to] {
			text = append(text, line[min(len(line), t.body.indent):])
		}
		value := strings.TrimRight(strings.Join(text, "\n"), "\n")
		value += t.node.Value[len(strings.TrimRight(t.node.Value, "\n")):]
		if strings.Contains(value+"\n", " \n") || strings.Contains(value, "\t") || strings.TrimSpace(value) == "" {
			continue // not possible as a literal text
		}
		c := copies[t.node]
		c.Style, c.Value = yaml.LiteralStyle, value
		folded = append(folded, i)
	}
	return root, folded
}

func (l *layout) copyNode(n *yaml.Node, copies map[*yaml.Node]*yaml.Node) *yaml.Node {
	if n == nil {
		return nil
	}
	c := *n
	copies[n] = &c
	c.HeadComment, c.LineComment, c.FootComment = "", "", ""
	if isFlow(n) && isCollection(n) && !l.staysFlow(n) {
		c.Style &^= yaml.FlowStyle
	}
	c.Content = make([]*yaml.Node, len(n.Content))
	for i := range n.Content {
		c.Content[i] = l.copyNode(n.Content[i], copies)
	}
	if n.Alias != nil {
		c.Alias = copies[n.Alias]
	}
	return &c
}

// staysFlow reports whether a flow collection stays one: it was on one line, or fits on one.
func (l *layout) staysFlow(n *yaml.Node) bool {
	from, to := l.place(n), l.flows[n]
	if from.line == to.line || len(n.Content) == 0 {
		return true
	}
	inside := sort.Search(len(l.comments), func(i int) bool { return from.before(l.comments[i].place) })
	if inside < len(l.comments) && l.comments[inside].before(to) {
		return false
	}
	line := *n
	line.HeadComment, line.LineComment, line.FootComment = "", "", ""
	text, err := encode(&line)
	return err == nil && from.at+len(text) <= maxFlowWidth && strings.Count(text, "\n") == 1
}

// writer merges the comments and blank lines of one layout into the lines of another with the same tokens.
type writer struct {
	in, out *layout
	forced  map[int]bool // lines of out that need a blank line before them
	b       strings.Builder
}

// refold turns a literal text back into the original folded text.
func (w *writer) refold(t *token) {
	line := w.out.lines[t.line]
	if i := strings.LastIndexByte(line, '|'); i >= t.at {
		w.out.lines[t.line] = line[:i] + ">" + line[i+1:]
	}
}

// restore writes scalars as in the source. The library quotes some that need no quotes, such as 2001:db8::/32, and
// writes escapes differently.
func (w *writer) restore() {
	var b strings.Builder
	for first := 0; first < len(w.out.tokens); {
		number, copied := w.out.tokens[first].line, 0
		line := w.out.lines[number]
		b.Reset()
		for ; first < len(w.out.tokens) && w.out.tokens[first].line == number; first++ {
			from, to := &w.in.tokens[first], &w.out.tokens[first]
			if from.end > 0 && to.end > 0 {
				b.WriteString(line[copied:to.at])
				b.WriteString(w.in.lines[from.line][from.at:from.end])
				copied = to.end
			}
		}
		b.WriteString(line[copied:])
		w.out.lines[number] = b.String()
	}
}

// spaced are the lists with blank lines between their entries, unless both entries have only one line.
var spaced = map[string]bool{"rules": true, "descriptors": true, "tests": true, "priorities": true, "load_shedding": true}

// forceBlanks finds the lines that need a blank line before them. end is the line where the value ends. out has no
// comments, so that the number of lines is the length of a value.
func (w *writer) forceBlanks(n *yaml.Node, key string, end int) {
	if w.forced == nil {
		w.forced = make(map[int]bool)
	}
	if n == nil || !isCollection(n) || isFlow(n) || len(n.Content) == 0 {
		return
	}
	step := 1
	if n.Kind == yaml.MappingNode {
		step = 2
	}
	previous := 0
	for i := 0; i < len(n.Content); i += step {
		from, to := n.Content[i].Line-1, end
		if i+step < len(n.Content) {
			to = n.Content[i+step].Line - 1
		}
		section := n == w.out.root && previous > 1
		entry := step == 1 && spaced[key] && (previous > 1 || to-from > 1)
		if i > 0 && (section || entry) {
			w.forced[from] = true
		}
		previous = to - from
		name := ""
		if step == 2 {
			name = n.Content[i].Value
		}
		w.forceBlanks(n.Content[i+step-1], name, to)
	}
}

// run writes the lines, each after the comments and blank lines that belong before it.
func (w *writer) run() {
	token, comment := 0, 0
	for number, line := range w.out.lines {
		if len(w.out.tokens) == 0 {
			break
		}
		first := token
		for token < len(w.out.tokens) && w.out.tokens[token].line == number {
			token++
		}
		if first == token { // inside a block of text
			w.b.WriteString(line + "\n")
			continue
		}
		from := comment
		for comment < len(w.in.comments) && w.in.comments[comment].isBefore(token) {
			comment++
		}
		run := w.in.comments[from:comment]
		behind := ""
		if n := len(run); n > 0 && run[n-1].trailing && run[n-1].next == token {
			behind = strings.Repeat(" ", run[n-1].gap) + run[n-1].text
			run = run[:n-1]
		}
		w.above(run, first)
		w.b.WriteString(line + behind + "\n")
	}
	w.above(w.in.comments[comment:], len(w.out.tokens))
}

// isBefore reports whether a comment belongs above or on the line that ends before the token with this index.
func (c *comment) isBefore(token int) bool { return c.next < token || c.trailing && c.next == token }

// above writes the comments above the line that begins with the token, and the blank lines among them.
func (w *writer) above(comments []comment, token int) {
	blanks := make([]bool, len(comments)+1) // before each comment, and before the token
	for i := range comments {
		blanks[i] = !comments[i].trailing && w.in.blankAbove(comments[i].line)
	}
	last := token == len(w.in.tokens)
	if !last {
		t := &w.in.tokens[token]
		blanks[len(comments)] = (token == 0 || w.in.tokens[token-1].line != t.line) && w.in.blankAbove(t.line)
		if w.forced[w.out.tokens[token].line] && !anyOf(blanks) {
			i := 0
			for i < len(comments) && w.indent(&comments[i], token) > w.out.indentOf(w.out.tokens[token].line) {
				i++
			}
			blanks[i] = true
		}
	}
	if !last && w.in.tokens[token].opens || w.b.Len() == 0 || w.keepsBlanks(token-1) {
		blanks[0] = false
	}
	for i := range comments {
		if blanks[i] {
			w.b.WriteByte('\n')
		}
		w.b.WriteString(strings.Repeat(" ", w.indent(&comments[i], token)) + comments[i].text + "\n")
	}
	if blanks[len(comments)] && !last {
		w.b.WriteByte('\n')
	}
}

func anyOf(flags []bool) bool {
	for _, f := range flags {
		if f {
			return true
		}
	}
	return false
}

// indent returns the indentation of a comment: that of the following line, or if the comment was further right, that of
// the block that ends before it.
func (w *writer) indent(c *comment, token int) int {
	next, indent := 0, 0
	if token < len(w.in.tokens) {
		t := &w.in.tokens[token]
		next = min(t.lead, w.in.indentOf(t.line))
		indent = w.out.indentOf(w.out.tokens[token].line)
	}
	if c.trailing || c.dashed || c.at <= next || token == 0 {
		return indent
	}
	blocks := w.in.tokens[token-1].blocks
	for i := len(blocks) - 1; i >= 0; i-- {
		if blocks[i] <= c.at {
			return max(indent, w.out.tokens[token-1].blocks[i])
		}
	}
	return indent
}

// keepsBlanks reports whether a token is a text that includes the blank lines below it.
func (w *writer) keepsBlanks(token int) bool {
	if token < 0 || token >= len(w.out.tokens) {
		return false
	}
	n := w.out.tokens[token].node
	return n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 && strings.HasSuffix(n.Value, "\n\n")
}

// indentOf returns the indentation of a line.
func (l *layout) indentOf(line int) int {
	return len(l.lines[line]) - len(strings.TrimLeft(l.lines[line], " "))
}

// blankAbove reports whether the line above is blank or a document marker.
func (l *layout) blankAbove(line int) bool {
	if line == 0 {
		return false
	}
	above := strings.TrimSpace(l.lines[line-1])
	return above == "" || above == "---"
}
