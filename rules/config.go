package rules

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/sluiceproject/sluice"
)

// Config is what a [Set] is compiled from. Package rulefile reads one from files; a program may also write it in Go.
type Config struct {
	Attributes []Attribute
	Rules      []Rule
	AllowList  []Match // requests that no rule limits; deny comes first
	DenyList   []Match // requests that are rejected whatever they have spent
	Domains    []Domain
	// Priorities say who goes first when not all can be served. The first that matches counts; others are normal.
	Priorities []PriorityRule
	// AdaptiveLimits bound the requests in flight, and shed the others when not all can be served. The first that matches counts;
	// a request that none matches is never turned away.
	AdaptiveLimits []AdaptiveLimit

	// Unmatched is what happens to a request that neither a rule nor AllowList matches. The default is to let it pass.
	Unmatched Unmatched
	ClientIP  ClientIP
	// IgnorePathCase has /Posts and /posts match the same rules and count as one.
	IgnorePathCase bool
	// DigestSecret keys the digests of secret attributes. All processes that share a store need the same. Without it the
	// digests are still one-way, but whoever sees the store can test a guess.
	DigestSecret []byte
	// ChargeDenied has the limits of Domains charge refused requests too, as Envoy's service does.
	ChargeDenied bool
}

// Position is where in a file something stands. The zero Position is nowhere: it was not read from a file.
type Position struct {
	File   string
	Line   int
	Column int
}

