package queue

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/http"
	"net/netip"
	"strconv"
	"time"
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

	// Attempt is which delivery this is, from 1. It is given to Deliver and not stored.
	Attempt int
}

// Charge is what a rule charged the request for when it was queued. A rule that reads a header which is not stored cannot
// be matched again.
type Charge struct {
	Rule, Key, Tier string
	Cost            int64
}

// Outcome is what came of a delivery.
type Outcome struct {
	Status int // of the answer; 0: there was none
	Header http.Header
	Body   []byte
	Err    error         // why there was no answer
	Retry  bool          // it is not done, whatever the status
	After  time.Duration // not before this has passed
}

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
	Size          int       // of what is kept, in bytes
}

// Result is an answer of the upstream.
type Result struct {
	Status    int
	Header    http.Header
	Body      []byte
	Truncated bool // the body was longer
}

// Counts say how full the queue is, and what this process has done.
type Counts struct {
	Queued, Delivering, Dead, Done int64
	Bytes                          int64         // of what is not done
	Oldest                         time.Duration // since the oldest item that is not done nor dead was accepted
	Up                             bool          // it can be written

	// Since this process started.
	Accepted, Rejected, Delivered, Failed, DeadLettered, Denied, Cancelled, Requeued, Lost int64
}

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

// Headers that deliveries carry.
const (
	IdempotencyHeader = "Idempotency-Key"
	AttemptHeader     = "Sluice-Attempt"
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

// isFinal reports whether an outcome is a response, and if not, how long the upstream wants to be left alone.
func (o *Outcome) isFinal(now time.Time) (done bool, after time.Duration) {
	switch {
	case o.Retry || o.Status == 0:
		return false, o.After
	case o.Status == http.StatusRequestTimeout, o.Status == http.StatusTooEarly, o.Status == http.StatusTooManyRequests,
		o.Status >= 500 && o.Status != http.StatusNotImplemented:
		return false, max(o.After, retryAfter(o.Header, now))
	}
	return true, 0
}

// maxRetryAfter bounds an upstream's Retry-After.
const maxRetryAfter = time.Hour

func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	after := time.Duration(0)
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		after = time.Duration(n) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		after = at.Sub(now)
	}
	return min(max(after, 0), maxRetryAfter)
}
