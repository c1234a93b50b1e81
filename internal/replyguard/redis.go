package replyguard

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sluiceproject/sluice/internal/arrival"
	"github.com/sluiceproject/sluice/internal/bounds"
)

// Bounds of one reply of Redis. The largest valid replies are that of a script that decides 10,000 takes, and the slot
// map of a large Cluster.
const (
	MaxRedisReply    = 16 << 20 // bytes
	MaxRedisElements = 1 << 18
	// maxPushes is the maximum number of push messages between two replies.
	maxPushes = 10_000
	// maxPush is the maximum size of a push message in bytes. Messages of sentinels have a few hundred bytes.
	maxPush = 4 << 10
	// maxName is the number of bytes of a command that are examined.
	maxName = 64
)

// Redis returns a connection to a Redis server that rejects replies that exceed the bounds.
func Redis(conn net.Conn, addr string) net.Conn {
	return &redisConn{Conn: conn, addr: addr, in: respScanner{limits: respLimits{MaxRedisReply, MaxRedisElements}}}
}

// Rueidis is [Redis] for connections of rueidis, which panics in its own goroutines if replies do not match its
// commands. It also rejects:
//
//   - replies without a command
//   - confirmations of subscriptions in the wrong place
//   - redirections without an address
//   - messages of sentinels without their fields
//   - empty lists where rueidis expects elements
//
// It records unanswered commands in waits, which may be nil.
func Rueidis(conn net.Conn, addr string, waits *arrival.Waits) net.Conn {
	c := Redis(conn, addr).(*redisConn)
	c.pair = &pairing{waits: waits}
	c.pair.out.limits = respLimits{math.MaxInt64, math.MaxInt64}
	c.pair.out.keeps, c.pair.out.maxKept = func(byte) bool { return true }, maxName
	c.in.keeps, c.in.maxKept = c.keeps, maxPush
	return c
}

// redisConn is a guarded connection.
type redisConn struct {
	net.Conn
	addr string

	in       respScanner // used by the reader
	answered int64
	pushes   int
	rejected error
	pair     *pairing // nil: replies are not matched with commands
}

// pairing tracks the commands of a connection.
type pairing struct {
	waits *arrival.Waits
	out   respScanner // used by the writer
	unsub bool        // used by the writer: the previous command was an UNSUBSCRIBE

	asked      atomic.Int64
	hello3     atomic.Bool // RESP3 was requested
	subscribed atomic.Bool
	special    atomic.Int64 // number of the first command in list; 0: none

	mu   sync.Mutex // guards list
	list []special
}

// special is a command whose reply must have a certain form.
type special struct {
	number int64 // 1 is the connection's first command
	kind   specialKind
	left   int // channels without a confirmation yet
}

type specialKind uint8

const (
	isRole        specialKind = iota // a list with elements
	isMaster                         // null, or a list of two elements
	isSubscribe                      // confirmations of each channel, or an error
	isUnsubscribe                    // the same
	isLastPing                       // sent after an UNSUBSCRIBE: PONG
)

func (c *redisConn) Write(b []byte) (int, error) {
	if c.pair == nil {
		return c.Conn.Write(b)
	}
	if err := c.pair.commands(b); err != nil {
		return 0, fmt.Errorf("Redis %s: command: %w", c.addr, err)
	}
	n, err := c.Conn.Write(b)
	if c.pair.waits != nil {
		c.pair.waits.Wrote(c.pair.asked.Load())
	}
	return n, err
}

// commands records the commands that end in b.
func (p *pairing) commands(b []byte) error {
	return p.out.each(b, func() error {
		p.command(p.asked.Load() + 1)
		p.asked.Add(1)
		return nil
	})
}

