package resp

import (
	"bytes"
	"fmt"
)

const (
	// maxArgs is the most arguments of a command. HELLO with all its options has seven.
	maxArgs = 16
	// maxCommandBytes is the most bytes of a command as it is sent, and so of a connection's buffer.
	maxCommandBytes = 8 << 10
	// maxKeyBytes is the most bytes of a key.
	maxKeyBytes = 1 << 10
)

// protocolError is about bytes that are no command. Where the next one begins is then unknown, so the connection ends.
type protocolError string

func (e protocolError) Error() string { return "Protocol error: " + string(e) }

const (
	errTooLarge   = protocolError("too large a command: 8 KiB at most")
	errCount      = protocolError("invalid multibulk length: 16 arguments at most")
	errLength     = protocolError("invalid bulk length: 8 KiB at most")
	errNumber     = protocolError("a length is digits and CRLF")
	errBulkEnd    = protocolError("a bulk string ends with CRLF")
	errUnbalanced = protocolError("unbalanced quotes in request")
	errHTTP       = protocolError("this is not HTTP")
)

// command is one command. The arguments lie in the buffer that it was parsed from.
type command struct {
	args [][]byte
	room [maxArgs][]byte
}

// parse reads the command that b begins with, and returns how many bytes it takes: 0 if it has not come whole. Whatever
// it says of b it says of all that begins with b.
func (c *command) parse(b []byte) (used int, err error) {
	c.args = c.room[:0]
	if len(b) == 0 {
		return 0, nil
	}
	if b[0] != '*' {
		return c.parseInline(b)
	}
	count, at, err := length(b, 1)
	if at == 0 || err != nil {
		return 0, err
	}
	if count > maxArgs {
		return 0, errCount
	}
	for range count {
		if at == len(b) {
			return 0, nil
		}
		if b[at] != '$' {
			return 0, protocolError(fmt.Sprintf("expected '$', got %q", b[at]))
		}
		size, from, err := length(b, at+1)
		switch {
		case err != nil:
			return 0, err
		case from == 0:
			return 0, nil
		case size < 0 || size > maxCommandBytes:
			return 0, errLength
		}
		end := from + size
		if end+2 > len(b) {
			return 0, nil
		}
		if b[end] != '\r' || b[end+1] != '\n' {
			return 0, errBulkEnd
		}
		c.args = append(c.args, b[from:end:end])
		at = end + 2
	}
	return at, nil
}

// length reads a number and the end of its line, and returns where the next one begins: 0 if it has not come whole.
func length(b []byte, at int) (n, next int, err error) {
	const mostDigits = 10
	begin, negative := at, false
	if at < len(b) && b[at] == '-' {
		negative = true
		begin++
		at++
	}
	for ; at < len(b); at++ {
		switch digit := b[at] - '0'; {
		case digit <= 9 && at-begin < mostDigits:
			n = 10*n + int(digit)
		case b[at] == '\r' && at > begin:
			if at+1 == len(b) {
				return 0, 0, nil
			}
			if b[at+1] != '\n' {
				return 0, 0, errNumber
			}
			if negative {
				n = -n
			}
			return n, at + 2, nil
		default:
			return 0, 0, errNumber
		}
	}
	return 0, 0, nil
}

// parseInline reads a command that a person has typed: words, of which those with spaces stand in quotes.
func (c *command) parseInline(b []byte) (used int, err error) {
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		return 0, nil
	}
	line := bytes.TrimSuffix(b[:end], []byte("\r"))
	for {
		line = bytes.TrimLeft(line, " \t")
		if len(line) == 0 {
			break
		}
		if len(c.args) == maxArgs {
			return 0, errCount
		}
		word := line
		if quote := line[0]; quote == '"' || quote == '\'' {
			closing := bytes.IndexByte(line[1:], quote) + 1
			if closing == 0 || closing+1 < len(line) && line[closing+1] != ' ' && line[closing+1] != '\t' {
				return 0, errUnbalanced
			}
			word, line = line[1:closing], line[closing+1:]
		} else {
			space := bytes.IndexAny(line, " \t")
			if space < 0 {
				space = len(line)
			}
			word, line = line[:space], line[space:]
		}
		c.args = append(c.args, word[:len(word):len(word)])
	}
	// A web page can have a browser send lines to any port, and one of them may be a command. None gets past its headers.
	if len(c.args) > 0 && (is(c.args[0], "post") || is(c.args[0], "host:")) {
		return 0, errHTTP
	}
	return end + 1, nil
}

// is tells whether a word is a name, which is in lower case, whatever case the word is in.
func is(word []byte, name string) bool {
	if len(word) != len(name) {
		return false
	}
	for i := range word {
		b := word[i]
		if 'A' <= b && b <= 'Z' {
			b |= 0x20
		}
		if b != name[i] {
			return false
		}
	}
	return true
}

// integer reads a whole number, a sign allowed.
func integer(b []byte) (n int64, ok bool) {
	negative := false
	if len(b) > 1 && (b[0] == '-' || b[0] == '+') {
		negative = b[0] == '-'
		b = b[1:]
	}
	const mostDigits = 18 // and so no more than an int64 holds
	if len(b) == 0 || len(b) > mostDigits {
		return 0, false
	}
	for _, d := range b {
		if d < '0' || d > '9' {
			return 0, false
		}
		n = 10*n + int64(d-'0')
	}
	if negative {
		n = -n
	}
	return n, true
}
