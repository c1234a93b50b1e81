package loadgen

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Patterns are texts of a request that differ with its key, such as 10.0.0.{1..100}. Keys have numbers, and every pattern
// is filled by the number: {1..100} by itself makes a hundred keys, and each further range as many times more. {key} is the
// number of one of Keys, the same wherever it stands.
type Patterns struct {
	Keys int64 // that {key} stands for; 0 refuses it

	size   int64 // of all ranges so far, multiplied
	stride int64 // of {key}; 0: it was not used
}

// MaxKeys is how many keys there may be.
const MaxKeys = 1_000_000_000

// A Pattern is a text with ranges.
type Pattern struct {
	parts []span
	tail  string
}

// A span is text, and the range after it.
type span struct {
	before string
	from   int64
	size   int64
	stride int64 // how many keys have the same number here before the next
	width  int   // zeros are put before shorter numbers
}

var ranges = regexp.MustCompile(`\{(?:(\d{1,18})\.\.(\d{1,18})|key)\}`)

// Parse reads a text. Braces around anything but a range or key are left as they are.
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

// key makes a span of {key}.
func (p *Patterns) key(s *span) error {
	if p.Keys < 1 {
		return errors.New("say how many keys there are with --keys 1000, or write a range, such as {1..1000}")
	}
	s.size, s.stride = p.Keys, p.stride
	if p.stride > 0 {
		return nil
	}
	err := p.multiply(s)
	p.stride = s.stride
	return err
}

// rangeOf makes a span of a range.
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

// multiply makes each key so far as many as the span has numbers.
func (p *Patterns) multiply(s *span) error {
	s.stride = max(1, p.size)
	if s.size > MaxKeys/s.stride {
		return fmt.Errorf("at most %d keys are possible, all ranges multiplied", MaxKeys)
	}
	p.size = s.size * s.stride
	return nil
}

// Count is how many keys all patterns together make.
func (p *Patterns) Count() int64 { return max(1, p.size) }

// UsesKey tells whether a pattern has {key}.
func (p *Patterns) UsesKey() bool { return p.stride > 0 }

// Append writes the text for a key behind b.
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

// Text is the text for a key.
func (t Pattern) Text(key int64) string { return string(t.Append(nil, key)) }
