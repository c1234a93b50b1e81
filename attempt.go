package sluice

import (
	"context"
	"fmt"
)

// Attempt is [Limiter.Decide] for those who ask again and again until they are allowed: it tells [Events] nothing of the
// decisions, so that a request that had to wait is not counted as denied many times. [Limiter.Report] tells of the last.
func (l *Limiter) Attempt(ctx context.Context, takes []Take, out []Decision) (bool, error) {
	if err := l.sound(); err != nil {
		return false, err
	}
	if len(out) < len(takes) {
		return false, fmt.Errorf("%w: %d takes but room for %d decisions", ErrInvalid, len(takes), len(out))
	}
	for i := range takes {
		if takes[i].Rule == nil {
			return false, fmt.Errorf("%w: take %d has no rule", ErrInvalid, i)
		}
	}
	out = out[:len(takes)]
	if err := l.apply(ctx, takes, out); err != nil {
		return false, err
	}
	allowed := true
	for i := range takes {
		d := &out[i]
		if takes[i].Rule.Shadow && !d.Allowed {
			d.Allowed, d.Shadow = true, true
		}
		allowed = allowed && (d.Allowed || takes[i].Cost == 0)
	}
	return allowed, nil
}

// Report tells [Events] what became of takes that were decided by [Limiter.Attempt], or by the caller itself.
func (l *Limiter) Report(ctx context.Context, takes []Take, out []Decision) {
	if l == nil {
		return
	}
	for i := range takes {
		if takes[i].Cost != 0 {
			l.opts.events.report(ctx, takes[i], out[i])
		}
	}
}
