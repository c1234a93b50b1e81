package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/panics"
)

// Parse reads a file of one document. It returns all errors of the YAML itself. The tree is nil if nothing could be
// read; otherwise the values with errors are missing from it. An empty file is a node of kind Null.
func Parse(data []byte) (*Node, []Fault) {
	all := ParseAll(data)
	faults := all[0].Faults
	if len(all) > 1 {
		faults = append(faults, Fault{Line: all[1].Line, Column: 1, Reason: UnsupportedYAML, Msg: secondDocumentMsg})
	}
	return all[0].Root, faults
}

// MaxDocuments is the maximum number of documents in a file.
const MaxDocuments = 1000

// Document is one document of a file, with the positions of the whole file.
type Document struct {
	Root   *Node   // as [Parse] returns it
	Faults []Fault // errors of this document
	Line   int     // first line
	Data   []byte  // its text
}

// ParseAll reads the documents of a file, separated by lines of three dashes. It returns at least one. A file that
// exceeds a bound or is not UTF-8 is one document with a nil Root.
func ParseAll(data []byte) []Document {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	parts, fault := split(data)
	if fault != nil {
		return []Document{{Line: 1, Data: data, Faults: []Fault{*fault}}}
	}
	c := &converter{anchors: make(map[*yaml.Node]*Node), lost: make(map[*yaml.Node]*loss)}
	documents := make([]Document, 0, len(parts))
	for _, p := range parts {
		d := Document{Line: p.line + 1, Data: p.data}
		d.Root, d.Faults = c.document(p)
		if c.stopped { // the file exceeds a bound in total; the other documents are not read
			return []Document{{Line: 1, Data: data, Faults: d.Faults}}
		}
		documents = append(documents, d)
	}
	return documents
}

// split checks the bounds of a whole file and divides it into documents.
func split(data []byte) ([]part, *Fault) {
	tooLarge := func(format string, args ...any) *Fault {
		bounds.YAML.Reached()
		return &Fault{Line: 1, Column: 1, Reason: TooLarge, Msg: fmt.Sprintf(format, args...)}
	}
	if len(data) > MaxBytes {
		return nil, tooLarge("the file has %d bytes, at most %d are read: split it", len(data), MaxBytes)
	}
	if !utf8.Valid(data) {
		return nil, checkCharacters(data)
	}
	if separators(data) > 2*MaxNodes {
		return nil, tooLarge(tooManyNodes)
	}
	parts := documents(data)
	if len(parts) > MaxDocuments {
		return nil, tooLarge("the file has %d documents, at most %d are read: split it", len(parts), MaxDocuments)
	}
	return parts, nil
}

// part is a sequence of lines of a file.
type part struct {
	data []byte
	line int // number of lines before it
}

// documents splits a file at its document markers. YAML reads every line that starts with a marker as one, even inside
// quoted text and block scalars.
func documents(data []byte) []part {
	var parts []part
	start, first, line, begun := 0, 0, 0, false
	end := func(at, next int) {
		if begun {
			parts = append(parts, part{data[start:at], first})
		}
		start, first, begun = at, next, false
	}
	for at := 0; at < len(data); line++ {
		next := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			next = at + i + 1
		}
		switch text := bytes.TrimRight(data[at:next], "\r\n"); {
		case isMarker(text, "---"):
			if begun {
				end(at, line)
			}
			begun = true
		case isMarker(text, "..."):
			end(next, line+1)
		default:
			trimmed := bytes.TrimLeft(text, " \t")
			begun = begun || len(trimmed) > 0 && trimmed[0] != '#' && text[0] != '%'
		}
		at = next
	}
	end(len(data), line)
	if len(parts) == 0 {
		return []part{{data, 0}}
	}
	return parts
}

func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || rest[0] == ' ' || rest[0] == '\t')
}

