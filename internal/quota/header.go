package quota

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/problem"
)

// Format is a set of response headers that carry the quota. Formats are combined with |.
type Format uint8

const (
	// XRateLimit is X-Ratelimit-Limit, -Remaining and -Reset, and on denials -Retry-After. Reset and Retry-After are absent
	// if the cost exceeds the limit.
	XRateLimit Format = 1 << iota
	// IETF is Ratelimit-Policy and Ratelimit, the structured fields of draft-ietf-httpapi-ratelimit-headers-11.
	IETF
	// Draft03 is X-Ratelimit-Limit, -Remaining and -Reset in the format of draft 03, which Envoy sends:
	// X-Ratelimit-Limit is `100, 100;w=60;name="api"`. It cannot be combined with XRateLimit, which uses the same names.
	Draft03
)

// Header names in canonical form, so that they can be used as keys of an http.Header.
const (
	headerLimit      = "X-Ratelimit-Limit"
	headerRemaining  = "X-Ratelimit-Remaining"
	headerReset      = "X-Ratelimit-Reset"
	headerXRetry     = "X-Ratelimit-Retry-After"
	headerDegraded   = "X-Ratelimit-Degraded"
	headerDelay      = "X-Ratelimit-Delay"
	headerPolicy     = "Ratelimit-Policy"
	headerRateLimit  = "Ratelimit"
	headerRetryAfter = "Retry-After"
	headerExpose     = "Access-Control-Expose-Headers"
)

// exposed returns the value of Access-Control-Expose-Headers: the headers that scripts of other origins may read.
func (f Format) exposed() string {
	names := []string{headerRetryAfter, headerDegraded, headerDelay}
	if f&(XRateLimit|Draft03) != 0 {
		names = append(names, headerLimit, headerRemaining, headerReset)
	}
	if f&XRateLimit != 0 {
		names = append(names, headerXRetry)
	}
	if f&IETF != 0 {
		names = append(names, headerPolicy, headerRateLimit)
	}
	return strings.Join(names, ", ")
}

// Headers writes quota headers in a set of formats.
type Headers struct {
	formats Format
	epoch   bool
	exposed string
}

// NewHeaders returns Headers for the formats, of which XRateLimit and Draft03 exclude each other. With resetAsUnixTime
// X-Ratelimit-Reset is a Unix timestamp instead of seconds from now.
func NewHeaders(formats Format, resetAsUnixTime bool) Headers {
	return Headers{formats, resetAsUnixTime, formats.exposed()}
}

// Exposed returns the names of the headers that scripts of other origins may read.
func (c *Headers) Exposed() []string { return strings.Split(c.exposed, ", ") }

// DefaultHeaders returns Headers for the default formats, XRateLimit and IETF.
func DefaultHeaders() Headers { return NewHeaders(XRateLimit|IETF, false) }

// fields sets headers of one value each. The values share an array, so that all of them take one allocation. The capacity
// of each header's slice ends at its value, so that appending to it does not overwrite another header.
type fields struct {
	h      http.Header
	values []string
}

func (f *fields) set(name, value string) {
	if f.values == nil {
		f.values = make([]string, 0, 5) // default headers of an allowed response
	}
	f.values = append(f.values, value)
	n := len(f.values)
	f.h[name] = f.values[n-1 : n : n]
}

// contains reports whether a line contains text.
func contains(lines []string, text string) bool {
	for _, line := range lines {
		if strings.Contains(line, text) {
			return true
		}
	}
	return false
}

// add appends a value to a header. It copies the header's slice, which others may share.
func (f *fields) add(name, value string) {
	if old := f.h[name]; len(old) > 0 {
		f.h[name] = append(old[:len(old):len(old)], value)
		return
	}
	f.set(name, value)
}

