// Package accesslog writes a line for each request that was answered, and reads such lines back, so that they can be
// replayed. It also reads the common and combined formats of other servers.
//
// Whatever a client sends, a request is one line of printable text. Writing never waits: lines are buffered and written by
// one goroutine, and if that cannot keep up, lines are dropped, counted and complained about.
package accesslog

import (
	"net/netip"
	"time"
)

// Record is a request and what became of it. Fields that are empty or not known are left out of a line.
type Record struct {
	Time     time.Time // when the request began, to the microsecond; see [Reader] for logs of others
	Duration time.Duration
	Method   string
	Host     string
	Path     string // as it was sent: escaped
	Query    string // written only if the configuration says so, because it may hold secrets
	Proto    string // "HTTP/1.1"
	Status   int
	BytesIn  int64
	BytesOut int64
	Client   netip.Addr // as limits count it
	User     string     // authenticated
	Plan     string     // of the user
	Route    string
	Upstream string
	Decision Decision
	Rule     string        // that denied, delayed or queued the request
	Delay    time.Duration // how long it waited for its turn
	ID       string        // of the request, to find it in other logs

	// Of queued requests. A line with Attempt > 0 is an attempt to deliver one, and no request of a client.
	Item    string // ID of the queue item
	Attempt int    // 1 is the first
	Outcome string // state of the item after the attempt

	Referer   string
	UserAgent string
}

// Decision is what was made of a request. Zero is not known.
type Decision uint8

// What a request's decision can be.
const (
	Allowed  Decision = iota + 1
	Denied            // by a limit
	Delayed           // by a limit, and then let through
	Queued            // kept, to be done later
	Shed              // turned away because of overload
	Rejected          // before limits: an address that is denied, a wrong password, a path with two meanings
	Aborted           // the client left before it was decided
	Exempt            // no rule is for it: a CORS preflight, or a request for the gateway itself; with any status
)

var decisionNames = [...]string{Allowed: "allowed", Denied: "denied", Delayed: "delayed", Queued: "queued", Shed: "shed", Rejected: "refused", Aborted: "aborted", Exempt: "exempt"}

func (d Decision) String() string {
	if int(d) < len(decisionNames) {
		return decisionNames[d]
	}
	return ""
}

func decisionOf(name string) Decision {
	for d, n := range decisionNames {
		if n == name {
			return Decision(d)
		}
	}
	return 0
}

// The most that is written of a value, in bytes. A path that rules have matched is seldom longer.
const (
	maxTarget = 4 << 10 // path and query, each
	maxText   = 1 << 10 // referer and user agent, each
	maxName   = 256     // all others
)

// MaxLine is more than a line that is written can be long, and the most that is read of one.
const MaxLine = 128 << 10
