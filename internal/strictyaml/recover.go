package strictyaml

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A document with a syntax error is divided where the extent of its values is clear: at the keys of one mapping and the
// entries of one list, which begin at the same column. Parts that parse alone are kept; the others are divided again.

// Bounds of the search for syntax errors. If a file exceeds them, only its first errors are reported.
const (
	maxRecoverDepth = 8
	maxRecoverBytes = 8 << 20 // parsed in total
	maxSyntaxFaults = 100
	maxFaultyLines  = 64 // tried to find the line of an error
	maxFaultyBytes  = 2 << 20
)

// loss lists the parts that are missing from a collection because of syntax errors.
type loss struct {
	keys    []string // keys whose values could not be read
	text    string   // text of these values; it may contain other keys
	partial bool     // entries of a list are missing
}

// recovery reads the parts of a document that have no syntax error.
type recovery struct {
	whole  []byte
	faults []Fault
	lost   map[*yaml.Node]*loss
	bytes  int // parsed

	indentation bool // an error is about the indentation of a line
}

// recoverParts returns the value of a document without the parts that have syntax errors, and all of these errors. It
// returns nil if the document cannot be divided.
func recoverParts(p part, err error, lost map[*yaml.Node]*loss) (*yaml.Node, []Fault) {
	r := &recovery{whole: p.data, lost: lost}
	first := r.faultOf(p, err)
	if first.Reason == TooLarge {
		return nil, []Fault{first}
	}
	tree := r.divide(p, 0)
	if len(r.faults) == 0 { // the parts are valid, but not in this order or indentation
		return nil, []Fault{first}
	}
	if outside := r.indentation || strings.HasSuffix(err.Error(), "expected '-' indicator"); outside && len(r.faults) == 1 && r.faults[0].Line == first.Line {
		r.faults[0] = first // the error of the whole document has more context than that of one line
	}
	return tree, r.faults
}

// read returns the value of a part, or reports why it cannot be read and returns nil.
func (r *recovery) read(p part, depth int) *yaml.Node {
	tree, err := r.load(p)
	if err == nil || errors.Is(err, io.EOF) {
		return tree
	}
	if depth < maxRecoverDepth {
		if tree := r.divide(p, depth); tree != nil {
			return tree
		}
	}
	r.report(p, err)
	return nil
}

func (r *recovery) load(p part) (*yaml.Node, error) {
	if r.bytes += len(p.data); r.bytes > maxRecoverBytes {
		return nil, errSecondDocument
	}
	return p.load()
}

func (r *recovery) report(p part, err error) {
	if m := unknownAnchor.FindStringSubmatch(strings.TrimPrefix(err.Error(), "yaml: ")); m != nil {
		if bytes.Contains(r.whole, []byte("&"+m[1])) {
			return // already reported for another part
		}
	}
	if len(r.faults) < maxSyntaxFaults && (r.bytes <= maxRecoverBytes || len(r.faults) == 0) {
		r.faults = append(r.faults, r.faultOf(p, err))
	}
}

func (r *recovery) faultOf(p part, err error) Fault {
	var f Fault
	switch c := (*characterError)(nil); {
	case errors.As(err, &c):
		f = c.Fault
	case errors.Is(err, errSecondDocument) && len(p.data) < len(r.whole):
		r.indentation = true
		f = syntaxFault(p.data, errIndentation, &r.bytes)
	default:
		f = syntaxFault(p.data, err, &r.bytes)
	}
	f.Line += p.line
	return f
}

// errIndentation is the error of a line that is indented less than the value before it and more than the parent of that
// value.
var errIndentation = errors.New("yaml: did not find expected key")

