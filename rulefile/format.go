package rulefile

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/rules"
)

// Format brings a rule file or a test file into the standard layout, like gofmt for Go: two spaces for each level,
// lists indented below their key, one blank line between sections and between rules of several lines.
//
// It changes only spaces and line breaks. Comments, quotes, the order of keys and the style of lists and mappings stay
// as they are, except for flow collections of several lines: they are written on one line if it has at most 100 columns
// and no comment is among them, and otherwise one entry per line. Single blank lines stay too.
//
// Documents separated by three dashes are formatted separately.
//
// The result is read again and compared with the source. If a value or a comment has changed, which would be a bug,
// Format returns an error and no text. name is the name of the file in errors.
func Format(name string, src []byte) ([]byte, error) {
	documents := strictyaml.ParseAll(src)
	var faults []error
	for _, d := range documents {
		for _, f := range d.Faults {
			faults = append(faults, &rules.Error{Pos: rules.Position{File: name, Line: f.Line, Column: f.Column}, Msg: f.Msg})
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	var out []byte
	for i, d := range documents {
		text, err := formatDocument(name, d)
		if err != nil {
			return nil, err
		}
		if i > 0 || len(documents) > 1 && d.Root.Kind == strictyaml.Null { // comments alone would belong to the next document
			out = append(out, "---\n"...)
		}
		out = append(out, text...)
	}
	if len(strictyaml.ParseAll(out)) != len(documents) {
		return nil, unformattable(name)
	}
	return out, nil
}

func formatDocument(name string, d strictyaml.Document) ([]byte, error) {
	in, err := readLayout(name, d.Data, d.Line-1)
	if err != nil {
		return nil, err
	}
	out, err := in.write()
	if err != nil {
		return nil, err
	}
	written, err := readLayout(name, out, d.Line-1)
	if err != nil || !in.sameAs(written) {
		return nil, unformattable(name)
	}
	return out, nil
}

func unformattable(name string) error {
	return &rules.Error{Pos: rules.Position{File: name}, Msg: "cannot be formatted without changing its meaning: " +
		"write long or unusual YAML more simply"}
}

// maxFlowWidth is the maximum width of a line when a flow collection of several lines is joined.
const maxFlowWidth = 100

// layout is a file as text: its lines, and the places of values and comments.
type layout struct {
	name     string
	first    int // line of the file, counted from 0
	lines    []string
	root     *yaml.Node // nil: there is no value in the file
	tokens   []token
	comments []comment
	flows    map[*yaml.Node]place // ends of flow collections

	last       place // result of the last call of place
	lastColumn int
}

// place is a place in the text: a line and a byte offset, both counted from 0.
type place struct{ line, at int }

func (p place) before(q place) bool { return p.line < q.line || p.line == q.line && p.at < q.at }

// token is a value that is written in one piece: a scalar, an alias, an empty collection; also a collection's anchor.
type token struct {
	place
	node   *yaml.Node
	blocks []int // columns of the enclosing block collections
	opens  bool  // it is the first value of a collection, below the collection's key
	lead   int   // column of the dash if it begins a list entry; else its own column
	end    int   // offset of its end if it ends on its line and that is known; else 0
	body   body  // of a block scalar
}

// body is the place of the text of a block scalar.
type body struct{ from, to, indent int } // lines; to is excluded

// readLayout reads a document of a file and finds its values and comments.
func readLayout(name string, src []byte, first int) (*layout, error) {
	text := strings.ReplaceAll(strings.TrimPrefix(string(src), "\ufeff"), "\r\n", "\n")
	l := &layout{name: name, first: first, lines: strings.Split(text, "\n"), flows: make(map[*yaml.Node]place)}
	var err error
	if l.root, err = parseTree(text); err != nil {
		return nil, l.reject(0, "%v", err)
	}
	if l.root != nil && l.root.Kind != yaml.MappingNode {
		return nil, l.reject(l.root.Line-1, "the file is not a mapping: write keys such as rules: and their values")
	}
	if l.root != nil {
		l.collect(l.root, nil, true, -1)
	}
	if err := l.scan(); err != nil {
		return nil, err
	}
	return l, l.checkScan()
}

// parseTree returns the document's value, or nil if it has none.
func parseTree(text string) (*yaml.Node, error) {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		return nil, err
	}
	if len(document.Content) == 0 || isNothing(document.Content[0]) {
		return nil, nil
	}
	return document.Content[0], nil
}

// isNothing reports whether a value is not written, as in "key:".
func isNothing(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Value == "" && n.Style == 0 && n.Anchor == ""
}

func isFlow(n *yaml.Node) bool { return n.Style&yaml.FlowStyle != 0 }

func isCollection(n *yaml.Node) bool {
	return n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode
}

// collect adds the tokens of a value in the order of the text. lead is the column of the dash before it, or -1.
func (l *layout) collect(n *yaml.Node, blocks []int, opens bool, lead int) {
	if isNothing(n) {
		return
	}
	at := l.place(n)
	t := token{place: at, node: n, blocks: blocks, opens: opens, lead: lead}
	if lead < 0 {
		t.lead = at.at
	}
	if !isCollection(n) || len(n.Content) == 0 {
		l.tokens = append(l.tokens, t)
		return
	}
	if !isFlow(n) {
		column := at.at
		if n.Kind == yaml.MappingNode {
			column = l.place(n.Content[0]).at // an anchor may be before it on another line
		}
		if n.Anchor != "" { // the library writes it on a separate line
			l.tokens = append(l.tokens, t)
			opens, lead = true, -1
		}
		blocks = append(slices.Clip(blocks), column)
	}
	for i, child := range n.Content {
		if i > 0 {
			opens, lead = false, -1
		}
		if n.Kind == yaml.MappingNode && i%2 == 1 {
			l.collect(child, blocks, isCollection(child) && !isFlow(child), -1)
			continue
		}
		if n.Kind == yaml.SequenceNode && !isFlow(n) && lead < 0 {
			lead = blocks[len(blocks)-1]
		}
		l.collect(child, blocks, opens, lead)
	}
}

// place converts a position of the library, which counts characters, to one in the text.
func (l *layout) place(n *yaml.Node) place {
	line := l.lines[n.Line-1]
	// place is called in the order of the text, so that it continues from the last result: a line may contain very many
	// values.
	at, column := 0, 1
	if l.lastColumn > 0 && l.lastColumn <= n.Column && l.last.line == n.Line-1 {
		at, column = l.last.at, l.lastColumn
	}
	for ; column < n.Column && at < len(line); column++ {
		_, size := utf8.DecodeRuneInString(line[at:])
		at += size
	}
	l.last, l.lastColumn = place{n.Line - 1, at}, column
	return l.last
}

// sameAs reports whether two layouts of a file have the same values and comments.
func (l *layout) sameAs(other *layout) bool {
	if len(l.comments) != len(other.comments) || !sameTree(l.root, other.root) {
		return false
	}
	for i := range l.comments {
		if l.comments[i].text != other.comments[i].text {
			return false
		}
	}
	return true
}

func sameTree(a, b *yaml.Node) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Kind == b.Kind && a.Tag == b.Tag && a.Value == b.Value && a.Anchor == b.Anchor &&
		slices.EqualFunc(a.Content, b.Content, sameTree)
}

// encode writes the tree with the library, which is reliable as long as there are no comments.
func encode(root *yaml.Node) (string, error) {
	if root == nil {
		return "", nil
	}
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(root); err != nil {
		return "", err
	}
	if err := e.Close(); err != nil {
		return "", err
	}
	return out.String(), nil
}