// Set sets the quota headers for the decisions of all enforced rules. Rules in shadow mode are not listed: they never deny,
// and a client that slowed down for one would be limited by it.
func (c *Headers) Set(h http.Header, r *http.Request, ps *Policies, ds []sluice.Decision, denied bool) {
	tight := ps.mostRestrictive(ds)
	if tight < 0 {
		return
	}
	f := fields{h: h}
	if denied {
		f.values = make([]string, 0, 7) // default headers of a denial
	}
	if len(r.Header["Origin"]) > 0 && !contains(h[headerExpose], c.exposed) {
		f.add(headerExpose, c.exposed)
	}
	source := sluice.SourceStore
	for i := range ds {
		if !ps.isShadow(ds, i) {
			source = max(source, ds[i].Source)
		}
	}
	if source.Degraded() {
		f.set(headerDegraded, source.String())
	}
	d := &ds[tight]
	if denied && !d.ExceedsLimit {
		s := strconv.FormatInt(max(1, CeilSeconds(d.RetryAfter)), 10)
		f.set(headerRetryAfter, s)
		if c.formats&XRateLimit != 0 {
			f.set(headerXRetry, s)
		}
	}
	if source < sluice.SourceFailOpen && c.formats != 0 { // fail open and fail closed count nothing and have no numbers
		c.setQuota(&f, ps, ds, tight, denied)
	}
}

// setQuota sets the headers with numbers. Their values are substrings of one string, which takes one allocation.
func (c *Headers) setQuota(f *fields, ps *Policies, ds []sluice.Decision, tight int, denied bool) {
	d := &ds[tight]
	remaining := clampInt(d.Remaining)
	var room [256]byte
	b := strconv.AppendInt(room[:0], remaining, 10)
	atReset := len(b)
	b = c.appendReset(b, d, denied)
	atItems := len(b)
	if c.formats&IETF != 0 {
		b = appendItems(b, ps, ds, denied)
	}
	atPolicies := len(b)
	if c.formats&IETF != 0 && ps.ietf == "" {
		b = ps.appendIETF(b)
	}
	text := string(b)

	if c.formats&(XRateLimit|Draft03) != 0 && (denied || tighter(f.h, remaining, d.Limit)) {
		limit := ""
		if tight < len(ps.each) && ps.each[tight].quota == d.Limit {
			limit = ps.each[tight].digits
		} else {
			limit = strconv.FormatInt(clampInt(d.Limit), 10)
		}
		switch {
		case c.formats&Draft03 == 0:
		case ps.draft03 == "":
			limit += ps.listDraft03()
		default:
			limit += ps.draft03
		}
		f.set(headerLimit, limit)
		f.set(headerRemaining, text[:atReset])
		if denied && d.ExceedsLimit {
			delete(f.h, headerReset) // set by middleware around this one; no retry can succeed
		} else {
			f.set(headerReset, text[atReset:atItems])
		}
	}
	if c.formats&IETF != 0 && len(ps.each) > 0 {
		f.add(headerPolicy, cmp.Or(ps.ietf, text[atPolicies:]))
		if denied {
			f.set(headerRateLimit, text[atItems:atPolicies])
		} else {
			f.add(headerRateLimit, text[atItems:atPolicies])
		}
	}
}

func (c *Headers) appendReset(b []byte, d *sluice.Decision, denied bool) []byte {
	after := d.ResetAfter
	if denied { // clients sleep until the reset; a bucket allows requests long before it is full
		after = max(d.RetryAfter, time.Second)
	}
	if c.epoch && c.formats&Draft03 == 0 {
		at := time.Now().Add(after + time.Second - 1)
		return strconv.AppendInt(b, at.Unix(), 10)
	}
	return strconv.AppendInt(b, CeilSeconds(after), 10)
}

