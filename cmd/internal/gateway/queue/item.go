package queue

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/http"
	"net/netip"
	"time"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// Item is a request that is kept.
type Item struct {
	ID        string // given by Put
	Rule, Key string // whose room it waits for
	// Ordered has it delivered only when no earlier ordered item of the same rule and key is unfinished.
	Ordered                                  bool
	Method, Scheme, Host, Target, RemoteAddr string
	Header                                   http.Header
	Body                                     []byte
	Claims, Attributes                       map[string]string
	Withheld                                 []string      // names of headers that are not stored
	Charges                                  []Charge      // of the rules that applied, if headers are not stored
	Client                                   netip.Addr    // whom it counts for, if Key is empty; it is not delivered
	IdempotencyKey                           string        // the client's; "": the id
	Attempts                                 int           // after so many that failed it is dead. 0: 10
	Expires                                  time.Time     // when it is dead if not delivered. Zero: a day from now
	Results                                  time.Duration // how long the result is kept. 0: an hour
	Accepted                                 time.Time     // given by Put

	// Attempt is which delivery this is, from 1. It is given to workers and not stored.
	Attempt int
}

// Charge is what a rule charged the request for when it was queued. A rule that reads a header which is not stored cannot
// be matched again.
type Charge struct {
	Rule, Key, Tier string
	Cost            int64
}

// Headers that deliveries carry.
const (
	IdempotencyHeader = "Idempotency-Key"
	AttemptHeader     = "Sluice-Attempt"
)

// Errors of a queue. Nothing is kept when Put returns one, but for ErrUnavailable of a server that did not answer.
var (
	ErrFull        = errors.New("queue: it is full")
	ErrShareFull   = errors.New("queue: one key or client has its share of it")
	ErrUnavailable = errors.New("queue: it cannot be written now")
	ErrTooLarge    = errors.New("queue: the request is too large to be kept")
	ErrNotFound    = errors.New("queue: there is no such item, or it is no longer kept")
	ErrDelivering  = errors.New("queue: it is being delivered")
	ErrDone        = errors.New("queue: it is done already")
	ErrNotDead     = errors.New("queue: only what is dead can be replayed")
)

// newID returns 128 random bits.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

func validID(id string) bool {
	_, err := hex.DecodeString(id)
	return len(id) == 32 && err == nil
}

// StatusPrefix is where callers ask what became of their requests.
const StatusPrefix = "/.sluice/queue/"

// StatusPath is where one asks about an item.
func StatusPath(id string) string { return StatusPrefix + id }

// State is what became of an item.
type State uint8

// States.
const (
	Queued State = iota + 1
	Delivering
	Dead
	Done
	Cancelled
)

var stateNames = map[State]string{Queued: "queued", Delivering: "delivering", Dead: "dead", Done: "done", Cancelled: "cancelled"}

func (s State) String() string { return cmp.Or(stateNames[s], "unknown") }

// ParseState finds a state by its name.
func ParseState(name string) (State, bool) {
	for s, n := range stateNames {
		if n == name {
			return s, true
		}
	}
	return 0, false
}

// Status is what is known of an item.
type Status struct {
	ID, Rule, Key string
	State         State
	Position      int // how many of its subqueue are before it, from 1; 0: not known, or it has begun
	Attempts      int // that began
	Accepted      time.Time
	Changed       time.Time // when it was tried, or done; zero: never
	Next          time.Time // not tried before; zero: as soon as there is room
	Error         string    // why the last attempt failed
	Result        *Result   // the last answer, if it is done or dead
	Expires       time.Time // when it is dead, or the result is dropped
	Size          int       // as stored, in bytes
}

// Result is an answer of the upstream.
type Result struct {
	Status    int
	Header    http.Header
	Body      []byte
	Truncated bool // the body was longer
}

// itemHeader is the part of an item that every instance indexes: a header of its message.
type itemHeader struct {
	rule, key         string
	ordered           bool
	accepted, expires time.Time
	attempts          int
	results           time.Duration
	size              int
	client            string // whom it counts for, if there is no key: an address or prefix
}

// itemState is the state of an item, or its result.
type itemState struct {
	state      State
	owner      string // who delivers
	attempts   int
	changed    time.Time
	next       time.Time // not tried before
	expires    time.Time // of a replay, or of a result
	err        string
	result     *Result
	itemHeader *itemHeader // of an item that is no more
}

// shares counts the items of each key, so that no key has the whole queue. Items of rules without keys count for their
// client. With several gateways each counts what the streams tell, and so may admit a few more than the maximum.
type shares struct {
	maxCount, maxBytes int64 // 0: not bounded
	used               map[shareName]use
	// reserved are items that count and that the stream has not told of yet.
	reserved map[string]*itemHeader
}

type shareName struct{ rule, key, client string }

type use struct{ count, bytes int64 }

func newShares(maxCount, maxBytes int64) shares {
	return shares{maxCount: maxCount, maxBytes: maxBytes, used: make(map[shareName]use), reserved: make(map[string]*itemHeader)}
}

// reserve counts an item that is to be written, unless its key has its share.
func (s *shares) reserve(id string, o *itemHeader) bool {
	name := o.share()
	switch u := s.used[name]; {
	case name == shareName{}: // of neither a key nor a known client
	case s.maxCount > 0 && u.count >= s.maxCount:
		bounds.QueueItemsPerKey.Reached()
		return false
	case s.maxBytes > 0 && u.bytes+int64(o.size) > s.maxBytes:
		bounds.QueueBytesPerKey.Reached()
		return false
	}
	s.count(o, 1)
	s.reserved[id] = o
	return true
}

// add counts an item that is there, unless it was reserved.
func (s *shares) add(id string, o *itemHeader) {
	if s.reserved[id] == nil {
		s.count(o, 1)
	}
	delete(s.reserved, id)
}

// withdraw ends what reserve began for an item that is not there.
func (s *shares) withdraw(id string) {
	if o := s.reserved[id]; o != nil {
		delete(s.reserved, id)
		s.remove(o)
	}
}

func (s *shares) remove(o *itemHeader) { s.count(o, -1) }

func (s *shares) count(o *itemHeader, n int64) {
	name := o.share()
	u := s.used[name]
	u.count += n
	u.bytes += n * int64(o.size)
	if u.count <= 0 {
		delete(s.used, name)
		return
	}
	s.used[name] = u
}

func (o *itemHeader) share() shareName {
	if o.key == "" {
		return shareName{client: o.client}
	}
	return shareName{rule: o.rule, key: o.key}
}
