package redisstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/sluiceproject/sluice"
)

// reply is the parsed reply of the script.
type reply struct {
	now      int64
	verdicts string // one digit per take: '1' allowed, '0' denied
	logs     []int64
	told     bool   // the reply contains the server's run ID
	server   string // run ID; empty if the ACL does not permit INFO
	restored int64  // number of hints that replaced a state

	changed []int64 // pairs of a cell and the shape of its state, whose limit parameters are missing
}

// logNumbers is the number of values that the script returns for a take of a log instead of the log's entries.
const logNumbers = 7

// staleVerdict is the script's reply when the calendar windows of the call are not those around the script's time.
const staleVerdict = "stale"

// changedVerdict is the script's reply when it needs the limit parameters of stored states. Nothing was changed then.
const changedVerdict = "changed"

// errMismatchedReply is the error for a reply to another call. On a connection whose requests and replies no longer
// match, callers would get each other's replies.
var errMismatchedReply = fmt.Errorf("%w: the nonce is that of another call", sluice.ErrUnavailable)

// read parses the script's reply, and stores the states that it contains in the call's cells.
func (c *call) read(message value, nonce int64) (*reply, error) {
	if message.IsString() {
		text, err := message.ToString()
		if err != nil {
			return nil, err
		}
		return c.readShort(text, nonce)
	}
	parts, err := message.ToArray()
	if err != nil {
		return nil, err
	}
	if len(parts) < 3 {
		return nil, fmt.Errorf("%d parts", len(parts))
	}
	if echoed, err := parts[0].AsInt64(); err != nil || echoed != nonce {
		return nil, errMismatchedReply
	}
	r := &reply{}
	if r.now, err = parts[1].AsInt64(); err != nil {
		return nil, err
	}
	if r.verdicts, err = parts[2].ToString(); err != nil || r.verdicts == staleVerdict {
		return r, err
	}
	if r.verdicts == changedVerdict {
		if len(parts) < 4 {
			return nil, fmt.Errorf("%d parts", len(parts))
		}
		r.changed, err = parts[3].AsIntSlice()
		return r, err
	}
	if len(parts) > 4 {
		if r.logs, err = parts[4].AsIntSlice(); err != nil {
			return nil, err
		}
	}
	if r.told = len(parts) > 6; r.told {
		if r.server, err = parts[5].ToString(); err != nil {
			return nil, err
		}
		if r.restored, err = parts[6].AsInt64(); err != nil {
			return nil, err
		}
	}
	if len(parts) < 4 {
		return nil, fmt.Errorf("%d parts", len(parts))
	}
	values, err := parts[3].ToArray()
	if err != nil {
		return nil, err
	}
	if len(values) != len(c.keys) {
		return nil, fmt.Errorf("%d values for %d keys", len(values), len(c.keys))
	}
	return r, c.readValues(values)
}

// readShort parses the reply of the script's fast paths: the nonce as it was sent, a digit for each take, then,
// separated by dots, the time in seconds and microseconds and the state of each cell.
func (c *call) readShort(text string, nonce int64) (*reply, error) {
	const stamp = 8
	head := stamp + len(c.ops)
	if len(text) < head || binary.LittleEndian.Uint64([]byte(text[:stamp])) != math.Float64bits(float64(nonce)) {
		return nil, errMismatchedReply
	}
	seconds, rest, _ := strings.Cut(text[head:], ".")
	micros, states, ok := strings.Cut(rest, ".")
	s, err1 := strconv.ParseInt(seconds, 10, 64)
	m, err2 := strconv.ParseInt(micros, 10, 64)
	if err1 != nil || err2 != nil || !ok {
		return nil, fmt.Errorf("%.60q does not start with a time", text[head:])
	}
	return &reply{now: s*1_000_000 + m, verdicts: text[stamp:head]}, c.readStates(states)
}

