package rules

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/sluiceproject/sluice"
)

// Config is the configuration of a [Set]. Package rulefile reads one from files; a program may also write it in Go.
type Config struct {
	Attributes []Attribute
	Rules      []Rule
	AllowList  []Match // requests that no rule limits; DenyList comes first
	DenyList   []Match // requests that are always rejected
	Domains    []Domain
	// Priorities is the order in which requests are shed under overload. The first match counts; other requests are
	// normal.
	Priorities []PriorityRule
	// AdaptiveLimits bound the requests in flight and shed excess requests. The first match counts; a request without a
	// match is never shed.
	AdaptiveLimits []AdaptiveLimit

	// Unmatched is the outcome of a request that neither a rule nor AllowList matches. The default is UnmatchedAllow.
	Unmatched Unmatched
	ClientIP  ClientIP
	// IgnorePathCase makes /Posts and /posts match the same rules and share a bucket.
	IgnorePathCase bool
	// DigestSecret keys the digests of secret attributes. All instances that share a store need the same secret.
	// Without it, the digests are still one-way, but anyone who can read the store can test guesses.
	DigestSecret []byte
	// ChargeDenied makes the limits of Domains charge denied requests too, like Envoy's rate limit service.
	ChargeDenied bool
}

// Position is a position in a file. The zero Position means that the value was not read from a file.
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

// or returns the position, or words if it is zero.
func (p Position) or(words string) string {
	if p == (Position{}) {
		return words
	}
	return "at " + p.String()
}