// divide reads a part as a mapping or a list whose entries begin at the column of the first, each entry separately. It
// returns nil if the part is neither.
func (r *recovery) divide(p part, depth int) *yaml.Node {
	lines := strings.SplitAfter(string(p.data), "\n")
	first, indent, begins := -1, 0, (func(string) bool)(nil)
	var starts []int
	for i, line := range lines {
		text, column := lineOf(line)
		switch {
		case column < 0 || first < 0 && depth == 0 && isMarker([]byte(text), "---"):
			continue
		case first < 0:
			first, indent, begins = i, column, isKey
			if isEntry(text) {
				begins = isEntry
			}
			if !begins(text) {
				return nil
			}
			starts = append(starts, i)
		case column == indent && begins(text):
			starts = append(starts, i)
		}
	}
	if first < 0 {
		return nil
	}
	node := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: p.line + first + 1, Column: indent + 1}
	if text, _ := lineOf(lines[first]); isEntry(text) {
		node.Kind, node.Tag = yaml.SequenceNode, "!!seq"
	}
	for i, start := range starts {
		end := len(lines)
		if i+1 < len(starts) {
			end = starts[i+1]
		}
		r.entry(node, lines[start:end], p.line+start, depth+1)
	}
	return node
}

// entry adds one entry, given by its lines, to a mapping or list, or records that it is missing.
func (r *recovery) entry(to *yaml.Node, lines []string, line, depth int) {
	whole := part{[]byte(strings.Join(lines, "")), line}
	tree, err := r.load(whole)
	if err == nil && tree.Kind == to.Kind {
		to.Content = append(to.Content, tree.Content...)
		return
	}
	if err == nil {
		err = errSecondDocument
	}
	lost := r.lost[to]
	if lost == nil {
		lost = new(loss)
		r.lost[to] = lost
	}
	if to.Kind == yaml.SequenceNode {
		whole.data[bytes.IndexByte(whole.data, '-')] = ' '
		if tree := r.read(whole, depth); tree != nil {
			to.Content = append(to.Content, tree)
			return
		}
		lost.partial = true
		return
	}
	key, value := r.field(whole, lines, depth)
	if value != nil {
		to.Content = append(to.Content, key, value)
		return
	}
	if key == nil { // the value is on the line of its key
		r.report(whole, err)
	}
	text, _ := lineOf(lines[0])
	lost.keys = append(lost.keys, strings.Trim(keyPattern.FindStringSubmatch(text)[1], `"'`))
	lost.text += strings.Join(lines[1:], "")
}

// field reads a key whose value is on the lines below it. It returns nil if the value is on the same line. If the value
// cannot be read, it reports why and returns a nil value.
func (r *recovery) field(p part, lines []string, depth int) (key, value *yaml.Node) {
	text, indent := lineOf(lines[0])
	m := keyPattern.FindStringSubmatch(text)
	rest := strings.TrimSpace(text[len(m[0]):])
	if rest != "" && rest[0] != '#' || len(lines) == 1 {
		return nil, nil
	}
	key, err := part{[]byte(strings.Repeat(" ", indent) + m[1]), p.line}.load()
	if err != nil {
		return nil, nil
	}
	return key, r.read(part{p.data[len(lines[0]):], p.line + 1}, depth)
}

// keyPattern matches a key at the start of a line, quoted or plain.
var keyPattern = regexp.MustCompile("^(\"[^\"]*\"|'[^']*'|[^-\\s{}\\[\\],:#\"'&*!|>%@`?][^{}\\[\\],:#\"']*?)[ \t]*:(?:[ \t]|$)")

func isKey(text string) bool { return keyPattern.MatchString(text) }

func isEntry(text string) bool { return text == "-" || strings.HasPrefix(text, "- ") }

// lineOf is the text of a line without its comment and its end, and how far it is indented. A line without text has -1.
func lineOf(line string) (text string, indent int) {
	text = strings.TrimLeft(line, " ")
	indent = len(line) - len(text)
	if text = strings.TrimRight(text, " \t\r\n"); text == "" || text[0] == '#' {
		return "", -1
	}
	return text, indent
}

// shift moves the positions of a tree down.
func shift(n *yaml.Node, lines int) {
	n.Line += lines
	for _, child := range n.Content {
		shift(child, lines)
	}
}

// characterError is about a character that no file can have.
type characterError struct{ Fault }

func (e *characterError) Error() string { return e.Msg }
