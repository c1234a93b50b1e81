package httplimit

import (
	"net/http"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/quota"
)

// Teller sets headers that tell callers what became of takes, as [Rules] does. It is for those who match and decide
// requests themselves. What headers say of a limit is made once and kept, so a Teller is for one set of rules, and goes
// away with it.
type Teller struct{ headers *quota.TakeHeaders }

// NewTeller returns one that knows nothing yet. Of the options, [Headers] and [ResetEpoch] count.
func NewTeller(opts ...Option) *Teller {
	c := newConfig(opts)
	return &Teller{quota.NewTakeHeaders(c.headers)}
}

// SetHeaders sets the headers of the answer to a request that was allowed or denied. decisions[i] is that of takes[i], and
// there is at least one. What a denial's body may say, [NewDenial] knows.
func (t *Teller) SetHeaders(h http.Header, r *http.Request, takes []sluice.Take, decisions []sluice.Decision, denied bool) {
	t.headers.SetFor(h, r, takes, decisions, denied)
}

// NewDenial is what a denied request is told. decisions[i] is that of takes[i], and one of them denies.
func NewDenial(takes []sluice.Take, decisions []sluice.Decision) *Denial {
	return (*Denial)(quota.NewDenial(takes, decisions))
}

// MergeHeaders adds the headers of an upstream's answer to ours, which tell the quota already.
func MergeHeaders(ours, upstream http.Header) { quota.Merge(ours, upstream) }
