package rls

import (
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluiceproject/sluice/rules"
)

// Request is a RateLimitRequest. Its strings are parts of the received bytes and good until the call ends; who keeps one
// copies it (strings.Clone).
type Request struct {
	Domain      string
	Descriptors []Descriptor
	HitsAddend  uint32

	entries []rules.Entry // of all descriptors, one after the other
}

// Descriptor is one RateLimitDescriptor of a request.
type Descriptor struct {
	Entries []rules.Entry

	HasOverride bool // the request brings a limit
	Override    Override

	HasHits  bool // the descriptor says its hits, also if they are 0
	Hits     uint64
	Negative bool // the hits are given back
}

// Override is a limit that a request brings.
type Override struct {
	RequestsPerUnit uint32
	Unit            Unit
	Multiplier      uint32 // how many units; 0: not said, which means 1
}

// Response is a RateLimitResponse.
type Response struct {
	Overall  Code
	Statuses []Status // one for each descriptor of the request, in the same order
	Headers  []Header // for the answer to the client
	Metadata *structpb.Struct
}

// Status is what a response says about one descriptor.
type Status struct {
	Code      Code
	Remaining uint32

	HasLimit bool
	Limit    Limit

	HasReset bool
	Reset    int64 // seconds
}

// Limit is the limit that a status tells.
type Limit struct {
	Requests   uint32
	Unit       Unit
	Multiplier uint32 // how many units; 0: not said, which means 1
	Name       string
}

// Header is an HTTP header.
type Header struct{ Name, Value string }

// Code is a verdict.
type Code uint8

const (
	CodeUnknown Code = iota
	CodeOK
	CodeOverLimit
)

var codeNames = [...]string{"UNKNOWN", "OK", "OVER_LIMIT"}

// String returns the protocol's name.
func (c Code) String() string { return codeNames[min(int(c), len(codeNames)-1)] }

// Unit is a unit of time, by the protocol's numbers.
type Unit int32

const (
	UnitUnknown Unit = iota
	Second
	Minute
	Hour
	Day
	Month // 30 days
	Year  // 365 days
	Week
)

var (
	unitNames   = [...]string{"UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR", "WEEK"}
	unitSeconds = [...]int64{0, 1, 60, 3600, 86400, 30 * 86400, 365 * 86400, 7 * 86400}
)

// Known reports whether the unit is one of the protocol's, and not UNKNOWN.
func (u Unit) Known() bool { return u > UnitUnknown && int(u) < len(unitNames) }

// String returns the protocol's name.
func (u Unit) String() string {
	if u.Known() {
		return unitNames[u]
	}
	return unitNames[UnitUnknown]
}

// Seconds is how long the unit is, and 0 if it is not known.
func (u Unit) Seconds() int64 {
	if u.Known() {
		return unitSeconds[u]
	}
	return 0
}

// Reset empties the request and keeps its memory.
func (r *Request) Reset() {
	r.Domain, r.HitsAddend = "", 0
	clear(r.Descriptors)
	clear(r.entries)
	r.Descriptors, r.entries = r.Descriptors[:0], r.entries[:0]
}

// Reset empties the response and keeps its memory.
func (r *Response) Reset() {
	r.Overall, r.Metadata = CodeUnknown, nil
	clear(r.Statuses)
	clear(r.Headers)
	r.Statuses, r.Headers = r.Statuses[:0], r.Headers[:0]
}
