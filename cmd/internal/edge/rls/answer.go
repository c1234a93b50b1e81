package rls

import (
	"math"
	"strconv"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/rules"
)

// answer sets the response from the decisions.
func (d *Decider) answer(a *answering, req *Request, resp *Response) {
	for i := range a.decided.Matched.Matches {
		st := statusOf(&a.decided.Matched.Matches[i], a.decided.Decisions, a.descriptors[i].Cost)
		resp.Statuses = append(resp.Statuses, st)
	}
	resp.Overall = CodeOK
	if a.decided.OverLimit {
		resp.Overall = CodeOverLimit
	}
	if d.options.Headers.Limit != "" {
		d.addHeaders(&a.decided, resp)
	}
	if d.options.Metadata {
		resp.Metadata = metadata(a, req, resp)
	}
}

// statusOf returns the status of one descriptor.
func statusOf(m *rules.DescriptorMatch, out []sluice.Decision, cost int64) Status {
	switch {
	case m.Limit != nil && m.Limit.Unlimited:
		return Status{Code: CodeOK, Remaining: math.MaxUint32}
	case m.N == 0:
		return Status{Code: CodeOK}
	}
	out = out[m.First : m.First+m.N]
	at := tightest(out)
	t := &out[at]
	if unknown(t) {
		return Status{Code: CodeOK}
	}
	st := Status{
		Code: CodeOK, Remaining: uint32(min(t.Remaining, math.MaxUint32)),
		HasLimit: true, Limit: limitOf(&m.Limit.Rules[at].Limit), HasReset: true, Reset: reset(t, &m.Limit.Rules[at].Limit),
	}
	st.Limit.Name = m.Limit.Name
	if cost >= 0 && (!t.Allowed || t.ShadowDenied) {
		st.Remaining = 0
		if !t.ShadowDenied {
			st.Code = CodeOverLimit
		}
	}
	return st
}

// unknown reports whether the remaining quota is unknown: the store is unavailable and the limit fails open, the limit is
// suspended, or the deny cache decided because of another limit.
func unknown(d *sluice.Decision) bool {
	return d.Source == sluice.SourceFailOpen || d.Source == sluice.SourceSuspended || d.Source == sluice.SourceDenyCache && d.Allowed
}

// tightest returns the index of the decision to report: a shadow-denied one if there is one, else the most restrictive.
func tightest(out []sluice.Decision) int {
	if len(out) == 1 {
		return 0
	}
	for i := range out {
		if out[i].ShadowDenied {
			return i
		}
	}
	return sluice.MostRestrictive(out)
}

// reset returns the seconds, rounded up, until a denied request would be allowed or, if it was allowed, until the bucket is
// fully reset. For an unused fixed window it returns the time until the window ends.
func reset(d *sluice.Decision, l *sluice.Limit) int64 {
	after := d.ResetAfter
	if !d.Allowed || d.ShadowDenied {
		after = max(d.RetryAfter, time.Second)
		if d.ExceedsLimit {
			after = d.ResetAfter
		}
	}
	if after <= 0 && l.Algorithm == sluice.FixedWindow && l.Align == sluice.AlignEpoch {
		after = l.Window - time.Duration(time.Now().UnixMicro()%l.Window.Microseconds())*time.Microsecond
	}
	return int64((after + time.Second - 1) / time.Second)
}

// units are the units for windows, longest first. Month and year are used only for windows of exactly one, because few
// windows are a multiple of them.
var units = [...]struct {
	unit   Unit
	length time.Duration
}{
	{Week, 7 * 24 * time.Hour},
	{Day, 24 * time.Hour},
	{Hour, time.Hour},
	{Minute, time.Minute},
	{Second, time.Second},
}

// limitOf converts a limit to requests per unit. The protocol has no burst, so the remaining quota of a bucket can exceed
// the limit. A window with a fraction of a second has no unit.
func limitOf(l *sluice.Limit) Limit {
	to := Limit{Requests: uint32(min(l.Count, math.MaxUint32))}
	if l.Align == sluice.AlignCalendar {
		to.Unit = [...]Unit{sluice.CalendarDay: Day, sluice.CalendarWeek: Week, sluice.CalendarMonth: Month, sluice.CalendarYear: Year}[l.Calendar]
		return to
	}
	switch l.Window {
	case 30 * 24 * time.Hour:
		to.Unit = Month
		return to
	case 365 * 24 * time.Hour:
		to.Unit = Year
		return to
	}
	for _, u := range units {
		if l.Window%u.length == 0 {
			to.Unit = u.unit
			if n := l.Window / u.length; n > 1 {
				to.Multiplier = uint32(n)
			}
			return to
		}
	}
	return to
}

// HeaderNames are the names of the rate limit headers for clients.
type HeaderNames struct{ Limit, Remaining, Reset string }

// DefaultHeaders are the names that Envoy's service uses.
var DefaultHeaders = HeaderNames{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}

// addHeaders adds the headers for one descriptor: one that denies the request, else the one with the lowest remaining quota.
// Limits in shadow mode are left out, because they never deny; Envoy gets them in the statuses.
func (d *Decider) addHeaders(s *Decided, resp *Response) {
	if d.options.Shadow {
		return
	}
	var told *Status
	decides := false
	for i := range resp.Statuses {
		st := &resp.Statuses[i]
		switch {
		case !st.HasLimit || s.Matched.Matches[i].Limit.Shadow:
		case st.Code == CodeOverLimit && !d.quota(&s.Matched.Matches[i]):
			told, decides = st, true
		case !decides && (told == nil || st.Remaining < told.Remaining):
			told = st
		}
	}
	if told == nil {
		return
	}
	names := &d.options.Headers
	resp.Headers = append(resp.Headers,
		Header{names.Limit, strconv.FormatUint(uint64(told.Limit.Requests), 10)},
		Header{names.Remaining, strconv.FormatUint(uint64(told.Remaining), 10)},
		Header{names.Reset, strconv.FormatInt(told.Reset, 10)},
	)
}
