package redisstore

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// base is the origin of times in integer states: the start of 2026, in microseconds. The script has the same constant.
const base = 1_767_225_600_000_000

// cell is one bucket as the script found it, updated while the call is replayed.
type cell struct {
	state   step.State
	words   []uint64 // counts of Slices, or marks of Bucket and Interval
	blocked int64    // end of the block
	seen    bool     // its state has been read
	kind    step.Kind
	shape   uint8  // shape of the first take's limit
	hash    uint64 // of its stored key, for failoverHints
	rule    uint64 // first half of its rule's digest, for failoverHints
	hinted  bool   // the call has a hint for it
}

func (c *cell) write(p *step.Params, s step.State) {
	c.state = s
	if p.Kind < step.Log && !p.Wide(c.words) {
		c.words = nil
	}
}

// decode parses a stored state.
func (c *cell) decode(p *step.Params, text string) (err error) {
	switch {
	case p.Kind <= step.Interval && strings.HasPrefix(text, letterMarks):
		err = c.decodeMarks(text)
	case p.Kind == step.Bucket:
		err = c.decodeBucket(text)
	case p.Kind == step.Interval:
		err = parseFields(text, 3, func(n []int64) {
			c.state = step.State{ExpiresAt: n[0], Value: uint64(n[1]), Shape: uint8(n[2])}
		})
	case p.Kind == step.Window:
		err = c.decodeWindow(text)
	case p.Kind == step.Counter:
		err = parseFields(text, 4, func(n []int64) {
			c.state = step.State{ExpiresAt: n[0], Value: uint64(n[1]) | uint64(n[2])<<32, Shape: uint8(n[3])}
		})
	case p.Kind == step.Slices:
		err = c.decodeSlices(p, text)
	}
	if err != nil {
		return fmt.Errorf("state %.60q is not of this version: %w", text, err)
	}
	return nil
}

const (
	letterMarks = "m" // first letter of a state with marks
	markBytes   = 7   // width of each of its numbers
)

// decodeMarks parses a bucket with marks: the time when it is full, the fraction or remainder, its shape, and for each
// mark its time, low and out.
func (c *cell) decodeMarks(text string) error {
	b := []byte(text[len(letterMarks):])
	n := len(b)/markBytes/3 - 1
	if n < 1 || len(b) != 3*markBytes*(n+1) {
		return fmt.Errorf("%d bytes", len(text))
	}
	var numbers []uint64
	for ; len(b) > 0; b = b[markBytes:] {
		var room [8]byte
		copy(room[:], b[:markBytes])
		numbers = append(numbers, binary.LittleEndian.Uint64(room[:]))
	}
	c.state = step.State{ExpiresAt: int64(numbers[0]), Value: numbers[1], Shape: uint8(numbers[2])}
	c.words = append([]uint64{c.state.Value, uint64(n)}, numbers[3:]...)
	if !step.PlausibleMarks(c.words) {
		return fmt.Errorf("invalid number of marks: %d", n)
	}
	return nil
}

func (c *cell) decodeBucket(text string) error {
	if strings.Contains(text, ":") {
		return parseFields(text, 3, func(n []int64) {
			c.state = step.State{ExpiresAt: n[0], Value: uint64(n[1]), Shape: uint8(n[2])}
		})
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return err
	}
	if n >= 0 {
		c.state = step.State{ExpiresAt: n/1000 + base, Shape: uint8(n / 10 % 100)} // the last digit is about the key's TTL
		return nil
	}
	n = -n
	c.state = step.State{ExpiresAt: n/10_000 + base, Value: uint64(n % 100), Shape: uint8(n / 100 % 100)}
	return nil
}

func (c *cell) decodeWindow(text string) error {
	if strings.Contains(text, ":") {
		return parseFields(text, 4, func(n []int64) {
			c.state = step.State{ExpiresAt: n[0], Value: step.WindowValue(n[1], n[2]), Shape: uint8(n[3])}
		})
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return err
	}
	c.state = step.State{
		ExpiresAt: n/1000%1_000_000_000*1_000_000 + base,
		Value:     step.WindowValue(n/1_000_000_000_000, 0),
		Shape:     uint8(n % 1000),
	}
	return nil
}

// parseFields parses numbers separated by colons.
func parseFields(text string, want int, set func(n []int64)) error {
	var room [5]int64
	fields := room[:0]
	for field := range strings.SplitSeq(text, ":") {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return err
		}
		if len(fields) == want {
			return fmt.Errorf("more than %d fields", want)
		}
		fields = append(fields, n)
	}
	if len(fields) != want {
		return fmt.Errorf("%d fields instead of %d", len(fields), want)
	}
	set(fields)
	return nil
}

// sliceBytes is the width of a sub-window's count.
const sliceBytes = 5

func (c *cell) decodeSlices(p *step.Params, text string) error {
	if want := 9 + sliceBytes*(int(p.Slices)+1); len(text) != want {
		return fmt.Errorf("%d bytes instead of %d", len(text), want)
	}
	b := []byte(text)
	c.state.ExpiresAt = int64(math.Float64frombits(binary.LittleEndian.Uint64(b)))
	c.state.Shape = b[8]
	for b = b[9:]; len(b) > 0; b = b[sliceBytes:] {
		c.words = append(c.words, uint64(binary.LittleEndian.Uint32(b))|uint64(b[4])<<32)
	}
	return nil
}

