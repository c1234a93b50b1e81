package httplimit

import (
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/quota"
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
	return (*quota.Denial)(d).RetryAfter()
}

// Detail says in a sentence why the request was denied and when to come again, as the default answer does.
func (d *Denial) Detail() string { return (*quota.Denial)(d).Detail() }
