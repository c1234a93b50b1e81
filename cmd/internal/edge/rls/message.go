package rls

import (
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluiceproject/sluice/rules"
)

// Request is a RateLimitRequest. Its strings point into the received bytes and are valid until the call ends. Use
// strings.Clone to retain one.
type Request struct {
	Domain      string
	Descriptors []Descriptor
	HitsAddend  uint32

	entries []rules.Entry // entries of all descriptors, concatenated
}

// Descriptor is one RateLimitDescriptor of a request.
type Descriptor struct {
	Entries []rules.Entry

	HasOverride bool // the descriptor has a limit
	Override    Override

	HasHits  bool // the descriptor has hits, possibly 0
	Hits     uint64
	Negative bool // the hits are refunded
}

// Override is a limit in a request.
type Override struct {
	RequestsPerUnit uint32
	Unit            Unit
	Multiplier      uint32 // number of units; 0 means 1
}

// Response is a RateLimitResponse.
type Response struct {
	Overall  Code
	Statuses []Status // one for each descriptor of the request, in the same order
	Headers  []Header // headers for the HTTP response to the client
	Metadata *structpb.Struct
}

// Status is the status of one descriptor.
type Status struct {
	Code      Code
	Remaining uint32

	HasLimit bool
	Limit    Limit

	HasReset bool
	Reset    int64 // seconds
}

// Limit is the limit in a status.
type Limit struct {
	Requests   uint32
	Unit       Unit
	Multiplier uint32 // number of units; 0 means 1
	Name       string
}

// Header is an HTTP header.
type Header struct{ Name, Value string }

// Code is the code of a decision.
type Code uint8

const (
	CodeUnknown Code = iota
	CodeOK
	CodeOverLimit
)

var codeNames = [...]string{"UNKNOWN", "OK", "OVER_LIMIT"}

// String returns the name in the protocol.
func (c Code) String() string { return codeNames[min(int(c), len(codeNames)-1)] }

// Unit is a unit of time, with the numbers of the protocol.
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

// Known reports whether the protocol defines the unit and it is not UNKNOWN.
func (u Unit) Known() bool { return u > UnitUnknown && int(u) < len(unitNames) }

// String returns the name in the protocol.
func (u Unit) String() string {
	if u.Known() {
		return unitNames[u]
	}
	return unitNames[UnitUnknown]
}

// Seconds returns the length of the unit in seconds, or 0 if the unit is unknown.
func (u Unit) Seconds() int64 {
	if u.Known() {
		return unitSeconds[u]
	}
	return 0
}

// Reset clears the request and keeps its memory for reuse.
func (r *Request) Reset() {
	r.Domain, r.HitsAddend = "", 0
	clear(r.Descriptors)
	clear(r.entries)
	r.Descriptors, r.entries = r.Descriptors[:0], r.entries[:0]
}

// Reset clears the response and keeps its memory for reuse.
func (r *Response) Reset() {
	r.Overall, r.Metadata = CodeUnknown, nil
	clear(r.Statuses)
	clear(r.Headers)
	r.Statuses, r.Headers = r.Statuses[:0], r.Headers[:0]
}
