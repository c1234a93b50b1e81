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

// base is what times in integer states count from: 2026, in microseconds. The script has the same number.
const base = 1_767_225_600_000_000

// cell is one bucket as the script found it, and what becomes of it as the call is replayed.
type cell struct {
	state   step.State
	words   []uint64 // Slices; Bucket, Interval: marks
	blocked int64    // until when
	seen    bool     // it was read
	kind    step.Kind
	shape   uint8  // of the first take's limit
	hash    uint64 // of its stored key, for hinter
	rule    uint64 // a part of its rule's digest, likewise
	hinted  bool   // the server is told what was last seen of it
}

func (c *cell) write(p *step.Params, s step.State) {
	c.state = s
	if p.Kind < step.Log && !p.Wide(c.words) {
		c.words = nil
	}
}

// decode reads what the script stored.
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
	letterMarks = "m" // what a state with marks begins with
	markBytes   = 7   // the width of each of its numbers
)

// decodeMarks reads a bucket with marks: when it will be full, the fraction or rest, its shape, then of each mark its
// time, low and out.
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
		return fmt.Errorf("%d marks make no sense", n)
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
		c.state = step.State{ExpiresAt: n/1000 + base, Shape: uint8(n / 10 % 100)} // the last digit is about its time to live
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

// parseFields reads numbers separated by colons.
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

// encode writes a state as the script reads it, for a hint. It is the longest of the forms in which it may be stored.
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

// idempotencyRecord is what is kept of a request that was charged under an ID.
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

// A stored key is, one after the other and each of known width but for the last:
//
//	prefix      Config.KeyPrefix
//	{digest}    the hash tag, in a Cluster only: on one server it would only cost memory
//	1           the version of all that follows and of what is stored under it
//	kind        a letter; sub-windows are followed by their number, IDs by the ID
//	rule        twelve characters of a digest of its name
//	: or #      what follows is the key itself, or a digest of it
//	key
//
// so that two different buckets never share one.

const version = '1'

// Letters for what is not a state.
const (
	letterBlock   = 'x'
	letterID      = 'd'
	letterNumbers = 'n'
)

// kindLetters are by step.Kind. Two were given up: b and i, under which an earlier version kept buckets and interval
// buckets in other forms.
const kindLetters = "?trwcslf"

// letterInitial is that of buckets with an initial level, whose states ordinary ones must not be read as.
const letterInitial = 'g'

// longest is the longest key that is stored as it is: a UUID, say. A digest of a longer one is shorter.
const longest = 36

// name is what a bucket's keys are made of.
type name struct {
	rule group.RuleID
	key  string
	slot string
}

// namer writes stored keys.
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

// tag is what keys of one call must share in a Cluster. Without a slot a key's buckets of all rules are together.
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

// state names where the states of one kind are kept.
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

// block names where it is kept until when a key is blocked, whatever the kind of its limit.
func (n *namer) block(dst []byte, of *name) []byte {
	return of.end(append(n.begin(dst, of), letterBlock))
}

// id names where a charged request is remembered.
func (n *namer) id(dst []byte, of *name, id uint64) []byte {
	dst = append(n.begin(dst, of), letterID)
	dst = base64.RawURLEncoding.AppendEncode(dst, binary.LittleEndian.AppendUint64(nil, id))
	return of.end(dst)
}
