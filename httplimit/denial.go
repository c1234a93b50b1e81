package httplimit

import (
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/quota"
)

// Denial describes a denied request.
type Denial struct {
	Rules           []*sluice.Rule
	Decisions       []sluice.Decision // Decisions[i] is the decision of Rules[i]
	MostRestrictive int               // index of the most restrictive decision, see [sluice.MostRestrictive]
	Status          int               // 429, or 503 if a rule failed closed because the store is unavailable
}

// RetryAfter returns the time until a retry may be allowed. never is true if no retry can succeed, because the cost
// exceeds the limit.
func (d *Denial) RetryAfter() (after time.Duration, never bool) {
	return (*quota.Denial)(d).RetryAfter()
}

// Detail returns the problem detail of the default response: a sentence that names the limit and the time to retry.
func (d *Denial) Detail() string { return (*quota.Denial)(d).Detail() }