func (p Position) String() string {
	switch {
	case p.File == "" && p.Line == 0:
		return ""
	case p.Line == 0:
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// or returns where that is, or the words that stand for it if it is nowhere.
func (p Position) or(words string) string {
	if p == (Position{}) {
		return words
	}
	return "at " + p.String()
}

// Error is one fault in a configuration.
type Error struct {
	Pos  Position
	Rule string // the rule it is in, if any
	Msg  string // what is wrong and what to write instead
	Err  error  // the cause, if there is more to it than Msg says
}

func (e *Error) Unwrap() error { return e.Err }

func (e *Error) Error() string {
	s := e.Msg
	if e.Rule != "" {
		s = fmt.Sprintf("rule %q: %s", e.Rule, s)
	}
	if at := e.Pos.String(); at != "" {
		s = at + ": " + s
	}
	return s
}

// Attribute gives a name to something about a request, to be used in Match, Per and Cost.
type Attribute struct {
	Pos  Position
	Name string
	// Sources are where the value comes from, written like the references of Per: "header:X-User", "claim:sub". The
	// first that the request has counts.
	Sources []Ref
	// Default is the value of requests that have none. Without it they have none.
	Default *string
	// Secret keeps the value out of keys, logs and explanations. References to cookies, and to the headers
	// Authorization, Proxy-Authorization, Cookie and X-Api-Key, are secret anyway.
	Secret    bool
	Lowercase bool // compare and count in lower case
}

// Ref names an attribute: "ip", "method", "host", "path", "header:NAME", "query:NAME", "cookie:NAME", "claim:NAME",
// "basic_user", "path:NAME" for a {NAME} in the rule's path, "attr:NAME" for one that the program sets, or the name of
// an [Attribute].
type Ref struct {
	Pos  Position
	Name string
}

// Rule is one rule: what it matches, whom it counts for, and how much they may.
type Rule struct {
	Pos         Position
	Name        string // part of every stored key: a renamed rule starts anew
	Description string // for the public documentation of limits
	Hidden      bool   // not in the public documentation

	Match  Match   // all of it must hold; an empty Match holds always
	Except []Match // none of these may hold
	Per    []Ref   // whom it counts for; none: one bucket for everybody

	// Limits all apply. Each is a bucket of its own; the first is named like the rule and further ones like
	// "rule#2", unless they have a name ("rule#name"). The lists of Tiers and Overrides are named in the same way, each by
	// itself; limits of one name share a bucket.
	Limits    []Limit
	Tiers     *Tiers     // other numbers by an attribute, such as a plan
	Overrides []Override // other numbers for single keys

	Cost      Cost
	OnMissing OnMissing // what happens if an attribute of Per is missing

	OnLimit  OnLimit
	MaxDelay time.Duration // with OnLimitDelay: the longest wait; default as long as the queue is
	Queue    QueueOptions  // with OnLimitQueue: how requests are kept

	// Denial is the response to requests that the rule denies over HTTP. Zero fields have defaults. In Message and Body,
	// {rule}, {limit} and {retry_after} stand for the name and numbers of the limit that denied and the seconds to wait.
	Denial struct {
		Pos         Position
		Status      int    // 400 to 599; default 429
		Message     string // instead of the detail of the default body
		Body        string // instead of the default body; values are escaped as ContentType needs
		ContentType string // of Body; default "text/plain; charset=utf-8"
	}

	Disabled bool
	Shadow   bool // decided and reported, never enforced
	// EnforceBasisPoints is the part of the keys for which the rule is enforced, in hundredths of a percent; for the others it is
	// in shadow. A key is always on the same side. 0 means all of them; to enforce for none use Shadow.
	EnforceBasisPoints int

	ChargeDenied bool         // refused requests are charged too
	ChargeStatus StatusRanges // only requests with these outcomes are charged; empty: all
	ActualCost   *ActualCost  // what a request has really cost is read from its answer; nil: Cost is all

	OnFailure sluice.FailMode
	Accuracy  sluice.Accuracy
}

// Limit is one limit of a rule.
type Limit struct {
	Pos       Position
	Name      string // of the bucket, behind the rule's name; default its place in its list
	Limit     sluice.Limit
	Unlimited bool // no limit at all; for tiers and overrides
	DenyAll   bool // refused without counting; for tiers and overrides
	// What a [Rule] says for all of its limits, each limit of a [DescriptorRule] says for itself.
	OnFailure    sluice.FailMode
	Accuracy     sluice.Accuracy
	ChargeDenied bool
	// Warning is something about the limit that its author should know, such as a number that had to be rounded. It comes
	// back as a [Warning].
	Warning string
}

// Tiers chooses a rule's limits by an attribute.
type Tiers struct {
	Pos    Position
	By     Ref
	Limits map[string][]Limit // by the attribute's value; others have the rule's Limits
}

// Override chooses the limits of one key.
type Override struct {
	Pos    Position
	Key    []string // the values of Per, in that order
	Limits []Limit
}

// Cost is what a request costs: a number, or read from an attribute.
type Cost struct {
	Pos     Position
	Default int64 // default 1
	// From is an attribute that holds a whole number of at least 1. Requests without it cost Default. One that holds
	// something else is refused ([ErrInvalidCost]).
	From *Ref
	Max  int64 // a larger cost is taken for this; default sluice.MaxCost
}

// OnMissing is what happens to a request that lacks an attribute of Per.
type OnMissing uint8

const (
	MissingShare  OnMissing = iota // such requests share a bucket
	MissingSkip                    // the rule does not apply to them
	MissingReject                  // they are refused
)

// OnLimit is what happens to a request over the limit.
type OnLimit uint8

const (
	OnLimitDeny  OnLimit = iota // refuse it
	OnLimitQueue                // keep it and do it later: the gateway's queue
	OnLimitDelay                // let it wait for its turn
)

var onLimitNames = [...]string{"reject", "queue", "delay"}

// String returns the name that rule files use.
func (o OnLimit) String() string { return onLimitNames[min(int(o), len(onLimitNames)-1)] }

// Unmatched is what happens to a request that no rule matches.
type Unmatched uint8

const (
	UnmatchedAllow Unmatched = iota
	UnmatchedDeny
)

// StatusRanges are ranges of HTTP statuses, both ends included.
type StatusRanges []StatusRange

// StatusRange is one range of [StatusRanges].
type StatusRange struct{ From, To int }

// Contains reports whether the status is in one of the ranges.
func (s StatusRanges) Contains(status int) bool {
	for _, r := range s {
		if status >= r.From && status <= r.To {
			return true
		}
	}
	return false
}

// ClientIP is how an edge finds the client's address. The zero ClientIP is the connection's peer.
type ClientIP struct {
	Pos            Position
	TrustedProxies []netip.Prefix
	Header         string // that they set; default X-Forwarded-For
	ProxyHops      int    // take the nth address from the right instead
	IPv6Prefix     int    // how many bits of an IPv6 address count; default 64
}

// Match is a condition on requests: all of its predicates hold. The zero Match holds for all.
type Match struct {
	Pos        Position
	Predicates []Predicate
}

// Predicate is a condition on one attribute. It holds if one of Values, Prefixes, Suffixes, Patterns or Regexps fits the
// attribute, or with Not if none does. With Present set it asks instead whether the attribute is there.
//
// A request without the attribute fits nothing, so that Not holds for it.
type Predicate struct {
	Pos Position
	Ref Ref
	Not bool
	// Values are compared whole, of the method in upper case and of the host in lower case. GET is HEAD too, which servers
	// answer alike. For "ip" they are addresses and prefixes; for "host", "*.example.com" is any name below.
	Values   []string
	Prefixes []string
	Suffixes []string
	Regexps  []string // RE2; they match anywhere unless anchored
	// Patterns are for "path": /users/{id}/posts, where * and {id} are one segment, * inside a segment any part of it,
	// and ** at the end any number of segments.
	Patterns []string
	Present  *bool
}

// ActualCost says where an answer tells what its request has really cost. Until then the rule's Cost is charged, as an
// estimate. What was not needed is given back, and what was needed beyond it is charged, and may go into debt.
type ActualCost struct {
	Pos    Position
	Header string // a header of the answer, or a trailer
	// JSON is where a field of the answer's body is: "usage.total_tokens". In a stream of events or of lines, the last
	// that has it counts.
	JSON string
	// Default is what an answer costs that does not say. Without it the estimate stays.
	Default     *int64
	StripHeader bool // callers do not get to see Header
}
