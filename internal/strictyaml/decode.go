package strictyaml

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/internal/suggest"
)

// maxFaults is the maximum number of stored errors. A file with more usually repeats one mistake.
const maxFaults = 1000

// Decoder turns nodes into Go values. It collects errors with their positions; a method that reports one returns false.
// The what of a method names the value in messages, such as "limit: burst"; it may be empty.
type Decoder struct {
	// Renamed maps old keys, and old values as "key: value", to their new names. They are errors, and read as the new ones.
	Renamed map[string]string
	// Under begins all messages that do not begin with it: the section that is read, such as "defaults: ".
	Under string

	faults  []Fault
	dropped int
}

// Fault reports an error at a node.
func (d *Decoder) Fault(at *Node, format string, args ...any) {
	if len(d.faults) == maxFaults {
		d.dropped++
		return
	}
	msg := fmt.Sprintf(format, args...)
	if !strings.HasPrefix(msg, d.Under) {
		msg = d.Under + msg
	}
	d.faults = append(d.faults, Fault{Line: at.Line, Column: at.Column, Msg: msg})
}

// fault reports an error of a named value.
func (d *Decoder) fault(at *Node, what, format string, args ...any) {
	if what != "" {
		what += ": "
	}
	d.Fault(at, "%s%s", what, fmt.Sprintf(format, args...))
}