// command examines a complete command.
func (p *pairing) command(number int64) {
	var words [2][]byte
	elements(p.out.kept, words[:])
	after := p.unsub
	p.unsub = false
	name := words[0]
	if len(name) == 0 || bytes.IndexByte([]byte("RSPUH"), name[0]&^0x20) < 0 {
		return
	}
	s := special{number: number, left: int(p.out.count) - 1}
	switch strings.ToUpper(string(name)) {
	case "HELLO":
		if string(words[1]) == "3" {
			p.hello3.Store(true)
		}
		return
	case "ROLE":
		s.kind = isRole
	case "SENTINEL":
		if !bytes.EqualFold(words[1], []byte("GET-MASTER-ADDR-BY-NAME")) {
			return
		}
		s.kind = isMaster
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE":
		s.kind = isSubscribe
		p.subscribed.Store(true)
	case "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE":
		s.kind = isUnsubscribe
		p.unsub = true
		p.subscribed.Store(true)
	case "PING":
		if !after {
			return
		}
		s.kind = isLastPing
	default:
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.list = append(p.list, s); len(p.list) == 1 {
		p.special.Store(number)
	}
}

// due returns the special command of this number, or nil. It is valid until done is called.
func (p *pairing) due(number int64) *special {
	if p.special.Load() != number {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.list[0]
	return &s
}

// confirmed records the confirmation of one channel of the first special command.
func (p *pairing) confirmed() (left int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list[0].left--
	return p.list[0].left
}

// done removes the first special command.
func (p *pairing) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list[:0], p.list[1:]...)
	next := int64(0)
	if len(p.list) > 0 {
		next = p.list[0].number
	}
	p.special.Store(next)
}

func (c *redisConn) Read(b []byte) (int, error) {
	if c.rejected != nil {
		return 0, c.rejected
	}
	n, err := c.Conn.Read(b)
	if bad := c.replies(b[:n]); bad != nil {
		bounds.RedisReply.Reached()
		_ = c.Conn.Close()
		c.rejected = &Error{Dependency: "Redis", Addr: c.addr, Reason: bad.Error()}
		return 0, c.rejected
	}
	if c.pair != nil && c.pair.waits != nil {
		c.pair.waits.Answered(c.answered)
	}
	return n, err
}

// replies examines received data.
func (c *redisConn) replies(b []byte) error {
	return c.in.each(b, func() error {
		if c.in.top == '>' {
			return c.push()
		}
		return c.reply()
	})
}

// keeps reports whether the text of a value of this type is needed.
func (c *redisConn) keeps(typ byte) bool {
	switch typ {
	case '-', '!', '>':
		return true
	case '*':
		if c.pair.subscribed.Load() && !c.pair.hello3.Load() {
			return true
		}
	}
	return c.pair.special.Load() == c.answered+1
}

// reply examines a complete reply.
func (c *redisConn) reply() error {
	if c.pair == nil {
		c.pushes = 0
		return nil
	}
	// Before RESP3, push messages are lists.
	if c.in.top == '*' && c.pair.subscribed.Load() && !c.pair.hello3.Load() {
		if c.in.count > 0 && first(c.in.kept) != "pong" {
			return c.push()
		}
	}
	c.pushes = 0
	if c.answered++; c.answered > c.pair.asked.Load() {
		return errSurplus
	}
	isError := c.in.top == '-' || c.in.top == '!'
	if isError {
		if err := redirection(text(c.in.kept)); err != nil {
			return err
		}
	}
	s := c.pair.due(c.answered)
	if s == nil {
		return nil
	}
	c.pair.done()
	isList := c.in.top == '*' || c.in.top == '~'
	switch s.kind {
	case isRole:
		if isList && c.in.count == 0 {
			return errors.New("empty reply to ROLE")
		}
	case isMaster:
		if isList && c.in.count >= 0 && c.in.count < 2 {
			return fmt.Errorf("%d elements in the reply to SENTINEL GET-MASTER-ADDR-BY-NAME, minimum 2", c.in.count)
		}
	case isSubscribe, isUnsubscribe:
		if !isError {
			return fmt.Errorf("type %q in reply to a subscription", c.in.top)
		}
	case isLastPing:
		said := text(c.in.kept)
		excused := isError && (strings.HasPrefix(said, "LOADING") || strings.HasPrefix(said, "BUSY") || strings.Contains(said, "'ping'"))
		if isList {
			said = first(c.in.kept)
		}
		if said != "PONG" && said != "pong" && !excused {
			return fmt.Errorf("reply %.40q to PING", said)
		}
	}
	return nil
}