// document reads one document. If it has syntax errors, it keeps the parts without any.
func (c *converter) document(p part) (*Node, []Fault) {
	c.faults = nil
	tree, err := p.load()
	var faults []Fault
	switch {
	case errors.Is(err, io.EOF):
		return &Node{Line: p.line + 1, Column: 1, size: 1, height: 1}, nil
	case err != nil:
		tree, faults = recoverParts(p, err, c.lost)
	}
	if tree == nil {
		return nil, faults
	}
	root := c.convert(tree, 1)
	if c.stopped {
		return nil, c.faults
	}
	return root, append(faults, c.faults...)
}

// load returns the only YAML value of the part, or the first error. Its lines are those of the whole file.
func (p part) load() (*yaml.Node, error) {
	if f := checkCharacters(p.data); f != nil {
		return nil, &characterError{*f}
	}
	document, err := load(bytes.NewReader(p.data))
	if err != nil {
		return nil, err
	}
	if p.line > 0 {
		shift(document.Content[0], p.line)
	}
	return document.Content[0], nil
}

const tooManyNodes = "the file has more than 100000 values, aliased values included: " +
	"split it, or use fewer aliases"

var errSecondDocument = errors.New(
	"yaml: unexpected text after the value: write one key: value per line")

const secondDocumentMsg = "a second document begins here (---), but a file may have only one: " +
	"move it to another file"

// load parses the document with the YAML library. A panic of the library becomes an error of the file, because anyone
// may have written the file.
func load(r io.Reader) (document *yaml.Node, err error) {
	defer panics.Recover(func(e *panics.Error) { document, err = nil, fmt.Errorf("yaml: %v", e.Value) })
	d := yaml.NewDecoder(r)
	document = new(yaml.Node)
	if err := d.Decode(document); err != nil {
		return nil, err
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errSecondDocument // or an error of text that follows the value
	}
	return document, nil
}

// separators counts the characters that can precede a value; a file has at most one value more. They are counted before
// the library parses the file, because it needs about 100 times the size of a file that consists of separators.
func separators(data []byte) int {
	n := 0
	for i, b := range data {
		switch b {
		case '\n', ',', '[', '{':
			n++
		case ':', '-', '?':
			if i+1 == len(data) || data[i+1] <= ' ' {
				n++
			}
		}
	}
	return n
}

// converter converts the library's nodes. Each is converted once; an alias shares the node.
type converter struct {
	anchors map[*yaml.Node]*Node // nil while the anchored value is being converted
	nodes   int                  // aliases followed
	faults  []Fault
	stopped bool // the file exceeds a bound and is not read further
	lost    map[*yaml.Node]*loss
}

// convert returns nil for a value with an error, and for every value after a bound was exceeded.
func (c *converter) convert(y *yaml.Node, depth int) *Node {
	if c.stopped {
		return nil
	}
	if y.Kind == yaml.AliasNode {
		return c.alias(y, depth)
	}
	if c.nodes++; c.nodes > MaxNodes {
		c.stop(y, tooManyNodes)
		return nil
	}
	if depth > MaxDepth {
		c.stop(y, "values are nested deeper than %d levels: nest less", MaxDepth)
		return nil
	}
	n := &Node{Line: y.Line, Column: y.Column, size: 1, height: 1}
	if l := c.lost[y]; l != nil {
		n.Lost, n.LostText, n.Partial = l.keys, l.text, l.partial
	}
	if y.Style&yaml.TaggedStyle != 0 {
		c.fault(y, UnsupportedYAML, "tags such as %s are not supported: remove it, and quote the value if it is text",
			Quote(y.Tag))
		return nil
	}
	if y.Anchor != "" {
		c.anchors[y] = nil
		defer func() { c.anchors[y] = n }()
	}
	switch y.Kind {
	case yaml.MappingNode:
		n.Kind = Mapping
		c.fields(n, y, depth)
	case yaml.SequenceNode:
		n.Kind = Sequence
		for _, item := range y.Content {
			child := c.convert(item, depth+1)
			if child == nil {
				n.Partial = true
				continue
			}
			n.Items = append(n.Items, child)
			n.grow(child)
		}
	default:
		c.scalar(n, y)
	}
	return n
}

