// Package accesslog writes one line per request and reads such lines back for replays. It also reads the common and
// combined formats of other servers.
//
// Whatever a client sends, a request is one line of printable text. Writing never blocks: lines are buffered and written by
// one goroutine. If the output is too slow, lines are dropped, counted and reported.
package accesslog

import (
	"net/netip"
	"time"
)

// Record is a request and its outcome. Empty and unknown fields are omitted from the line.
type Record struct {
	Time     time.Time // start of the request, in microseconds; see [Reader] for logs of other servers
	Duration time.Duration
	Method   string
	Host     string
	Path     string // escaped, as sent
	Query    string // written only with Config.Query, because it may contain secrets
	Proto    string // "HTTP/1.1"
	Status   int
	BytesIn  int64
	BytesOut int64
	Client   netip.Addr // client IP as used by limits
	User     string     // authenticated user
	Plan     string     // plan of the user
	Route    string
	Upstream string // group of servers that the request was forwarded to
	Server   string // of the upstream
	Decision Decision
	Rule     string        // rule that denied, delayed or queued the request
	Delay    time.Duration // time in the delay queue
	ID       string        // request ID, as in other logs

	// Fields of queued requests. A line with Attempt > 0 is a delivery attempt, not a request of a client.
	Item    string // ID of the queue item
	Attempt int    // from 1
	Outcome string // state of the item after the attempt

	Referer   string
	UserAgent string
}

// Decision is the outcome of a request. The zero value means unknown.
type Decision uint8

// Values of Decision.
const (
	Allowed  Decision = iota + 1
	Denied            // by a limit: 429
	Delayed           // by a limit, then allowed
	Queued            // in the durable queue: 202
	Shed              // because of overload: 503
	Rejected          // before limits: denied IP address, failed authentication, ambiguous path
	Aborted           // the client closed the connection before the decision
	Exempt            // not subject to rules: a CORS preflight or a request to the gateway itself, with any status
)

var decisionNames = [...]string{Allowed: "allowed", Denied: "denied", Delayed: "delayed", Queued: "queued", Shed: "shed", Rejected: "rejected", Aborted: "aborted", Exempt: "exempt"}

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

// Maximum bytes written of a value. Paths that rules match are rarely longer.
const (
	maxTarget = 4 << 10 // path and query, each
	maxText   = 1 << 10 // referer and user agent, each
	maxName   = 256     // all others
)

// MaxLine is the maximum length of a line in bytes. Written lines are shorter; longer ones are not read.
const MaxLine = 128 << 10
