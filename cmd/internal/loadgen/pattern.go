package loadgen

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Patterns parses the parts of a request that depend on its key, such as 10.0.0.{1..100}. Keys are numbered, and the number
// determines the text of every pattern: the number of keys is the product of the sizes of all ranges. {key} is a number
// below Keys, the same in all patterns.
type Patterns struct {
	Keys int64 // number of values of {key}; 0 makes {key} an error

	size   int64 // product of all ranges so far
	stride int64 // stride of {key}; 0 if it was not used
}

// MaxKeys is the maximum number of keys.
const MaxKeys = 1_000_000_000

// A Pattern is a text with ranges.
type Pattern struct {
	parts []span
	tail  string
}

// A span is a text and the range after it.
type span struct {
	before string
	from   int64
	size   int64
	stride int64 // number of consecutive keys with the same value here
	width  int   // minimum number of digits, filled with zeros
}

var ranges = regexp.MustCompile(`\{(?:(\d{1,18})\.\.(\d{1,18})|key)\}`)

// Parse parses a text. Braces around anything except a range or key are not special.
func (p *Patterns) Parse(text string) (Pattern, error) {
	var out Pattern
	at := 0
	for _, m := range ranges.FindAllStringSubmatchIndex(text, -1) {
		s := span{before: text[at:m[0]]}
		at = m[1]
		var err error
		if m[2] < 0 {
			err = p.key(&s)
		} else {
			err = p.rangeOf(&s, text[m[2]:m[3]], text[m[4]:m[5]])
		}
		if err != nil {
			return out, fmt.Errorf("%s in %q: %w", text[m[0]:m[1]], text, err)
		}
		out.parts = append(out.parts, s)
	}
	out.tail = text[at:]
	return out, nil
}

// key sets the span of {key}.
func (p *Patterns) key(s *span) error {
	if p.Keys < 1 {
		return errors.New("{key} needs the number of keys: add --keys 1000, or write a range such as {1..1000}")
	}
	s.size, s.stride = p.Keys, p.stride
	if p.stride > 0 {
		return nil
	}
	err := p.multiply(s)
	p.stride = s.stride
	return err
}

// rangeOf sets the span of a range.
func (p *Patterns) rangeOf(s *span, low, high string) error {
	last, _ := strconv.ParseInt(high, 10, 64) // 18 digits fit
	s.from, _ = strconv.ParseInt(low, 10, 64)
	if last < s.from {
		return errors.New("write the smaller number first")
	}
	if len(low) > 1 && low[0] == '0' {
		s.width = len(low)
	}
	s.size = last - s.from + 1
	return p.multiply(s)
}

// multiply multiplies the number of keys by the size of the span.
func (p *Patterns) multiply(s *span) error {
	s.stride = max(1, p.size)
	if s.size > MaxKeys/s.stride {
		return fmt.Errorf("too many keys: the product of all ranges is at most %d", MaxKeys)
	}
	p.size = s.size * s.stride
	return nil
}

// Count returns the number of keys of all patterns together.
func (p *Patterns) Count() int64 { return max(1, p.size) }

// UsesKey reports whether a pattern contains {key}.
func (p *Patterns) UsesKey() bool { return p.stride > 0 }

// Append appends the text for a key to b.
func (t Pattern) Append(b []byte, key int64) []byte {
	for i := range t.parts {
		s := &t.parts[i]
		b = append(b, s.before...)
		n := s.from + key/s.stride%s.size
		if s.width > 0 {
			b = append(b, strings.Repeat("0", max(0, s.width-digits(n)))...)
		}
		b = strconv.AppendInt(b, n, 10)
	}
	return append(b, t.tail...)
}

func digits(n int64) int {
	count := 1
	for ; n >= 10; n /= 10 {
		count++
	}
	return count
}

// Text returns the text for a key.
func (t Pattern) Text(key int64) string { return string(t.Append(nil, key)) }
