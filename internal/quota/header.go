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

// Format is a set of headers that tell callers their quota. Formats are combined with |.
type Format uint8

const (
	// XRateLimit is X-Ratelimit-Limit, -Remaining and -Reset, and on denials -Retry-After. A cost that exceeds the limit has neither
	// of the last two.
	XRateLimit Format = 1 << iota
	// IETF is Ratelimit-Policy and Ratelimit as in draft-ietf-httpapi-ratelimit-headers-11, structured fields both.
	IETF
	// Draft03 is X-Ratelimit-Limit, -Remaining and -Reset as an early draft had them and Envoy sends them:
	// X-Ratelimit-Limit is `100, 100;w=60;name="api"`. It shares names with XRateLimit and excludes it.
	Draft03
)

// Names in the form that http.Header keeps them in, so that they can be put there directly.
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

// exposed are the headers that scripts from other origins may read.
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

// Headers says how headers are written.
type Headers struct {
	formats Format
	epoch   bool
	exposed string
}

// NewHeaders returns how headers are written in these formats, of which XRateLimit and Draft03 exclude each other. With
// resetAsUnixTime X-Ratelimit-Reset is seconds since 1970, not from now.
func NewHeaders(formats Format, resetAsUnixTime bool) Headers {
	return Headers{formats, resetAsUnixTime, formats.exposed()}
}

// Exposed lists the headers that scripts of other origins may read.
func (c *Headers) Exposed() []string { return strings.Split(c.exposed, ", ") }

// DefaultHeaders are those that callers are told their quota in unless somebody chooses others.
func DefaultHeaders() Headers { return NewHeaders(XRateLimit|IETF, false) }

// fields sets headers of one value each. The values share an array, which is one allocation for all; each header's
// slice ends where its value does, so that appending to it leaves the others alone.
type fields struct {
	h      http.Header
	values []string
}

func (f *fields) set(name, value string) {
	if f.values == nil {
		f.values = make([]string, 0, 5) // what an allowed response has by default
	}
	f.values = append(f.values, value)
	n := len(f.values)
	f.h[name] = f.values[n-1 : n : n]
}

// contains reports whether a line has text in it.
func contains(lines []string, text string) bool {
	for _, line := range lines {
		if strings.Contains(line, text) {
			return true
		}
	}
	return false
}

// add appends to what is there. That may be a slice that others share, so it is copied.
func (f *fields) add(name, value string) {
	if old := f.h[name]; len(old) > 0 {
		f.h[name] = append(old[:len(old):len(old)], value)
		return
	}
	f.set(name, value)
}

// Set tells the caller of a request the outcome of all rules that are enforced; denied says whether the request was. Of rules in
// shadow mode callers are told nothing: they never deny, and a client that slowed down for one would be limited by it.
func (c *Headers) Set(h http.Header, r *http.Request, ps *Policies, ds []sluice.Decision, denied bool) {
	tight := ps.mostRestrictive(ds)
	if tight < 0 {
		return
	}
	f := fields{h: h}
	if denied {
		f.values = make([]string, 0, 7) // what a denial has by default
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
	if source < sluice.SourceFailOpen && c.formats != 0 { // an open or closed rule counts nothing: its numbers would be made up
		c.setQuota(&f, ps, ds, tight, denied)
	}
}

// setQuota sets the headers with numbers. They are written into one string and cut out of it.
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
			delete(f.h, headerReset) // that of middleware around this one: no time helps
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
	if denied { // clients sleep until the reset; a bucket has room again long before it is full
		after = max(d.RetryAfter, time.Second)
	}
	if c.epoch && c.formats&Draft03 == 0 {
		at := time.Now().Add(after + time.Second - 1)
		return strconv.AppendInt(b, at.Unix(), 10)
	}
	return strconv.AppendInt(b, CeilSeconds(after), 10)
}

// appendItems writes the Ratelimit list. On a denial it has only the rules that denied: Retry-After must not be
// earlier than any t that is sent with it, and the other rules' windows may be long.
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

// tighter tells whether this quota has a smaller share left than the one in the header, if there is one: that of
// middleware around this one.
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

// SetRetry sets the headers of a 429 that no decision of a rule is behind, such as that of a bound: when to retry, at least after
// 1 s, and that nothing is left of the limit. A limit that the headers tell already stays. It returns the seconds, rounded up.
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

// SetProblem sets the headers of [SetRetry], and says the same in the body.
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

// SetDelay tells a caller who waited for how long.
func SetDelay(h http.Header, waited time.Duration) {
	if ms := waited.Milliseconds(); ms > 0 {
		h[headerDelay] = []string{strconv.FormatFloat(float64(ms)/1000, 'f', 3, 64)}
	}
}

// TakeHeaders sets headers that tell callers what became of takes. What headers say of a limit is made once and kept, so
// it is for one set of rules, and goes away with it.
type TakeHeaders struct {
	Headers
	policies Cache
	lists    sync.Pool // of *List
}

// NewTakeHeaders returns one that knows nothing yet.
func NewTakeHeaders(h Headers) *TakeHeaders {
	return &TakeHeaders{Headers: h, lists: sync.Pool{New: func() any { return new(List) }}}
}

// SetFor sets the headers of the answer to a request that was allowed or denied. decisions[i] is that of takes[i], and
// there is at least one. What a denial's body may say, [NewDenial] knows.
func (t *TakeHeaders) SetFor(h http.Header, r *http.Request, takes []sluice.Take, decisions []sluice.Decision, denied bool) {
	l := t.lists.Get().(*List)
	t.Set(h, r, l.Of(&t.policies, takes), decisions, denied)
	t.lists.Put(l)
}
