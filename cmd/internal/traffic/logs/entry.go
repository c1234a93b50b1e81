package logs

import (
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/sluiceproject/sluice/cmd/internal/operate/accesslog"
)

// Entry is a request of a log.
type Entry struct {
	// Record contains the fields that the format has. Time is the start of the request. Client is the client IP after
	// Options.TrustedProxies; a client that the log names by host has a synthetic address: see [HostAddr].
	Record     accesslog.Record
	Micros     int64  // Record.Time, truncated to microseconds
	ClientName string // host name of the client, if the log has one instead of an address

	line      string
	log       *Log
	number    int64 // of the request in its log, so that requests with equal times keep their order
	isStart   bool  // the logged time is the start of the request, not its end
	forwarded bool  // Client was read from a forwarding header that a trusted proxy set
}

// field is a named value of a line that is not in its Record, or is also there.
type field struct{ name, value string }

// maxFields is the maximum number of fields of a line that can be found by name.
const maxFields = 1024

// fieldIndex contains the fields of one entry.
type fieldIndex struct {
	number int64
	all    []field
}

func (x *fieldIndex) of(e *Entry) []field {
	if x.number != e.number || e.number == 0 {
		x.number, x.all = e.number, x.all[:0]
		e.log.parser.fields(e.line, func(name, value string) {
			if len(x.all) < maxFields {
				x.all = append(x.all, field{name, value})
			}
		})
	}
	return x.all
}

// fields returns the fields of the entry. They are indexed on the first lookup, for one entry of a log at a time.
func (e *Entry) fields() []field {
	if e.log == nil {
		return nil
	}
	return e.log.index.of(e)
}

// Field returns the value of a column or JSON field by its name; names of nested fields are joined by dots. The numbered
// fields at the end of a combined line are extra1, extra2, ….
func (e *Entry) Field(name string) (string, bool) {
	for _, f := range e.fields() {
		if f.name == name {
			return f.value, true
		}
	}
	return "", false
}

// Header returns the value of a request header, if the log contains it: a JSON field or column such as http_x_api_key,
// x_api_key, request_X-Api-Key or request.headers.X-Api-Key for X-Api-Key. Values of several lines are joined by commas.
func (e *Entry) Header(name string) (string, bool) {
	switch {
	case strings.EqualFold(name, "User-Agent") && e.Record.UserAgent != "":
		return e.Record.UserAgent, true
	case strings.EqualFold(name, "Referer") && e.Record.Referer != "":
		return e.Record.Referer, true
	}
	return header(e.fields(), name)
}

func header(all []field, name string) (string, bool) {
	for _, f := range all {
		if isHeader(f.name, name) && f.value != "" && f.value != "-" {
			return f.value, true
		}
	}
	return "", false
}

// headerPrefixes precede names of request headers in the formats of servers.
var headerPrefixes = []string{"http_", "request.headers.", "request_headers.", "headers.", "req.headers."}

// isHeader reports whether the field contains the header.
func isHeader(field, name string) bool {
	for _, prefix := range headerPrefixes {
		if rest, ok := strings.CutPrefix(field, prefix); ok {
			return sameHeader(rest, name)
		}
	}
	if rest, ok := strings.CutPrefix(field, "request_"); ok && sameHeader(rest, name) {
		return isUnmistakable(name)
	}
	return sameHeader(field, name) && isUnmistakable(name)
}

// isUnmistakable reports whether a field with the name of the header is the header: a field such as time or status
// usually is something else.
func isUnmistakable(name string) bool {
	if strings.IndexByte(name, '-') > 0 {
		return true
	}
	switch http.CanonicalHeaderKey(name) {
	case "Authorization", "Cookie", "Origin", "Host", "Referer":
		return true
	}
	return false
}

// sameHeader reports whether two names are equal without regard to case, underscores being hyphens.
func sameHeader(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if headerByte(a[i]) != headerByte(b[i]) {
			return false
		}
	}
	return true
}

func headerByte(c byte) byte {
	switch {
	case c == '_':
		return '-'
	case c >= 'A' && c <= 'Z':
		return c + 'a' - 'A'
	}
	return c
}

// Cost returns a cost of the request: bytes_in, bytes_out, cost (the field that Options.Columns maps to it), field:NAME,
// or the sum of several, such as field:ContextTokens+GeneratedTokens. Fractions are rounded up. ok is false if the line does
// not have all of them, or one is negative or no number.
func (e *Entry) Cost(name string) (cost int64, ok bool) {
	for kind, more := "", true; more; {
		var one string
		one, name, more = strings.Cut(name, "+")
		if rest, isField := strings.CutPrefix(one, "field:"); isField {
			kind, one = "field", rest
		}
		n, ok := e.cost(kind, one)
		if !ok || n > math.MaxInt64-cost {
			return 0, false
		}
		cost += n
	}
	return cost, true
}

func (e *Entry) cost(kind, name string) (int64, bool) {
	if kind == "" {
		switch name {
		case "bytes_in":
			return e.Record.BytesIn, true
		case "bytes_out":
			return e.Record.BytesOut, true
		case "cost":
			if e.log == nil || e.log.costField == "" {
				return 0, false
			}
			return e.Cost("field:" + e.log.costField)
		}
	}
	v, ok := e.Field(name)
	if !ok {
		return 0, false
	}
	return whole(v)
}

// whole parses a number that is not negative and rounds it up.
func whole(v string) (int64, bool) {
	n, err := strconv.ParseInt(v, 10, 64)
	if err == nil {
		return n, n >= 0
	}
	f, err := strconv.ParseFloat(v, 64)
	if f = math.Ceil(f); err != nil || !(f >= 0 && f < 1<<63) {
		return 0, false
	}
	return int64(f), true
}
