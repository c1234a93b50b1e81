package group

import (
	"time"

	"github.com/sluiceproject/sluice/internal/step"
)

// Answer is a decision about one op, and where it came from.
type Answer struct {
	Allowed, Never, Blocked       bool
	Source                        Source
	Limit                         int64
	Granted, Remaining, At        int64
	Delay, RetryAfter, ResetAfter time.Duration
}

// AnswerOf is an algorithm's answer under the numbers p.
func AnswerOf(p *step.Params, a *step.Answer) Answer {
	return Answer{
		Allowed: a.Allowed, Never: a.Never, Blocked: a.Blocked,
		Limit: p.Limit(), Granted: a.Granted, Remaining: a.Remaining, At: a.At,
		RetryAfter: time.Duration(a.RetryAfter) * time.Microsecond,
		ResetAfter: time.Duration(a.ResetAfter) * time.Microsecond,
		Delay:      time.Duration(a.Delay) * time.Microsecond,
	}
}
