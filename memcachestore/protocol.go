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

// The meta protocol of Memcached 1.6: a verb, a key and flags on a line, a value on the next. Each command has its key and
// an opaque number sent back, and a reply without the very two is an error. Otherwise a connection that has got out of
// step would give one caller the counts of another.

// verb is what a command does.
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
	ttl   int64  // of verbAdd, verbSwap and verbPut: as the server takes it
	cas   uint64 // of verbSwap and verbRemove
}

// swapCommand returns the command that makes a swap. A wall clock is needed for TTLs that are sent as dates.
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
	// longMargin is added to a TTL that is sent as a date, so that a server whose clock is ahead of the caller's does not
	// drop the value early.
	longMargin = 24 * 3600
	// month is where Memcached begins to read a TTL as a date, in seconds.
	month = 30 * 24 * 3600
)

// serverTTL returns a TTL as Memcached takes it: up to 30 days as seconds, beyond that as a Unix time. Its clock has
// whole seconds, so that one more is added. Its dates end in January 2038; it takes a later one for a time long past and
// drops the value at once.
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

// appendTo writes the command as the server reads it.
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

// maxLine bounds a reply's first line: the longest has a key and two numbers.
const maxLine = 512

var (
	errProtocol = errors.New("not what the Memcached protocol allows here")
	errRefused  = errors.New("the server refused")
)

func protocolError(line []byte) error {
	return fmt.Errorf("the server answered %.80q: %w", line, errProtocol)
}

// readReply reads the reply to a command that was sent with a number. After an error the connection is of no further use.
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

// fits reports whether a command can have this outcome.
func (p *reply) fits(v verb) bool {
	switch v {
	case verbGet:
		return p.status == value || p.status == missing
	case verbPut:
		return p.status == done
	}
	return p.status != value
}

// readFlags reads the flags of a reply. It reports false if key or number are not those of the command, or if a value has
// no version.
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
		default: // no command has others sent back
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

// refusal returns the error for a line that is not a reply to a command.
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