// errSurplus is the error for a connection with more replies than commands.
var errSurplus = errors.New("more replies than commands")

// push examines a push message.
func (c *redisConn) push() error {
	if c.pushes++; c.pushes > maxPushes {
		return fmt.Errorf("more than %d pushes between two replies", maxPushes)
	}
	if c.pair == nil {
		return nil
	}
	if c.in.size > maxPush {
		return fmt.Errorf("push of %d bytes, maximum %d", c.in.size, maxPush)
	}
	var words [3][]byte
	elements(c.in.kept, words[:])
	kind := isUnsubscribe
	switch string(words[0]) {
	case "subscribe", "psubscribe", "ssubscribe":
		kind = isSubscribe
	case "unsubscribe", "punsubscribe", "sunsubscribe":
	case "message":
		return sentinelMessage(string(words[1]), string(words[2]))
	default:
		return nil
	}
	s := c.pair.due(c.answered + 1)
	if s == nil || s.kind != kind {
		return fmt.Errorf("%s without a matching command", words[0])
	}
	if c.pair.confirmed() > 0 {
		return nil
	}
	c.pair.done()
	c.pushes = 0
	if c.answered++; c.answered > c.pair.asked.Load() {
		return errSurplus
	}
	return nil
}

// redirection checks that a redirection error contains an address.
func redirection(said string) error {
	said = strings.TrimPrefix(said, "ERR ")
	for _, r := range []struct {
		begins string
		spaces int
	}{{"MOVED", 2}, {"ASK", 2}, {"REDIRECT", 1}} {
		if strings.HasPrefix(said, r.begins) && strings.Count(said, " ") < r.spaces {
			return fmt.Errorf("error %.40q without an address", said)
		}
	}
	return nil
}

// sentinelMessage checks that a message of a sentinel has the fields that the client reads.
func sentinelMessage(channel, message string) error {
	fields := strings.Count(message, " ") + 1
	least := 0
	switch channel {
	case "+sentinel":
		least = 4
	case "+switch-master":
		least = 5
	case "+reboot", "+slave", "+sdown", "-sdown":
		if least = 4; strings.HasPrefix(message, "slave ") {
			least = 6
		}
	}
	if fields < least {
		return fmt.Errorf("%d fields in a sentinel's message on %s, minimum %d", fields, channel, least)
	}
	return nil
}

// text returns the string or error that is encoded in b.
func text(b []byte) string { return first(append([]byte("*1\r\n"), b...)) }

// first returns the first element of an aggregate, if that is a string.
func first(b []byte) string {
	var word [1][]byte
	elements(b, word[:])
	return string(word[0])
}

// elements stores the first elements of an aggregate that are strings in words. b is its encoding, or the beginning of
// it.
func elements(b []byte, words [][]byte) {
	_, b, _ = bytes.Cut(b, []byte("\r\n"))
	for i := range words {
		if len(b) == 0 {
			return
		}
		line, rest, _ := bytes.Cut(b[1:], []byte("\r\n"))
		switch b[0] {
		case '+', '-', ':', ',', '(':
			words[i] = line
		case '$', '!', '=':
			n, err := strconv.Atoi(string(line))
			if err != nil || n < 0 {
				b = rest
				continue
			}
			words[i] = rest[:min(n, len(rest))]
			rest = rest[min(n+len("\r\n"), len(rest)):]
		default:
			return
		}
		b = rest
	}
}