// encode appends a state for a hint as the script reads it, in the longest of the forms in which it may be stored.
func (c *cell) encode(dst []byte) []byte {
	s := &c.state
	switch c.kind {
	case step.Bucket, step.Interval:
		return appendFields(dst, s.ExpiresAt, int64(s.Value), int64(s.Shape))
	case step.Window:
		count, grace := step.WindowOf(s.Value)
		return appendFields(dst, s.ExpiresAt, count, grace, int64(s.Shape))
	case step.Counter:
		return appendFields(dst, s.ExpiresAt, int64(s.Value&math.MaxUint32), int64(s.Value>>32), int64(s.Shape))
	case step.Slices:
		dst = append(number(dst, s.ExpiresAt), s.Shape)
		for _, w := range c.words {
			dst = append(binary.LittleEndian.AppendUint32(dst, uint32(w)), byte(w>>32))
		}
	}
	return dst
}

func appendFields(dst []byte, fields ...int64) []byte {
	for i, n := range fields {
		if i > 0 {
			dst = append(dst, ':')
		}
		dst = strconv.AppendInt(dst, n, 10)
	}
	return dst
}

// idempotencyRecord is the stored record of a take that was charged under an idempotency ID.
type idempotencyRecord struct {
	till    int64
	granted int64
	denied  bool
}

func (r *idempotencyRecord) decode(text string) error {
	return parseFields(text, 3, func(n []int64) {
		*r = idempotencyRecord{till: n[0], granted: n[1], denied: n[2] == 1}
	})
}

// A stored key consists of these parts, each of fixed width except the last:
//
//	prefix      Config.KeyPrefix
//	{digest}    the hash tag, only in a Cluster, because elsewhere it would only cost memory
//	1           the version of the rest of the key and of the value
//	kind        a letter; sub-windows are followed by their number, IDs by the ID
//	rule        twelve characters of a digest of the rule's name
//	: or #      followed by the key itself, or by its digest
//	key
//
// so that two different buckets never share a stored key.

const version = '1'

// Letters of keys that are not states.
const (
	letterBlock   = 'x'
	letterID      = 'd'
	letterNumbers = 'n'
)

// kindLetters is indexed by step.Kind. The letters b and i are not reused: an earlier version stored buckets and
// interval buckets under them in other forms.
const kindLetters = "?trwcslf"

// letterInitial is the letter of buckets with an initial level, whose states must not be mixed up with ordinary ones.
const letterInitial = 'g'

// longest is the maximum length of a key that is stored verbatim, such as a UUID. A longer key is stored as a shorter
// digest.
const longest = 36

// name identifies a bucket; its stored keys are derived from it.
type name struct {
	rule group.RuleID
	key  string
	slot string
}

// namer derives stored keys.
type namer struct {
	prefix string
	tagged bool // with Cluster hash tags
}

func (n *namer) begin(dst []byte, of *name) []byte {
	dst = append(dst, n.prefix...)
	if n.tagged {
		dst = append(dst, '{')
		dst = append(dst, of.tag()...)
		dst = append(dst, '}')
	}
	return append(dst, version)
}

// tag returns the hash tag, which the keys of one call must share in a Cluster. Without a HashTag it is derived from
// the key, so that the buckets of one key are together for all rules.
func (of *name) tag() string {
	text := "key " + of.key
	if of.slot != "" {
		text = "slot " + of.slot
	}
	sum := sha256.Sum256([]byte(text))
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

func (of *name) end(dst []byte) []byte {
	dst = appendRule(dst, of.rule)
	if isPlainText(of.key) {
		dst = append(dst, ':')
		return append(dst, of.key...)
	}
	sum := sha256.Sum256([]byte(of.key))
	dst = append(dst, '#')
	return base64.RawURLEncoding.AppendEncode(dst, sum[:16])
}

// appendRule appends a rule's digest.
func appendRule(dst []byte, id group.RuleID) []byte {
	var rule [9]byte
	binary.LittleEndian.PutUint64(rule[:], id.A)
	rule[8] = byte(id.B)
	return base64.RawURLEncoding.AppendEncode(dst, rule[:])
}

func isPlainText(key string) bool {
	if len(key) > longest {
		return false
	}
	for i := range len(key) {
		if c := key[i]; c <= ' ' || c > '~' || c == '{' || c == '}' {
			return false
		}
	}
	return true
}

// state appends the stored key of the bucket's state for the kind of p.
func (n *namer) state(dst []byte, of *name, p *step.Params) []byte {
	letter := kindLetters[p.Kind]
	if p.HasInitial {
		letter = letterInitial
	}
	dst = append(n.begin(dst, of), letter)
	if p.Kind == step.Slices {
		dst = append(dst, '0'+byte(p.Slices/10), '0'+byte(p.Slices%10))
	}
	return of.end(dst)
}

// block appends the stored key of the bucket's block, which is the same for all kinds of limit.
func (n *namer) block(dst []byte, of *name) []byte {
	return of.end(append(n.begin(dst, of), letterBlock))
}

// id appends the stored key of an idempotency record.
func (n *namer) id(dst []byte, of *name, id uint64) []byte {
	dst = append(n.begin(dst, of), letterID)
	dst = base64.RawURLEncoding.AppendEncode(dst, binary.LittleEndian.AppendUint64(nil, id))
	return of.end(dst)
}
