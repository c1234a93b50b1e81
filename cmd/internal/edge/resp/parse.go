package resp

import (
	"bytes"
	"fmt"
)

const (
	// maxArgs is the maximum number of arguments of a command. HELLO with all options has 7.
	maxArgs = 16
	// maxCommandBytes is the maximum size of an encoded command, and so of the buffer of a connection.
	maxCommandBytes = 8 << 10
	// maxKeyBytes is the maximum size of a key.
	maxKeyBytes = 1 << 10
)

// protocolError is the error for bytes that are not a command. The connection is closed, because the start of the next
// command is unknown.
type protocolError string

func (e protocolError) Error() string { return "Protocol error: " + string(e) }

const (
	errTooLarge   = protocolError("command too large: the maximum is 8 KiB")
	errCount      = protocolError("invalid multibulk length: the maximum is 16 arguments")
	errLength     = protocolError("invalid bulk length: the maximum is 8 KiB")
	errNumber     = protocolError("invalid length: expected digits and CRLF")
	errBulkEnd    = protocolError("expected CRLF after a bulk string")
	errUnbalanced = protocolError("unbalanced quotes in request")
	errHTTP       = protocolError("HTTP is not supported")
)

// command is one command. Its arguments point into the parsed buffer.
type command struct {
	args [][]byte
	room [maxArgs][]byte
}

// parse parses the command at the start of b and returns its size in bytes, or 0 if it is incomplete. A size above 0 or an
// error does not change when more bytes follow.
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

// length parses a number and CRLF. It returns the index after them, or 0 if they are incomplete.
func length(b []byte, at int) (n, next int, err error) {
	const maxDigits = 10
	begin, negative := at, false
	if at < len(b) && b[at] == '-' {
		negative = true
		begin++
		at++
	}
	for ; at < len(b); at++ {
		switch digit := b[at] - '0'; {
		case digit <= 9 && at-begin < maxDigits:
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

// parseInline parses an inline command: words separated by spaces, with optional quotes.
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
	// A web page can make a browser send a request to any port, and a line of its body could be a command. The request is
	// rejected at its headers.
	if len(c.args) > 0 && (is(c.args[0], "post") || is(c.args[0], "host:")) {
		return 0, errHTTP
	}
	return end + 1, nil
}

// is reports whether word equals name, ignoring case. name must be in lower case.
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

// integer parses an integer with an optional sign.
func integer(b []byte) (n int64, ok bool) {
	negative := false
	if len(b) > 1 && (b[0] == '-' || b[0] == '+') {
		negative = b[0] == '-'
		b = b[1:]
	}
	const maxDigits = 18 // fits in an int64
	if len(b) == 0 || len(b) > maxDigits {
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
