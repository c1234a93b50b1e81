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

// Item is a queued request.
type Item struct {
	ID        string // set by Put
	Rule, Key string // rule and key that denied the request
	// Ordered delays the delivery until all earlier ordered items of the same rule and key are finished.
	Ordered                                  bool
	Method, Scheme, Host, Target, RemoteAddr string
	Header                                   http.Header
	Body                                     []byte
	Claims, Attributes                       map[string]string
	Withheld                                 []string      // names of headers that are not stored
	Charges                                  []Charge      // charges of the matching rules, if headers are not stored
	Client                                   netip.Addr    // client that it counts for if Key is empty; not delivered
	IdempotencyKey                           string        // sent by the client; "": ID
	Attempts                                 int           // maximum number of attempts; 0: 10
	Expires                                  time.Time     // when an undelivered item becomes a dead letter; zero: in 24 h
	Results                                  time.Duration // TTL of the result; 0: 1 h
	Accepted                                 time.Time     // set by Put

	// Attempt is the number of the delivery attempt, from 1. It is set for workers and not stored.
	Attempt int
}

// Charge is the charge of a rule when the request was queued. It is stored because a rule that reads a header that is not
// stored cannot be matched again.
type Charge struct {
	Rule, Key, Tier string
	Cost            int64
}

// Headers of deliveries.
const (
	IdempotencyHeader = "Idempotency-Key"
	AttemptHeader     = "Sluice-Attempt"
)

// Errors of a queue. When Put returns one, the item is not stored, except that after a timeout with ErrUnavailable it may be.
var (
	ErrFull        = errors.New("queue: full")
	ErrShareFull   = errors.New("queue: the share of the key or client is full")
	ErrUnavailable = errors.New("queue: unavailable")
	ErrTooLarge    = errors.New("queue: request too large")
	ErrNotFound    = errors.New("queue: item not found, or its result has expired")
	ErrDelivering  = errors.New("queue: item is being delivered")
	ErrDone        = errors.New("queue: item is already done")
	ErrNotDead     = errors.New("queue: only dead letters can be requeued")
)

// newID returns 128 random bits in hexadecimal digits.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func validID(id string) bool {
	_, err := hex.DecodeString(id)
	return len(id) == 32 && err == nil
}

// StatusPrefix is the path prefix of the status API.
const StatusPrefix = "/.sluice/queue/"

// StatusPath returns the path of the status of an item.
func StatusPath(id string) string { return StatusPrefix + id }

// State is the state of an item.
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

// ParseState returns the state with the name, and reports whether there is one.
func ParseState(name string) (State, bool) {
	for s, n := range stateNames {
		if n == name {
			return s, true
		}
	}
	return 0, false
}

// Status is the status of an item.
type Status struct {
	ID, Rule, Key string
	State         State
	Position      int // in its subqueue, from 1; 0: unknown, or delivering
	Attempts      int // started attempts
	Accepted      time.Time
	Changed       time.Time // last change of the state; zero: never
	Next          time.Time // earliest next attempt; zero: as soon as the rules allow it
	Error         string    // why the last attempt failed
	Result        *Result   // last response, if it is done or dead
	Expires       time.Time // when it becomes a dead letter, or its result expires
	Size          int       // stored size in bytes
}

// Result is a response of the upstream.
type Result struct {
	Status    int
	Header    http.Header
	Body      []byte
	Truncated bool // the body was truncated
}

// itemHeader is the part of an item that every instance indexes. It is a header of its message.
type itemHeader struct {
	rule, key         string
	ordered           bool
	accepted, expires time.Time
	attempts          int
	results           time.Duration
	size              int
	client            string // address or prefix of the client that it counts for if there is no key
}

// itemState is the state of an item, or its result.
type itemState struct {
	state      State
	owner      string // instance that delivers it
	attempts   int
	changed    time.Time
	next       time.Time // earliest next attempt
	expires    time.Time // of a requeued item, or of a result
	err        string
	result     *Result
	itemHeader *itemHeader // of a removed item
}

// shares counts the items of each key, so that no key fills the whole queue. Items of rules without keys count for their client.
// Each of several gateways counts the items that it has received, and so may admit a few more than the maximum.
type shares struct {
	maxCount, maxBytes int64 // 0: unbounded
	used               map[shareName]use
	// reserved are counted items that were not received from the stream yet.
	reserved map[string]*itemHeader
}

type shareName struct{ rule, key, client string }

type use struct{ count, bytes int64 }

func newShares(maxCount, maxBytes int64) shares {
	return shares{maxCount: maxCount, maxBytes: maxBytes, used: make(map[shareName]use), reserved: make(map[string]*itemHeader)}
}

// reserve counts an item that is to be written. It reports whether the share of its key has room.
func (s *shares) reserve(id string, o *itemHeader) bool {
	name := o.share()
	switch u := s.used[name]; {
	case name == shareName{}: // neither key nor client
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

// add counts a stored item, unless it was reserved.
func (s *shares) add(id string, o *itemHeader) {
	if s.reserved[id] == nil {
		s.count(o, 1)
	}
	delete(s.reserved, id)
}

// withdraw ends the reservation of an item that was not stored.
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
