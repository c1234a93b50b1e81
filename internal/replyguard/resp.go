package replyguard

import (
	"bytes"
	"errors"
	"fmt"
)

// respLimits bounds the values of a RESP stream.
type respLimits struct {
	bytes    int64 // size of one outermost value
	elements int64 // total number of elements of one outermost value
}

const (
	maxDepth = 16       // of nested aggregates
	maxLine  = 64 << 10 // bytes of a simple string, an error or a number
)

// respScanner parses RESP2 and RESP3 just far enough to find the ends of values. It stores no payloads, except those
// that keeps selects. Types that Redis never sends are errors: attributes, streamed types, pushes inside of replies.
type respScanner struct {
	limits respLimits
	// keeps reports whether the text of a value that starts with typ is stored in kept.
	keeps   func(typ byte) bool
	maxKept int // bytes

	state scanState
	typ   byte // of the value whose line is being read
	minus bool // of a length
	carry bool // the last byte was a carriage return
	n     int64
	line  int   // bytes of the line so far, without the type
	skip  int64 // remaining bytes of a payload
	depth int
	open  [maxDepth]int64 // remaining elements of the incomplete aggregates

	// Of the outermost value, valid when next reports its end.
	top      byte
	count    int64 // announced; -1: null
	size     int64
	elements int64
	keep     bool
	kept     []byte // its encoding, or the beginning of it
}

type scanState uint8

const (
	atType scanState = iota
	atLine
	atLength
	atPayload
	atCR
	atLF
)

// each consumes b, and calls ended at the end of each outermost value.
func (s *respScanner) each(b []byte, ended func() error) error {
	for len(b) > 0 {
		n, end, err := s.next(b)
		if err == nil && end {
			err = ended()
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// next consumes bytes up to the end of an outermost value, and reports whether there was one.
func (s *respScanner) next(b []byte) (n int, ended bool, err error) {
	for n < len(b) && !ended && err == nil {
		switch s.state {
		case atType:
			err = s.begin(b[n])
			n++
		case atLine:
			text, took := b[n:], len(b)-n
			end := bytes.IndexByte(text, '\n')
			if end >= 0 {
				text, took = text[:end], end+1
			}
			if s.line += took; s.line > maxLine {
				return n, false, fmt.Errorf("line of more than %d bytes", maxLine)
			}
			if len(text) > 0 {
				s.carry = text[len(text)-1] == '\r'
			}
			n += took
			if end >= 0 {
				ended, err = s.endLine()
			}
		case atLength:
			ended, err = s.length(b[n])
			n++
		case atPayload:
			took := min(s.skip, int64(len(b)-n))
			n += int(took)
			if s.skip -= took; s.skip == 0 {
				s.state = atCR
			}
		case atCR, atLF:
			if b[n] != "\r\n"[s.state-atCR] {
				return n, false, fmt.Errorf("byte %#02x after a string, want a line ending", b[n])
			}
			n++
			if s.state++; s.state > atLF {
				ended = s.end()
			}
		}
	}
	if s.keep && len(s.kept) < s.maxKept {
		s.kept = append(s.kept, b[:min(n, s.maxKept-len(s.kept))]...)
	}
	if s.size += int64(n); err == nil && s.size > s.limits.bytes {
		err = s.tooLong(s.size)
	}
	return n, ended, err
}

func (s *respScanner) tooLong(n int64) error {
	return fmt.Errorf("reply of %d bytes, maximum %d", n, s.limits.bytes)
}

// begin parses the first byte of a value.
func (s *respScanner) begin(typ byte) error {
	if s.depth == 0 {
		s.top, s.count, s.size, s.elements, s.kept = typ, 0, 0, 0, s.kept[:0]
		s.keep = s.keeps != nil && s.keeps(typ)
	} else if typ == '>' {
		return errors.New("push inside of a reply")
	}
	s.typ, s.line, s.n, s.minus, s.carry = typ, 0, 0, false, false
	switch typ {
	case '+', '-', ':', '_', '#', ',', '(':
		s.state = atLine
	case '$', '!', '=', '*', '%', '~', '>':
		s.state = atLength
	default:
		return fmt.Errorf("type %q, which is not one of RESP", typ)
	}
	return nil
}

// endLine ends a value that is a line.
func (s *respScanner) endLine() (ended bool, err error) {
	text := s.line - len("\r\n")
	switch {
	case !s.carry:
		return false, errors.New("line without a carriage return")
	case s.typ == '_' && text != 0, s.typ == '#' && text != 1, s.typ == ':' && text == 0:
		return false, fmt.Errorf("%d bytes in a value of type %q", text, s.typ)
	}
	return s.end(), nil
}

// maxDigits exceeds the number of digits of any accepted length, and is too small for an overflow.
const maxDigits = 15

// length parses a byte of the line that contains a length.
func (s *respScanner) length(c byte) (ended bool, err error) {
	s.line++
	switch {
	case c >= '0' && c <= '9' && !s.carry && s.line <= maxDigits:
		s.n = 10*s.n + int64(c-'0')
		return false, nil
	case c == '-' && s.line == 1:
		s.minus = true
		return false, nil
	case c == '\r' && !s.carry && (s.line > 2 || s.line == 2 && !s.minus):
		s.carry = true
		return false, nil
	case c == '\n' && s.carry:
		return s.announced()
	}
	return false, fmt.Errorf("byte %#02x in the length of a value of type %q, after %d", c, s.typ, s.n)
}

// announced starts a value whose length has been parsed.
func (s *respScanner) announced() (ended bool, err error) {
	if s.minus {
		if s.n != 1 || s.typ != '$' && s.typ != '*' {
			return false, fmt.Errorf("length -%d of a value of type %q", s.n, s.typ)
		}
		if s.depth == 0 {
			s.count = -1
		}
		return s.end(), nil
	}
	if s.depth == 0 {
		s.count = s.n
	}
	switch s.typ {
	case '$', '!', '=':
		if s.n > s.limits.bytes {
			return false, s.tooLong(s.n)
		}
		if s.skip, s.state = s.n, atPayload; s.n == 0 {
			s.state = atCR
		}
		return false, nil
	case '%':
		s.n *= 2
	}
	switch s.elements += s.n; {
	case s.elements > s.limits.elements:
		return false, fmt.Errorf("reply of %d elements, maximum %d", s.elements, s.limits.elements)
	case s.n == 0:
		return s.end(), nil
	case s.depth == maxDepth:
		return false, fmt.Errorf("reply nested more than %d deep", maxDepth)
	}
	s.open[s.depth] = s.n
	s.depth++
	s.state = atType
	return false, nil
}

// end ends a value, and the aggregates whose last element it is. It reports whether the outermost value ends.
func (s *respScanner) end() bool {
	s.state = atType
	for s.depth > 0 {
		if s.open[s.depth-1]--; s.open[s.depth-1] > 0 {
			return false
		}
		s.depth--
	}
	return true
}
