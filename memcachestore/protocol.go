package memcachestore

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// The meta protocol of Memcached 1.6: a verb, a key and flags on a line, a value on the next. Each command asks for its
// key and an opaque number to be sent back, and a reply without the very two is an error: a connection that has got out
// of step would otherwise answer one caller with another's counts.

// verb is what is asked of the server.
type verb uint8

const (
	get    verb = iota
	add         // store if there is nothing
	swap        // store if it is as it was read
	put         // store
	remove      // delete if it is as it was read; with no number to compare, whatever is there
)

// command is one question to a server.
type command struct {
	verb  verb
	key   string
	value []byte // add, swap, put
	ttl   int64  // add, swap, put: as the server takes it
	cas   uint64 // swap, remove
}

func (c *command) writes() bool { return c.verb != get }

// status is what a server did.
type status uint8

const (
	done     status = iota // stored, deleted
	value                  // found, and here it is
	missing                // not found
	conflict               // not stored: something else is there
)

// reply answers one command.
type reply struct {
	status status
	cas    uint64
	value  []byte
}

// appendTo writes the command as the server reads it.
func (c *command) appendTo(b []byte, opaque uint64) []byte {
	switch c.verb {
	case get:
		b = append(append(b, "mg "...), c.key...)
		b = append(b, " v c"...)
	case remove:
		b = append(append(b, "md "...), c.key...)
	default:
		b = append(append(b, "ms "...), c.key...)
		b = strconv.AppendInt(append(b, ' '), int64(len(c.value)), 10)
		b = strconv.AppendInt(append(b, " T"...), c.ttl, 10)
		if c.verb == add {
			b = append(b, " ME"...)
		}
	}
	if c.verb == swap || c.verb == remove && c.cas != 0 {
		b = strconv.AppendUint(append(b, " C"...), c.cas, 10)
	}
	b = strconv.AppendUint(append(b, " k O"...), opaque, 10)
	b = append(b, "\r\n"...)
	if c.verb == add || c.verb == swap || c.verb == put {
		b = append(append(b, c.value...), "\r\n"...)
	}
	return b
}

const (
	// maxLine bounds a reply's first line: the longest has a key and two numbers.
	maxLine = 512
	// maxValue bounds a value, read or written. The largest that there can be, a full sliding log beside a counter for
	// each number of sub-windows, has under 120 KB; Memcached refuses more than 1 MB.
	maxValue = 256 << 10
)

var (
	errProtocol = errors.New("not what the Memcached protocol allows here")
	errRefused  = errors.New("the server refused")
)

func protocolError(line []byte) error {
	return fmt.Errorf("the server answered %.80q: %w", line, errProtocol)
}

// readReply reads the answer to a command that was sent with this number. After an error the connection is of no
// further use.
func readReply(r *bufio.Reader, c *command, opaque uint64) (reply, error) {
	line, err := readLine(r)
	if err != nil {
		return reply{}, err
	}
	var p reply
	size := 0
	rest := line
	code, rest := cutWord(rest)
	switch string(code) {
	case "HD":
		p.status = done
	case "EN", "NF":
		p.status = missing
	case "NS", "EX":
		p.status = conflict
	case "VA":
		var word []byte
		word, rest = cutWord(rest)
		n, ok := parseNumber(word)
		if !ok {
			return reply{}, protocolError(line)
		}
		if n > maxValue {
			bounds.MemcachedReply.Reached()
			return reply{}, fmt.Errorf("a value of %d bytes, at most %d can be ours: %w", n, maxValue, errProtocol)
		}
		p.status, size = value, int(n)
	default:
		return reply{}, refusal(line)
	}
	if !p.fits(c.verb) || !p.readFlags(rest, c.key, opaque) {
		return reply{}, protocolError(line)
	}
	if p.status == value {
		if p.value, err = readValue(r, size); err != nil {
			return reply{}, err
		}
	}
	return p, nil
}

// fits tells whether a command can have this outcome.
func (p *reply) fits(v verb) bool {
	switch v {
	case get:
		return p.status == value || p.status == missing
	case put:
		return p.status == done
	}
	return p.status != value
}

// readFlags reads what was asked to be sent back. It fails if that is not what was sent, or if a value came without the
// number that a swap needs.
func (p *reply) readFlags(rest []byte, key string, opaque uint64) bool {
	var named, numbered bool
	for len(rest) > 0 {
		var word []byte
		word, rest = cutWord(rest)
		if len(word) == 0 {
			return false
		}
		switch word[0] {
		case 'k':
			named = string(word[1:]) == key
		case 'O':
			n, ok := parseNumber(word[1:])
			numbered = ok && n == opaque
		case 'c':
			n, ok := parseNumber(word[1:])
			if !ok {
				return false
			}
			p.cas = n
		default: // nothing else was asked for
			return false
		}
	}
	return named && numbered && (p.status != value || p.cas != 0)
}

// readLine reads a line without its end.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) || len(line) > maxLine {
		bounds.MemcachedReply.Reached()
		return nil, protocolError(line)
	}
	if err != nil {
		if errors.Is(err, io.EOF) && len(line) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	line, ok := bytes.CutSuffix(line, []byte("\r\n"))
	if !ok {
		return nil, protocolError(line)
	}
	return line, nil
}

// readValue reads a value and the end of line behind it.
func readValue(r *bufio.Reader, size int) ([]byte, error) {
	b := make([]byte, size+2)
	if _, err := io.ReadFull(r, b); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	v, ok := bytes.CutSuffix(b, []byte("\r\n"))
	if !ok {
		return nil, fmt.Errorf("a value of %d bytes does not end where it should: %w", size, errProtocol)
	}
	return v, nil
}

// refusal is the error for a line that is no answer.
func refusal(line []byte) error {
	switch code, text := cutWord(line); {
	case string(line) == "ERROR":
		return errors.New("the server does not know meta commands: use Memcached 1.6 or later")
	case string(code) == "SERVER_ERROR", string(code) == "CLIENT_ERROR", string(code) == "ERROR": // with a reason
		return fmt.Errorf("%w: %.200q", errRefused, text)
	}
	return protocolError(line)
}

func cutWord(line []byte) (word, rest []byte) {
	word, rest, _ = bytes.Cut(line, []byte(" "))
	return word, rest
}

// parseNumber reads digits and nothing else.
func parseNumber(word []byte) (n uint64, ok bool) {
	if len(word) == 0 || len(word) > 20 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(word), 10, 64)
	return n, err == nil && word[0] != '+'
}
