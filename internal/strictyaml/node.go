package strictyaml

import "fmt"

// Bounds of a file. Rules that people write stay far below; what is above is a mistake or an attack.
const (
	MaxBytes = 1 << 20
	MaxDepth = 32
	MaxNodes = 100_000 // what aliases stand for counts each time
)

// Kind is what a [Node] is.
type Kind uint8

const (
	Null Kind = iota // nothing, ~ or null
	Scalar
	Mapping
	Sequence
)

// Type is what YAML takes a plain scalar for. Quoted scalars are text.
type Type uint8

const (
	Text Type = iota
	Int
	Float
	Bool
)

// Node is one value of a file.
type Node struct {
	Kind   Kind
	Type   Type
	Quoted bool // in quotes, or a block of text
	Line   int
	Column int     // in characters
	Text   string  // of a scalar, as it was written but for quotes and escapes
	Fields []Field // of a mapping, in the order of the file
	Items  []*Node // of a sequence

	size, height int // with all that is below, aliases followed
}

// Field is a key of a mapping and its value.
type Field struct{ Key, Value *Node }

// Field returns the value of a key, or nil.
func (n *Node) Field(key string) *Node {
	for i := range n.Fields {
		if n.Fields[i].Key.Text == key {
			return n.Fields[i].Value
		}
	}
	return nil
}

// String is what the node is, for messages: a scalar's text, cut if it is long, and the kind of anything else.
func (n *Node) String() string {
	switch n.Kind {
	case Null:
		return "nothing"
	case Mapping:
		return "a mapping"
	case Sequence:
		return "a list"
	}
	if n.Type != Text {
		return n.Text
	}
	return Quote(n.Text)
}

// Quote quotes a text for a message and cuts it if it is long.
func Quote(text string) string {
	const most = 60
	if len(text) > most {
		return fmt.Sprintf("%.*q…", most, text)
	}
	return fmt.Sprintf("%q", text)
}

// Fault is something that is wrong with a file.
type Fault struct {
	Line, Column int
	Reason       Reason
	Msg          string // what is wrong and what to write instead
	Key          string // with the reason KeyType: the key as it was written
}

// Reason sorts faults for callers that have words of their own for some.
type Reason uint8

const (
	Other           Reason = iota
	KeyType                // a key is not text
	UnsupportedYAML        // no YAML that this package reads
	TooLarge               // beyond a bound
	Duplicate              // a key stands there twice
)
