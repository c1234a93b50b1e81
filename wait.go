package sluice

import (
	"context"
	"fmt"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
)

// Wait spends one on the key, waiting until there is room or the context ends.
func (l *Limiter) Wait(ctx context.Context, key string) error { return l.WaitN(ctx, key, 1) }

// WaitN spends n on the key, waiting until there is room or the context ends. If the wait would outlast the context's
// deadline it returns at once, with an error that wraps [context.DeadlineExceeded], and nothing is spent. A cost that
// can never fit returns [ErrExceedsLimit].
//
// Callers that wait on one bucket are served in the order they came: each reserves its place, and gives it back if
// its context ends first. Windows and logs cannot be reserved ahead; there callers try again when it may succeed.
// Rules with a [Concurrency] limit are refused: see [Limiter.Acquire].
func (l *Limiter) WaitN(ctx context.Context, key string, n int64) error {
	if n <= 0 {
		return fmt.Errorf("%w: cost %d: wait for at least 1", ErrInvalid, n)
	}
	if err := l.validate(); err != nil {
		return err
	}
	for _, r := range l.rules {
		if r.Limit.Algorithm == Concurrency {
			return fmt.Errorf("%w: rule %q limits what is in flight, and a permit that nobody releases is lost for its TTL: use Acquire", ErrInvalid, r.Name)
		}
	}
	for {
		most := group.MaxDelay
		if deadline, ok := ctx.Deadline(); ok {
			most = max(0, time.Until(deadline))
		}
		if len(l.rules) > 1 {
			most = 0 // a place in one bucket says nothing of the others
		}
		d, err := l.take(ctx, Take{Key: key, Cost: n, MaxDelay: most})
		switch {
		case err != nil:
			return err
		case d.ExceedsLimit:
			return fmt.Errorf("%w: %d of %d", ErrExceedsLimit, n, d.Limit)
		case d.Allowed && d.Delay > most: // a queue whose caller has no time left
			l.refundPlace(key, n, d)
			return tooLate(d.Delay)
		case d.Allowed:
			if err := sleep(ctx, d.Delay); err != nil {
				l.refundPlace(key, n, d)
				return err
			}
			return nil
		}
		wait := d.RetryAfter
		switch rule := l.rules[0]; {
		case l.isQueue():
			wait = max(wait, d.ResetAfter) // the last place in the queue is as far away as the queue is long
		case len(l.rules) == 1 && rule.Limit.isBucket() && !d.Blocked:
			wait += most // it is told from when on a place is near enough
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
			return tooLate(wait)
		}
		if err := sleep(ctx, d.RetryAfter); err != nil {
			return err
		}
	}
}

func (l *Limiter) isQueue() bool {
	return len(l.rules) == 1 && l.rules[0].Limit.Algorithm == LeakyQueue
}

func tooLate(wait time.Duration) error {
	return fmt.Errorf("sluice: room in %v is too late: %w", wait, context.DeadlineExceeded)
}

// refundPlace returns a place nobody will use. The caller's context has ended, so it cannot carry the call.
func (l *Limiter) refundPlace(key string, n int64, d Decision) {
	_, _ = l.take(context.Background(), Take{Key: key, Cost: -n, Receipt: d.Receipt})
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