// Error is one error in a configuration.
type Error struct {
	Pos  Position
	Rule string // the rule it is in, if any
	Msg  string // the error and what to write instead
	Err  error  // the cause, if Msg does not contain all of it
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

// Attribute defines a name for a value of requests, for use in Match, Per and Cost.
type Attribute struct {
	Pos  Position
	Name string
	// Sources are the references that the value is read from, as in Per: "header:X-User", "claim:sub". The first one
	// that the request has counts.
	Sources []Ref
	// Default is the value of requests without the attribute; nil means that they have none.
	Default *string
	// Secret keeps the value out of keys, logs and explanations. References to cookies and to the headers
	// Authorization, Proxy-Authorization, Cookie and X-Api-Key are always secret.
	Secret    bool
	Lowercase bool // compare and count in lower case
}

// Ref names an attribute: "ip", "method", "host", "path", "header:NAME", "query:NAME", "cookie:NAME", "claim:NAME",
// "basic_user", "path:NAME" for a {NAME} in the rule's path, "attr:NAME" for a value set by the program, or the name of
// an [Attribute].
type Ref struct {
	Pos  Position
	Name string
}

// Rule is one rule: the requests it matches, the key it counts them per, and its limits.
type Rule struct {
	Pos         Position
	Name        string // part of every stored key: a renamed rule starts with empty buckets
	Description string // for the public documentation of limits
	Hidden      bool   // not in the public documentation

	Match  Match   // all conditions must match; an empty Match matches every request
	Except []Match // none of these may match
	Per    []Ref   // attributes of the key; none: one bucket for all requests

	// Limits all apply. Each has its own bucket. The first has the name of the rule; others are named "rule#2", or
	// "rule#name" if they have a name. The lists of Tiers and Overrides are named in the same way, each list
	// separately; limits with the same name share a bucket.
	Limits    []Limit
	Tiers     *Tiers     // other limits by an attribute, such as a plan
	Overrides []Override // other limits for single keys

	Cost      Cost
	OnMissing OnMissing // the outcome if an attribute of Per is missing

	OnLimit  OnLimit
	MaxDelay time.Duration // with OnLimitDelay: the maximum delay; default the length of the delay queue
	Queue    QueueOptions  // with OnLimitQueue: how requests are queued

	// Denial is the HTTP response to requests that the rule denies. Zero fields have defaults. In Message and Body,
	// {rule}, {limit} and {retry_after} are replaced by the rule's name, the limit that denied and the seconds to wait.
	Denial struct {
		Pos         Position
		Status      int    // 400 to 599; default 429
		Message     string // replaces the detail of the default body
		Body        string // replaces the default body; values are escaped as ContentType needs
		ContentType string // of Body; default "text/plain; charset=utf-8"
	}

	Disabled bool
	Shadow   bool // shadow mode: decide and report, never deny
	// EnforceBasisPoints is the share of keys for which the rule is enforced, in hundredths of a percent; for the
	// others it is in shadow mode. A key is always on the same side. 0 means all keys; to enforce for none use Shadow.
	EnforceBasisPoints int

	ChargeDenied bool         // denied requests are charged too
	ChargeStatus StatusRanges // only requests with these response statuses are charged; empty: all
	ActualCost   *ActualCost  // where the actual cost is read from the response; nil: Cost is final

	OnFailure sluice.FailMode
	Accuracy  sluice.Accuracy
}

// Limit is one limit of a rule.
type Limit struct {
	Pos       Position
	Name      string // name of the bucket after the rule's name; default its place in the list
	Limit     sluice.Limit
	Unlimited bool // no limit; only in tiers and overrides
	DenyAll   bool // deny all requests without counting; only in tiers and overrides
	// These fields are set per limit in a [DescriptorRule]; a [Rule] sets them for all of its limits.
	OnFailure    sluice.FailMode
	Accuracy     sluice.Accuracy
	ChargeDenied bool
	// Warning is a note about the limit for its author, such as a rounded number. It is returned as a [Warning].
	Warning string
}

// Tiers chooses a rule's limits by an attribute.
type Tiers struct {
	Pos    Position
	By     Ref
	Limits map[string][]Limit // by the attribute's value; other values have the rule's Limits
}

// Override chooses the limits of one key.
type Override struct {
	Pos    Position
	Key    []string // the values of Per, in that order
	Limits []Limit
}

// Cost is the cost of a request: a number, or read from an attribute.
type Cost struct {
	Pos     Position
	Default int64 // default 1
	// From is an attribute that contains a whole number of at least 1. Requests without it cost Default. A request with
	// another value is rejected ([ErrInvalidCost]).
	From *Ref
	Max  int64 // maximum; a larger cost counts as this; default sluice.MaxCost
}

// OnMissing is the outcome of a request without an attribute of Per.
type OnMissing uint8

const (
	MissingShare  OnMissing = iota // they share a bucket
	MissingSkip                    // the rule does not apply to them
	MissingReject                  // they are rejected
)

// OnLimit is the outcome of a request over the limit.
type OnLimit uint8

const (
	OnLimitDeny  OnLimit = iota // deny it
	OnLimitQueue                // queue it in the gateway and deliver it later
	OnLimitDelay                // delay it
)

var onLimitNames = [...]string{"deny", "queue", "delay"}

// String returns the name that rule files use.
func (o OnLimit) String() string { return onLimitNames[min(int(o), len(onLimitNames)-1)] }

// Unmatched is the outcome of a request that no rule matches.
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

// ClientIP configures how an edge finds the client's address. The zero ClientIP uses the peer address of the
// connection.
type ClientIP struct {
	Pos            Position
	TrustedProxies []netip.Prefix
	Header         string // header set by the proxies; default X-Forwarded-For
	ProxyHops      int    // use the nth address from the right instead
	IPv6Prefix     int    // length of the counted prefix of an IPv6 address in bits; default 64
}

// Match is a condition on requests: all of its predicates must match. The zero Match matches every request.
type Match struct {
	Pos        Position
	Predicates []Predicate
}

// Predicate is a condition on one attribute. It matches if one of Values, Prefixes, Suffixes, Patterns or Regexps
// matches the attribute, or with Not if none does. With Present set, it checks instead whether the request has the
// attribute.
//
// A request without the attribute matches no value, so that Not matches it.
type Predicate struct {
	Pos Position
	Ref Ref
	Not bool
	// Values are compared as a whole: a method in upper case, a host in lower case. GET includes HEAD, because servers
	// respond to both alike. For "ip" they are addresses and prefixes; for "host", "*.example.com" is any name below
	// example.com.
	Values   []string
	Prefixes []string
	Suffixes []string
	Regexps  []string // RE2; they match anywhere unless anchored
	// Patterns are for "path": /users/{id}/posts, where * and {id} match one segment, * inside a segment matches any
	// part of it, and ** at the end matches any number of segments.
	Patterns []string
	Present  *bool
}

// ActualCost configures where the actual cost of a request is read from its response. Until then the rule's Cost is
// charged as an estimate. Then the difference is refunded, or charged regardless of the limit, which may make the
// balance negative.
type ActualCost struct {
	Pos    Position
	Header string // a header or trailer of the response
	// JSON is the path of a field in the response body: "usage.total_tokens". In a stream of events or lines, the last
	// one with the field counts.
	JSON string
	// Default is the cost of a response without the value; nil means that the estimate stays charged.
	Default     *int64
	StripHeader bool // remove Header from the response
}