// appendItems appends the Ratelimit list. On a denial it contains only the rules that denied: Retry-After must not be
// earlier than any t in the same response, and the windows of other rules may be long.
func appendItems(b []byte, ps *Policies, ds []sluice.Decision, denied bool) []byte {
	first := true
	for i := range ps.each {
		p, d := ps.each[i], &ds[i]
		if p.shadow || denied && d.Allowed {
			continue
		}
		if !first {
			b = append(b, ", "...)
		}
		first = false
		b = append(b, p.quoted...)
		b = strconv.AppendInt(append(b, ";r="...), clampInt(d.Remaining), 10)
		if t := p.within(d); t > 0 {
			b = strconv.AppendInt(append(b, ";t="...), t, 10)
		}
	}
	return b
}

// tighter reports whether this quota has a smaller share remaining than the quota that middleware around this one has set
// in the header. It is true if there is none.
func tighter(h http.Header, remaining, limit int64) bool {
	old := h[headerRemaining]
	if len(old) == 0 || len(h[headerLimit]) == 0 {
		return true
	}
	text, _, _ := strings.Cut(h[headerLimit][0], ",")
	oldLimit, err := strconv.ParseInt(text, 10, 64)
	oldRemaining, err2 := strconv.ParseInt(old[0], 10, 64)
	if err != nil || err2 != nil {
		return true
	}
	return float64(remaining)*float64(oldLimit) < float64(oldRemaining)*float64(limit)
}

// SetRetry sets the headers of a 429 that was not decided by a rule, such as one for an exceeded bound: the time to retry,
// at least 1 s, and a remaining quota of 0. If a limit is already set, limit and remaining quota are not changed. It
// returns the time to retry in seconds, rounded up.
func SetRetry(h http.Header, limit int64, after time.Duration) (seconds int64) {
	seconds = max(1, CeilSeconds(after))
	text := strconv.FormatInt(seconds, 10)
	f := fields{h: h}
	if len(h[headerLimit]) == 0 {
		f.set(headerLimit, strconv.FormatInt(clampInt(limit), 10))
		f.set(headerRemaining, "0")
	}
	for _, name := range []string{headerReset, headerXRetry, headerRetryAfter} {
		f.set(name, text)
	}
	return seconds
}

// SetProblem sets the headers of [SetRetry] and the corresponding fields of the problem, and appends the time to retry to
// its detail.
func SetProblem(h http.Header, p *problem.Problem, limit int64, after time.Duration) {
	seconds := SetRetry(h, limit, after)
	detail, sentence := strings.CutSuffix(p.Detail, ".")
	p.Detail = detail + "; retry in " + strconv.FormatInt(seconds, 10) + " s"
	if sentence {
		p.Detail += "."
	}
	p.Type = problem.TypeQuota
	p.RetryAfterMS = max(after, time.Second).Milliseconds()
}

// SetDelay sets X-Ratelimit-Delay, in seconds, if the request was delayed by at least 1 ms.
func SetDelay(h http.Header, waited time.Duration) {
	if ms := waited.Milliseconds(); ms > 0 {
		h[headerDelay] = []string{strconv.FormatFloat(float64(ms)/1000, 'f', 3, 64)}
	}
}

// TakeHeaders sets quota headers for the decisions of takes. It caches the constant parts per limit, so that a TakeHeaders
// must be used with one rule set only.
type TakeHeaders struct {
	Headers
	policies Cache
	lists    sync.Pool // *List
}

// NewTakeHeaders returns a TakeHeaders with an empty cache.
func NewTakeHeaders(h Headers) *TakeHeaders {
	return &TakeHeaders{Headers: h, lists: sync.Pool{New: func() any { return new(List) }}}
}

// SetFor sets the headers of the response to an allowed or denied request. decisions[i] is the decision of takes[i], and
// there is at least one. [NewDenial] provides the body of a denial.
func (t *TakeHeaders) SetFor(h http.Header, r *http.Request, takes []sluice.Take, decisions []sluice.Decision, denied bool) {
	l := t.lists.Get().(*List)
	t.Set(h, r, l.Of(&t.policies, takes), decisions, denied)
	t.lists.Put(l)
}
