package quota

import (
	"net/http"
	"strconv"
	"time"

	"github.com/sluiceproject/sluice"
)

// Denial is what a denied request is told.
type Denial struct {
	Rules           []*sluice.Rule
	Decisions       []sluice.Decision // Decisions[i] is that of Rules[i]
	MostRestrictive int               // the decision that matters most, see [sluice.MostRestrictive]
	Status          int               // 429, or 503 if nobody could count
}

// RetryAfter is how long until the request may be allowed; never is true if no waiting helps.
func (d *Denial) RetryAfter() (after time.Duration, never bool) {
	t := &d.Decisions[d.MostRestrictive]
	return t.RetryAfter, t.ExceedsLimit
}

// Detail says in a sentence why the request was denied and when to come again, as the default answer does.
func (d *Denial) Detail() string {
	name, flight := "", false
	if len(d.Rules) == len(d.Decisions) {
		name = fieldText(d.Rules[d.MostRestrictive].Name) + " "
		flight = d.Rules[d.MostRestrictive].Limit.Algorithm == sluice.Concurrency
	}
	t := &d.Decisions[d.MostRestrictive]
	before, after := "Rate limit ", "is used up; retry in "
	if t.Remaining > 0 {
		after = "has too little left for the cost of this request; retry in "
	}
	switch {
	case t.ExceedsLimit:
		return "The request costs more than rate limit " + name + "ever allows at once; retrying will not help."
	case d.Status == http.StatusServiceUnavailable:
		before, name, after = "Requests cannot be counted at the moment; retry in ", "", ""
	case t.Blocked:
		before, after = "The caller is blocked under rate limit ", "and may retry in "
		if name == "" {
			before = "The caller is blocked "
		}
	case flight:
		before, after = "As many requests as limit ", "allows are in flight; retry in "
	}
	var room [160]byte
	b := append(append(append(room[:0], before...), name...), after...)
	return string(append(strconv.AppendInt(b, max(1, CeilSeconds(t.RetryAfter)), 10), " s."...))
}

// DenialOf sums up decisions of which one denies.
func DenialOf(rules []*sluice.Rule, ds []sluice.Decision) Denial {
	d := Denial{rules, ds, sluice.MostRestrictive(ds), http.StatusTooManyRequests}
	if ds[d.MostRestrictive].Source == sluice.SourceFailClosed {
		d.Status = http.StatusServiceUnavailable
	}
	return d
}

// NewDenial is what a denied request is told. decisions[i] is that of takes[i], and one of them denies.
func NewDenial(takes []sluice.Take, decisions []sluice.Decision) *Denial {
	rules := make([]*sluice.Rule, len(takes))
	for i := range takes {
		rules[i] = takes[i].Rule
	}
	d := DenialOf(rules, decisions)
	return &d
}
