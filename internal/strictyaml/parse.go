package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/panics"
)

// Parse reads a file. The faults are all that is wrong with it as YAML; the tree is nil if it could not be read at all,
// and otherwise lacks what the faults are about. An empty file is a node of kind Null.
func Parse(data []byte) (*Node, []Fault) {
	if len(data) > MaxBytes {
		bounds.YAML.Reached()
		return nil, []Fault{{
			Line: 1, Column: 1, Reason: TooLarge,
			Msg: fmt.Sprintf("the file has %d bytes, at most %d are read: split it", len(data), MaxBytes),
		}}
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if faults := checkCharacters(data); len(faults) > 0 {
		return nil, faults
	}
	if separators(data) > 2*MaxNodes {
		bounds.YAML.Reached()
		return nil, []Fault{{Line: 1, Column: 1, Reason: TooLarge, Msg: tooManyNodes}}
	}
	document, err := load(bytes.NewReader(data))
	switch {
	case errors.Is(err, io.EOF):
		return &Node{Line: 1, Column: 1, size: 1, height: 1}, nil
	case errors.Is(err, errSecondDocument):
		if line := secondDocument(data); line > 0 {
			return nil, []Fault{{Line: line, Column: 1, Reason: UnsupportedYAML, Msg: secondDocumentMsg}}
		}
		return nil, []Fault{syntaxFault(data, err)} // text behind the value that is all of the file
	case err != nil:
		return nil, []Fault{syntaxFault(data, err)}
	}
	c := converter{anchors: make(map[*yaml.Node]*Node)}
	root := c.convert(document.Content[0], 1)
	if c.stopped {
		root = nil
	}
	return root, c.faults
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
}

func (c *converter) fault(at *yaml.Node, reason Reason, format string, args ...any) {
	f := Fault{Line: at.Line, Column: at.Column, Reason: reason, Msg: fmt.Sprintf(format, args...)}
	if reason == KeyType {
		f.Key = at.Value
	}
	c.faults = append(c.faults, f)
}

// stop reports a bound. It is the only fault that counts then.
func (c *converter) stop(at *yaml.Node, format string, args ...any) {
	if !c.stopped {
		bounds.YAML.Reached()
		c.faults = nil
		c.fault(at, TooLarge, format, args...)
	}
	c.stopped = true
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
	if y.Anchor != "" {
		c.anchors[y] = nil
		defer func() { c.anchors[y] = n }()
	}
	if y.Style&yaml.TaggedStyle != 0 {
		c.fault(y, UnsupportedYAML, "tags such as %s are not used here: remove it, and quote a value that is to be text",
			Quote(y.Tag))
		return nil
	}
	switch y.Kind {
	case yaml.MappingNode:
		n.Kind = Mapping
		c.fields(n, y, depth)
	case yaml.SequenceNode:
		n.Kind = Sequence
		for _, item := range y.Content {
			if child := c.convert(item, depth+1); child != nil {
				n.Items = append(n.Items, child)
				n.grow(child)
			}
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

// alias adds what the alias stands for to the counts without walking it: that is what makes a bomb harmless.
func (c *converter) alias(y *yaml.Node, depth int) *Node {
	n, known := c.anchors[y.Alias]
	switch {
	case !known:
		return nil // what it stands for is at fault, and that was reported
	case n == nil:
		c.fault(y, UnsupportedYAML, "the alias *%s stands inside what it is an alias for: write the value out", y.Value)
		return nil
	}
	c.nodes += n.size
	switch {
	case c.nodes > MaxNodes:
		c.stop(y, tooManyNodes)
	case depth+n.height-1 > MaxDepth:
		c.stop(y, "values are nested deeper than %d levels: nest less", MaxDepth)
	default:
		return n
	}
	return nil
}

func (c *converter) fields(n *Node, y *yaml.Node, depth int) {
	first := make(map[string]int, len(y.Content)/2)
	for i := 0; i+1 < len(y.Content); i += 2 {
		key, value := y.Content[i], c.convert(y.Content[i+1], depth+1)
		k := c.key(key)
		if k == nil || c.stopped {
			continue
		}
		if line, twice := first[k.Text]; twice {
			c.fault(key, Duplicate, "%s stands here twice, first at line %d: remove one", Quote(k.Text), line)
			continue
		}
		first[k.Text] = k.Line
		if value != nil {
			n.Fields = append(n.Fields, Field{k, value})
			n.grow(k)
			n.grow(value)
		}
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