// Faults returns the stored errors in the order of the file, and the number of errors beyond the maximum.
func (d *Decoder) Faults() (faults []Fault, more int) {
	slices.SortStableFunc(d.faults, func(a, b Fault) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return d.faults, d.dropped
}

// Count returns the number of reported errors. A caller compares it before and after a call to find out whether the
// call reported any.
func (d *Decoder) Count() int { return len(d.faults) + d.dropped }

// Fields maps the keys of a mapping to the functions that read their values.
type Fields[T any] map[string]func(*T, *Node)

// Keys lists the keys in alphabetical order.
func (f Fields[T]) Keys() []string { return slices.Sorted(maps.Keys(f)) }

// With returns these keys together with more.
func (f Fields[T]) With(more Fields[T]) Fields[T] {
	all := maps.Clone(f)
	maps.Copy(all, more)
	return all
}

// Decode calls the functions for the keys of a mapping, in the order of the file, and reports whether n is a mapping
// without unknown keys. moved maps keys that people write by mistake to advice.
func Decode[T any](d *Decoder, n *Node, what string, fields Fields[T], moved map[string]string, into *T) bool {
	if !d.IsMapping(n, what) {
		return false
	}
	sound := true
	for _, field := range n.Fields {
		if name := d.Renamed[field.Key.Text]; fields[field.Key.Text] == nil && fields[name] != nil {
			d.fault(field.Key, what, "%s: renamed: write %s", field.Key.Text, name)
			if n.Field(name) != nil {
				continue
			}
			field.Key.Text = name
		}
		if decode, known := fields[field.Key.Text]; known {
			decode(into, field.Value)
			continue
		}
		d.UnknownKey(field.Key, what, fields.Keys(), moved)
		sound = false
	}
	return sound
}

// UnknownKey reports an unknown key with the closest known key, and returns that key, or "" if none is close.
func (d *Decoder) UnknownKey(key *Node, what string, known []string, moved map[string]string) (closest string) {
	if len(d.faults) == maxFaults {
		d.dropped++ // the error is dropped, so skip the search
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

// IsMapping reports whether n is a mapping; if not, it adds an error.
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

// Sequence returns the entries of a list. It adds an error if n is not a list.
func (d *Decoder) Sequence(n *Node, what string) ([]*Node, bool) {
	switch n.Kind {
	case Sequence:
		return n.Items, true
	case Null:
		d.fault(n, what, "is empty: write a list, one \"- entry\" per line, or remove it")
	default:
		d.fault(n, what, "is %s: write a list, one \"- entry\" per line", n)
	}
	return nil, false
}

// String returns the text of a scalar; numbers and booleans as written.
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

// Strings returns the scalars of a list. A single scalar is a list of one.
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

// Int reads a decimal integer from least to most, both included.
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

// OneOf reads one of words and returns its index.
func (d *Decoder) OneOf(n *Node, what string, words ...string) (int, bool) {
	if n.Kind == Scalar {
		if i := slices.Index(words, n.Text); i >= 0 {
			return i, true
		}
		if name := d.Renamed[what[strings.LastIndex(what, " ")+1:]+": "+n.Text]; name != "" {
			d.fault(n, what, "the value %q is renamed: write %q", n.Text, name)
			return slices.Index(words, name), false
		}
		if best := suggest.Closest(n.Text, words); best != "" {
			d.fault(n, what, "is %s: did you mean %q?", n, best)
			return 0, false
		}
	}
	d.fault(n, what, "is %s: write %s", n, Words(words))
	return 0, false
}

// Percent reads a percentage of at most most and returns it in hundredths of a percent.
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
		d.fault(n, what, "is %s: write at most two decimal places", n)
	case hundredths > uint64(most):
		d.fault(n, what, "is %s: write at most %d%%", n, most/100)
	default:
		return int(hundredths), true
	}
	return 0, false
}

// Duration reads a positive duration.
func (d *Decoder) Duration(n *Node, what string) (time.Duration, bool) {
	return d.DurationBetween(n, what, 1, math.MaxInt64)
}

// DurationOrZero reads a duration that may be zero, in any unit: 0s, 0ms.
func (d *Decoder) DurationOrZero(n *Node, what string) (time.Duration, bool) {
	return d.DurationBetween(n, what, 0, math.MaxInt64)
}

// DurationBetween reads a duration from least to most. Least is not negative.
func (d *Decoder) DurationBetween(n *Node, what string, least, most time.Duration) (time.Duration, bool) {
	const such = "write a duration such as 90s, 10m, 1h30m or 7d"
	value, err := ParseDuration(n.Text)
	number := n.Type == Int || n.Type == Float || strings.Trim(n.Text, "-") == "0"
	switch {
	case n.Kind != Scalar:
		d.fault(n, what, "is %s: %s", n, such)
	case number && strings.HasPrefix(n.Text, "-"), number && least > 0 && strings.Trim(n.Text, "0.") == "":
		d.fault(n, what, "is %s: %s", n, such)
	case number:
		d.fault(n, what, "%s has no unit: write %ss for seconds, or another duration such as 10m, 1h30m or 7d",
			n.Text, n.Text)
	case err != nil && durationForm.MatchString(n.Text), value > most:
		d.fault(n, what, "is %s, which is too long: write at most %s", n, durationText(most))
	case err != nil:
		d.fault(n, what, "is %s: %s", n, such)
	case value < least && least == 0:
		d.fault(n, what, "is %s: write a duration of zero or more", n)
	case value < least && least == 1:
		d.fault(n, what, "is %s: write a duration above zero", n)
	case value < least:
		d.fault(n, what, "%s is not between %s and %s", n.Text, durationText(least), durationText(most))
	default:
		return value, true
	}
	return 0, false
}

// Bounds of a file. Real rule files stay far below them; a larger file is a mistake or an attack.
const (
	MaxBytes = 1 << 20
	MaxDepth = 32
	MaxNodes = 100_000 // aliased values count for each alias
)

// Kind is the kind of a [Node].
type Kind uint8

const (
	Null Kind = iota // no value, ~ or null
	Scalar
	Mapping
	Sequence
)

// Type is the YAML type of a plain scalar. Quoted scalars are text.
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
	Quoted bool // a quoted scalar, or a block scalar
	Line   int
	Column int     // in characters
	Text   string  // of a scalar, as written except for quotes and escapes
	Fields []Field // of a mapping, in the order of the file
	Items  []*Node // of a sequence
	// Lost lists the keys of a mapping whose values have an error, which is already reported. LostText is the text of
	// these values; it may contain other keys of the mapping. Partial means that other keys or entries are missing for
	// the same reason.
	Lost     []string
	LostText string
	Partial  bool

	size, height int // of the whole subtree, aliases followed
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

// Lacks reports whether a mapping has no value for key, not even one with an error.
func (n *Node) Lacks(key string) bool { return n.Field(key) == nil && !n.MayLose(key) }

// MayLose reports whether a mapping may have a value for key that is missing from the tree because of an error.
func (n *Node) MayLose(key string) bool {
	return n.Partial || slices.Contains(n.Lost, key) || strings.Contains(n.LostText, key)
}

// Whole reports whether no key or entry of the collection is missing because of an error.
func (n *Node) Whole() bool { return !n.Partial && len(n.Lost) == 0 }

// String describes the node for messages: the text of a scalar, shortened if long, or the kind of a collection.
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

// Quote quotes text for a message and shortens it to 60 bytes.
func Quote(text string) string {
	const most = 60
	if len(text) > most {
		return fmt.Sprintf("%.*q…", most, text)
	}
	return fmt.Sprintf("%q", text)
}

// Fault is an error in a file.
type Fault struct {
	Line, Column int
	Reason       Reason
	Msg          string // the error, and what to write instead
	Key          string // for the reason KeyType: the key as written
}

// Reason classifies errors for callers that word some of them differently.
type Reason uint8

const (
	Other           Reason = iota
	KeyType                // a key is not text
	UnsupportedYAML        // YAML that this package does not read
	TooLarge               // exceeds a bound
	Duplicate              // a key occurs twice
)