func (n *Node) grow(child *Node) {
	n.size += child.size
	n.height = max(n.height, child.height+1)
}

func (c *converter) fields(n *Node, y *yaml.Node, depth int) {
	first := make(map[string]int, len(y.Content)/2)
	for i := 0; i+1 < len(y.Content); i += 2 {
		key, value := y.Content[i], c.convert(y.Content[i+1], depth+1)
		k := c.key(key)
		if k == nil || c.stopped {
			n.Partial = true
			continue
		}
		if line, twice := first[k.Text]; twice {
			c.fault(key, Duplicate, "duplicate key %s, first at line %d: remove one", Quote(k.Text), line)
			continue
		}
		first[k.Text] = k.Line
		if value == nil {
			n.Lost = append(n.Lost, k.Text)
			continue
		}
		n.Fields = append(n.Fields, Field{k, value})
		n.grow(k)
		n.grow(value)
	}
}

func (c *converter) key(y *yaml.Node) *Node {
	if y.Kind == yaml.AliasNode {
		c.fault(y, KeyType, "the key is an alias, *%s: write the key out", y.Value)
		return nil
	}
	if y.Kind == yaml.ScalarNode && y.Tag == "!!merge" {
		c.fault(y, UnsupportedYAML, `merge keys (<<) are not supported: write the keys out, or quote the text "<<"`)
		return nil
	}
	k := c.convert(y, 1)
	switch {
	case k == nil:
		return nil
	case k.Kind == Scalar && k.Type == Text:
		return k
	case k.Kind == Scalar || k.Kind == Null:
		c.fault(y, KeyType, "the key %s is not text: quote it, %q", y.Value, y.Value)
	default:
		c.fault(y, KeyType, "%s cannot be a key: write a word, or quote a text that begins with [ or {", k)
		c.faults[len(c.faults)-1].Key = k.String()
	}
	return nil
}

func (c *converter) scalar(n *Node, y *yaml.Node) {
	n.Kind, n.Text = Scalar, y.Value
	n.Quoted = y.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
	if i := strings.IndexFunc(y.Value, isControl); i >= 0 {
		c.fault(y, UnsupportedYAML, "the text contains a control character, %q: remove it", y.Value[i:i+1])
	}
	switch y.Tag {
	case "!!null":
		n.Kind, n.Text = Null, ""
	case "!!int":
		n.Type = Int
	case "!!float":
		n.Type = Float
	case "!!bool":
		n.Type = Bool
	}
}

// checkCharacters finds bytes that are not text, and characters that only some readers treat as the end of a line.
func checkCharacters(data []byte) *Fault {
	line, start := 1, 0
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		msg := ""
		switch {
		case r == utf8.RuneError && size <= 1:
			msg = "the file is not UTF-8: save it in that encoding"
		case r == '\n':
			line, start = line+1, i+1
		case r == '\r' && i+1 < len(data) && data[i+1] == '\n', r == '\t':
		case r == '\r':
			msg = "a carriage return does not end a line here: end lines with a line feed"
		case isControl(r), r == '\u0085', r == '\u2028', r == '\u2029', r == '\ufeff', r == '\ufffe', r == '\uffff':
			msg = fmt.Sprintf("invisible character %U: remove it", r)
		}
		if msg != "" {
			return &Fault{Line: line, Column: utf8.RuneCount(data[start:i]) + 1, Reason: UnsupportedYAML, Msg: msg}
		}
		i += size
	}
	return nil
}

// isControl reports whether r is a control character that no text may contain.
func isControl(r rune) bool {
	return r < ' ' && r != '\n' && r != '\t' && r != '\r' || r >= 0x7f && r < 0xa0 && r != '\u0085'
}