// readStates parses the states of all cells, each of which is at the first take on that cell.
func (c *call) readStates(states string) error {
	next, more := 0, true
	for i := range c.ops {
		o := &c.ops[i]
		if o.cell != next {
			continue
		}
		if !more {
			break
		}
		var state string
		if state, states, more = strings.Cut(states, "."); state != "" {
			if err := c.cells[next].decode(o.Params, state); err != nil {
				return err
			}
		}
		next++
	}
	if next != len(c.cells) || more {
		return fmt.Errorf("number of states is not %d", len(c.cells))
	}
	return nil
}

func (c *call) readValues(values []value) error {
	for i := range c.ops {
		o := &c.ops[i]
		at := &c.cells[o.cell]
		if at.seen {
			continue
		}
		at.seen = true
		if v := &values[2*o.cell]; !v.IsNil() {
			text, err := v.ToString()
			if err != nil {
				return err
			}
			if err := at.decode(o.Params, text); err != nil {
				return err
			}
		}
		if v := &values[2*o.cell+1]; !v.IsNil() {
			var err error
			if at.blocked, err = v.AsInt64(); err != nil {
				return err
			}
		}
	}
	for i := range c.ids {
		if v := &values[2*len(c.cells)+i]; !v.IsNil() {
			text, err := v.ToString()
			if err != nil {
				return err
			}
			if err := c.ids[i].decode(text); err != nil {
				return err
			}
		}
	}
	return nil
}

// value is a reply of any client. Its methods are those of a rueidis message that the store uses.
type value struct {
	kind   valueKind
	text   string
	number int64
	list   []value
}

type valueKind uint8

const (
	isNil valueKind = iota
	isText
	isNumber
	isList
)

var errShape = errors.New("unexpected type or length of the reply")

func (v *value) IsNil() bool    { return v.kind == isNil }
func (v *value) IsString() bool { return v.kind == isText }

func (v *value) ToString() (string, error) {
	if v.kind != isText {
		return "", errShape
	}
	return v.text, nil
}

func (v *value) ToArray() ([]value, error) {
	if v.kind != isList {
		return nil, errShape
	}
	return v.list, nil
}

// AsInt64 returns a number, which may be represented as text.
func (v *value) AsInt64() (int64, error) {
	switch v.kind {
	case isNumber:
		return v.number, nil
	case isText:
		return strconv.ParseInt(v.text, 10, 64)
	}
	return 0, errShape
}

func (v *value) AsIntSlice() ([]int64, error) {
	if v.kind != isList {
		return nil, errShape
	}
	numbers := make([]int64, len(v.list))
	for i := range v.list {
		var err error
		if numbers[i], err = v.list[i].AsInt64(); err != nil {
			return nil, err
		}
	}
	return numbers, nil
}

// valueOf converts a Commander's reply.
func valueOf(reply any) (value, error) {
	switch r := reply.(type) {
	case nil:
		return value{}, nil
	case string:
		return value{kind: isText, text: r}, nil
	case int64:
		return value{kind: isNumber, number: r}, nil
	case []any:
		v := value{kind: isList, list: make([]value, len(r))}
		for i := range r {
			var err error
			if v.list[i], err = valueOf(r[i]); err != nil {
				return value{}, err
			}
		}
		return v, nil
	}
	return value{}, fmt.Errorf("a Commander returned a %T: it must be nil, an int64, a string or a []any of those", reply)
}

func valueOfMessage(m *rueidis.RedisMessage) (v value, err error) {
	switch {
	case m.IsNil():
		return value{}, nil
	case m.IsString():
		v.kind = isText
		v.text, err = m.ToString()
	case m.IsInt64():
		v.kind = isNumber
		v.number, err = m.ToInt64()
	default:
		parts, err := m.ToArray()
		if err != nil {
			return value{}, err
		}
		v.kind, v.list = isList, make([]value, len(parts))
		for i := range parts {
			if v.list[i], err = valueOfMessage(&parts[i]); err != nil {
				return value{}, err
			}
		}
	}
	return v, err
}
