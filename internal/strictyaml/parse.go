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

// Parse reads a file of one document. The faults are all that is wrong with it as YAML; the tree is nil if it could not be
// read at all, and otherwise lacks what the faults are about. An empty file is a node of kind Null.
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
	Faults []Fault // of this document
	Line   int     // where it begins
	Data   []byte  // its text
}

// ParseAll reads a file of documents that are separated by lines of three dashes. There is at least one. A file that is
// beyond a bound, or not UTF-8, is one document with a nil Root.
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
		if c.stopped { // the sum is beyond a bound, and the rest unknown
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

// part is some lines of a file.
type part struct {
	data []byte
	line int // before its first
}

// documents divides a file at its document markers. YAML takes a line that begins with one for a marker wherever it is, in
// quoted texts and block scalars too.
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

// document reads one document; of one with syntax errors, the parts without.
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

// load reads the one value of the part, or returns the first error in it.
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

const tooManyNodes = "the file has more than 100000 values, those that aliases stand for included: " +
	"split it, and write aliases out less often"

var errSecondDocument = errors.New(
	"yaml: the file goes on behind its value: write key: value, one below the other")

const secondDocumentMsg = "a second document begins here (---): a file holds one, " +
	"so write the second to a file of its own"

// load has the library read the one document. The library is large and the input anybody's: if it panics, that is a
// fault of the file and not the end of the process.
func load(r io.Reader) (document *yaml.Node, err error) {
	defer panics.Recover(func(e *panics.Error) { document, err = nil, fmt.Errorf("yaml: %v", e.Value) })
	d := yaml.NewDecoder(r)
	document = new(yaml.Node)
	if err := d.Decode(document); err != nil {
		return nil, err
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errSecondDocument // or an error, in what can only be one
	}
	return document, nil
}

// separators counts what can stand before a value: no file has more values than that, give or take one. The library
// needs a hundred times the size of a file that is all separators, so they are counted before it is asked.
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

// converter makes nodes of the library's. Each of those is converted once; an alias shares the node.
type converter struct {
	anchors map[*yaml.Node]*Node // nil while its inside is converted
	nodes   int                  // aliases followed
	faults  []Fault
	stopped bool // the file is beyond a bound: the rest does not matter
	lost    map[*yaml.Node]*loss
}

// convert returns nil for what is at fault and for all that comes after a bound was reached.
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
		c.fault(y, UnsupportedYAML, "tags such as %s are not used here: remove it, and quote a value that is to be text",
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
			c.fault(key, Duplicate, "%s stands here twice, first at line %d: remove one", Quote(k.Text), line)
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
		c.fault(y, KeyType, "the key is an alias, *%s: write it out", y.Value)
		return nil
	}
	if y.Kind == yaml.ScalarNode && y.Tag == "!!merge" {
		c.fault(y, UnsupportedYAML, `merge keys (<<) are not used here: write the keys out, or quote it if you mean the text "<<"`)
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
		c.fault(y, UnsupportedYAML, "the text has a control character in it, %q: remove it", y.Value[i:i+1])
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

// checkCharacters finds what is no text, or text that one reader takes for the end of a line and another does not.
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
			msg = fmt.Sprintf("an invisible character, %U: remove it", r)
		}
		if msg != "" {
			return &Fault{Line: line, Column: utf8.RuneCount(data[start:i]) + 1, Reason: UnsupportedYAML, Msg: msg}
		}
		i += size
	}
	return nil
}

// isControl is for characters that have no place in a text of any kind.
func isControl(r rune) bool {
	return r < ' ' && r != '\n' && r != '\t' && r != '\r' || r >= 0x7f && r < 0xa0 && r != '\u0085'
}
