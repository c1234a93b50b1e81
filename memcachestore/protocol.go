package memcachestore

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// The meta protocol of Memcached 1.6: a verb, a key and flags on a line, a value on the next. The server returns the
// key and an opaque number of each command, and a reply without exactly these two is an error. Otherwise a connection
// that is out of step would return one caller the state of another.

// verb is the operation of a command.
type verb uint8

const (
	verbGet    verb = iota
	verbAdd         // store if the key has no value
	verbSwap        // store if the key has the value that was read
	verbPut         // store
	verbRemove      // delete if the key has the value that was read
)

// command is one request to a server.
type command struct {
	verb  verb
	key   string
	value []byte // of verbAdd, verbSwap and verbPut
	ttl   int64  // of verbAdd, verbSwap and verbPut, in the server's format
	cas   uint64 // of verbSwap and verbRemove
}

// swapCommand returns the command for a swap. The wall clock is needed for TTLs that are sent as dates.
func swapCommand(x *swap, wall time.Time) command {
	c := command{verb: verbSwap, key: x.key, value: x.value, ttl: serverTTL(x.ttl, wall), cas: x.version}
	switch {
	case x.overwrite:
		c.verb = verbPut
	case x.version == 0:
		c.verb = verbAdd
	case x.value == nil:
		c.verb = verbRemove
	}
	return c
}

const (
	// longMargin is added to a TTL that is sent as a date, in seconds, so that a server whose clock is ahead of the
	// caller's does not drop the value early.
	longMargin = 24 * 3600
	// month is the TTL from which on Memcached reads it as a date, in seconds.
	month = 30 * 24 * 3600
)

// serverTTL returns a TTL in Memcached's format: up to 30 days in seconds, above that as a Unix time. One second is
// added, because the server's clock has whole seconds. Memcached's dates end in January 2038; it treats a later one as
// long past and drops the value at once.
func serverTTL(ttl time.Duration, wall time.Time) int64 {
	if ttl == forever {
		return 0
	}
	seconds := int64(ttl/time.Second) + 1
	if seconds <= month {
		return seconds
	}
	date := min(wall.Unix()+seconds+longMargin, math.MaxInt32)
	if date-wall.Unix() <= month {
		return month
	}
	return date
}

// status is the outcome of a command.
type status uint8

const (
	done     status = iota // stored, deleted
	value                  // found, and part of the reply
	missing                // not found
	conflict               // not stored: the key has another value
)

// reply is a server's reply to one command.
type reply struct {
	status status
	cas    uint64
	value  []byte
}

// appendTo appends the command in wire format.
func (c *command) appendTo(b []byte, opaque uint64) []byte {
	switch c.verb {
	case verbGet:
		b = append(append(b, "mg "...), c.key...)
		b = append(b, " v c"...)
	case verbRemove:
		b = append(append(b, "md "...), c.key...)
	default:
		b = append(append(b, "ms "...), c.key...)
		b = strconv.AppendInt(append(b, ' '), int64(len(c.value)), 10)
		b = strconv.AppendInt(append(b, " T"...), c.ttl, 10)
		if c.verb == verbAdd {
			b = append(b, " ME"...)
		}
	}
	if c.verb == verbSwap || c.verb == verbRemove {
		b = strconv.AppendUint(append(b, " C"...), c.cas, 10)
	}
	b = strconv.AppendUint(append(b, " k O"...), opaque, 10)
	b = append(b, "\r\n"...)
	if c.verb == verbAdd || c.verb == verbSwap || c.verb == verbPut {
		b = append(append(b, c.value...), "\r\n"...)
	}
	return b
}

// maxLine is the maximum length of a reply's first line: the longest has a key and two numbers.
const maxLine = 512

var (
	errProtocol = errors.New("protocol error of Memcached")
	errRefused  = errors.New("the server returned an error")
)

func protocolError(line []byte) error {
	return fmt.Errorf("reply %.80q: %w", line, errProtocol)
}

// readReply reads the reply to a command that was sent with an opaque number. After an error the connection cannot be
// used.
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
			return reply{}, fmt.Errorf("a value of %d bytes, maximum %d: %w", n, maxValue, errProtocol)
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

// fits reports whether a command can have this status.
func (p *reply) fits(v verb) bool {
	switch v {
	case verbGet:
		return p.status == value || p.status == missing
	case verbPut:
		return p.status == done
	}
	return p.status != value
}

// readFlags parses the flags of a reply. It reports whether they are valid: the key and the number are those of the
// command, and a value has a version.
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
		default: // no command requests others
			return false
		}
	}
	return named && numbered && (p.status != value || p.cas != 0)
}

// readLine reads a line without its line ending.
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

// readValue reads a value and the line ending after it.
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
		return nil, fmt.Errorf("value of %d bytes without a line ending: %w", size, errProtocol)
	}
	return v, nil
}

// refusal returns the error for a line that is not a reply to a meta command.
func refusal(line []byte) error {
	switch code, text := cutWord(line); {
	case string(line) == "ERROR":
		return errors.New("the server does not support meta commands: use Memcached 1.6 or later")
	case string(code) == "SERVER_ERROR", string(code) == "CLIENT_ERROR", string(code) == "ERROR": // with a reason
		return fmt.Errorf("%w: %.200q", errRefused, text)
	}
	return protocolError(line)
}

func cutWord(line []byte) (word, rest []byte) {
	word, rest, _ = bytes.Cut(line, []byte(" "))
	return word, rest
}

// parseNumber parses a number that consists of digits only.
func parseNumber(word []byte) (n uint64, ok bool) {
	if len(word) == 0 || len(word) > 20 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(word), 10, 64)
	return n, err == nil && word[0] != '+'
}
