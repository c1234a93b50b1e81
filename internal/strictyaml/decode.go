package strictyaml

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/internal/suggest"
)

// maxFaults is how many faults are kept: who has more has one mistake many times.
const maxFaults = 1000

// Decoder turns nodes into Go values. What is wrong is collected, with its place, and the method then returns false.
// The what of a method is how messages call the value, such as "limit: burst"; it may be empty.
type Decoder struct {
	faults  []Fault
	dropped int
}

// Fault reports something at a node.
func (d *Decoder) Fault(at *Node, format string, args ...any) {
	if len(d.faults) == maxFaults {
		d.dropped++
		return
	}
	d.faults = append(d.faults, Fault{Line: at.Line, Column: at.Column, Msg: fmt.Sprintf(format, args...)})
}

// fault reports something about a value that has a name.
func (d *Decoder) fault(at *Node, what, format string, args ...any) {
	if what != "" {
		what += ": "
	}
	d.Fault(at, "%s%s", what, fmt.Sprintf(format, args...))
}

// Faults returns what was reported, in the order of the file, and how many more there were.
func (d *Decoder) Faults() (faults []Fault, more int) {
	slices.SortStableFunc(d.faults, func(a, b Fault) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return d.faults, d.dropped
}

// Count is how many faults were reported, so that a caller can tell whether something was sound.
func (d *Decoder) Count() int { return len(d.faults) + d.dropped }

// Fields are the keys that a mapping may have, with what to do with the value of each.
type Fields[T any] map[string]func(*T, *Node)

// Keys lists the keys in alphabetical order.
func (f Fields[T]) Keys() []string { return slices.Sorted(maps.Keys(f)) }

// With returns these keys and more.
func (f Fields[T]) With(more Fields[T]) Fields[T] {
	all := maps.Clone(f)
	maps.Copy(all, more)
	return all
}

// Decode calls the functions for the keys that a mapping has, in the order of the file. For keys that people write by
// mistake, moved holds what to write instead.
func Decode[T any](d *Decoder, n *Node, what string, fields Fields[T], moved map[string]string, into *T) bool {
	if !d.IsMapping(n, what) {
		return false
	}
	sound := true
	for _, field := range n.Fields {
		if decode, known := fields[field.Key.Text]; known {
			decode(into, field.Value)
			continue
		}
		d.UnknownKey(field.Key, what, fields.Keys(), moved)
		sound = false
	}
	return sound
}

// UnknownKey reports a key that there is not, with the closest of those that there are, which it returns if there is one.
func (d *Decoder) UnknownKey(key *Node, what string, known []string, moved map[string]string) (closest string) {
	if len(d.faults) == maxFaults {
		d.dropped++ // nobody would see what is closest
		return ""
	}
	if advice := moved[key.Text]; advice != "" {
		d.fault(key, what, "there is no key %s here: %s", Quote(key.Text), advice)
		return ""
	}
	if best := suggest.Closest(key.Text, known); best != "" {
		d.fault(key, what, "there is no key %s: did you mean %q?", Quote(key.Text), best)
		return best
	}
	d.fault(key, what, "there is no key %s: use %s", Quote(key.Text), Words(known))
	return ""
}

// Words lists words for a message: "a, b or c".
func Words(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// IsMapping reports a node that is no mapping.
func (d *Decoder) IsMapping(n *Node, what string) bool {
	switch {
	case n.Kind == Mapping:
		return true
	case n.Kind == Null:
		d.fault(n, what, "is empty: write key: value below it, or remove it")
	default:
		d.fault(n, what, "is %s: write a mapping, key: value", n)
	}
	return false
}

// Sequence returns the items of a list, and reports a node that is none.
func (d *Decoder) Sequence(n *Node, what string) ([]*Node, bool) {
	switch n.Kind {
	case Sequence:
		return n.Items, true
	case Null:
		d.fault(n, what, "is empty: write a list, each entry after a - and a space, or remove it")
	default:
		d.fault(n, what, "is %s: write a list, each entry after a - and a space", n)
	}
	return nil, false
}

// String returns a scalar's text. Numbers and booleans are taken as they are written.
func (d *Decoder) String(n *Node, what string) (string, bool) {
	switch {
	case n.Kind == Null:
		d.fault(n, what, "is empty: write a value, or remove it")
	case n.Kind != Scalar:
		d.fault(n, what, "is %s: write one value", n)
	case n.Text == "":
		d.fault(n, what, "is empty: write a value, or remove it")
	default:
		return n.Text, true
	}
	return "", false
}

// Strings returns the scalars of a list, or the one that stands in place of a list.
func (d *Decoder) Strings(n *Node, what string) ([]*Node, bool) {
	if n.Kind != Sequence {
		_, ok := d.String(n, what)
		return []*Node{n}, ok
	}
	sound := true
	for _, item := range n.Items {
		if _, ok := d.String(item, what); !ok {
			sound = false
		}
	}
	return n.Items, sound
}

// Bool reads true or false.
func (d *Decoder) Bool(n *Node, what string) (value, ok bool) {
	if n.Kind == Scalar && !n.Quoted && (n.Text == "true" || n.Text == "false") {
		return n.Text == "true", true
	}
	if n.Quoted {
		d.fault(n, what, "is the text %s: write true or false, without quotes", n)
	} else {
		d.fault(n, what, "is %s: write true or false", n)
	}
	return false, false
}

// Int reads a whole number between two others, in decimal.
func (d *Decoder) Int(n *Node, what string, least, most int64) (int64, bool) {
	value, err := strconv.ParseInt(n.Text, 10, 64)
	digits := strings.TrimPrefix(n.Text, "-")
	if n.Kind != Scalar || n.Quoted || err != nil || len(digits) > 1 && digits[0] == '0' || n.Text[0] == '+' {
		d.fault(n, what, "is %s: write a whole number between %d and %d, without quotes", n, least, most)
		return 0, false
	}
	if value < least || value > most {
		d.fault(n, what, "%d is not between %d and %d", value, least, most)
		return 0, false
	}
	return value, true
}

// OneOf reads one of some words and returns its number.
func (d *Decoder) OneOf(n *Node, what string, words ...string) (int, bool) {
	if n.Kind == Scalar {
		if i := slices.Index(words, n.Text); i >= 0 {
			return i, true
		}
		if best := suggest.Closest(n.Text, words); best != "" {
			d.fault(n, what, "is %s: did you mean %q?", n, best)
			return 0, false
		}
	}
	d.fault(n, what, "is %s: write %s", n, Words(words))
	return 0, false
}

// Percent reads a percentage and returns it in hundredths of a percent.
func (d *Decoder) Percent(n *Node, what string, most int) (int, bool) {
	number, percent := strings.CutSuffix(n.Text, "%")
	whole, fraction, _ := strings.Cut(number, ".")
	hundredths, err := strconv.ParseUint(whole+(fraction + "00")[:max(2, len(fraction))], 10, 31)
	switch {
	case n.Kind == Scalar && !percent && err == nil && len(fraction) <= 2:
		d.fault(n, what, "is %s: write a percentage, %s%%", n, n.Text)
	case n.Kind != Scalar || err != nil || whole == "" || strings.HasSuffix(number, "."):
		d.fault(n, what, "is %s: write a percentage, such as 25%%", n)
	case len(fraction) > 2:
		d.fault(n, what, "is %s: write at most two digits behind the point", n)
	case hundredths > uint64(most):
		d.fault(n, what, "is %s: write at most %d%%", n, most/100)
	default:
		return int(hundredths), true
	}
	return 0, false
}

// Duration reads a positive duration.
func (d *Decoder) Duration(n *Node, what string) (time.Duration, bool) { return d.duration(n, what, 1) }

// DurationOrZero reads a duration that may be zero, in any unit: 0s, 0ms.
func (d *Decoder) DurationOrZero(n *Node, what string) (time.Duration, bool) {
	return d.duration(n, what, 0)
}

func (d *Decoder) duration(n *Node, what string, least time.Duration) (time.Duration, bool) {
	const such = "write a duration such as 90s, 10m, 1h30m or 7d"
	value, err := ParseDuration(n.Text)
	switch {
	case n.Kind != Scalar:
		d.fault(n, what, "is %s: %s", n, such)
	case n.Type == Int || n.Type == Float || strings.Trim(n.Text, "-") == "0":
		d.fault(n, what, "%s has no unit: write %ss for seconds, or another duration such as 10m, 1h30m or 7d",
			n.Text, n.Text)
	case err != nil:
		d.fault(n, what, "is %s: %s", n, such)
	case value < least && least == 0:
		d.fault(n, what, "is %s: write a duration of zero or more", n)
	case value < least:
		d.fault(n, what, "is %s: write a duration above zero", n)
	default:
		return value, true
	}
	return 0, false
}

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
	// Lost are the keys of a mapping whose values are at fault, which has been reported. LostText is text of theirs that may
	// hold more keys of the mapping. Partial reports that other keys or entries are missing for the same reason.
	Lost     []string
	LostText string
	Partial  bool

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

// Lacks reports whether a mapping has no value for a key, and none that is at fault.
func (n *Node) Lacks(key string) bool { return n.Field(key) == nil && !n.MayLose(key) }

// MayLose reports whether a mapping may have had a value for a key that is at fault.
func (n *Node) MayLose(key string) bool {
	return n.Partial || slices.Contains(n.Lost, key) || strings.Contains(n.LostText, key)
}

// Whole reports whether no part of the collection itself is at fault.
func (n *Node) Whole() bool { return !n.Partial && len(n.Lost) == 0 }

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
