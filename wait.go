package sluice

import (
	"context"
	"fmt"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
)

// Wait charges 1 to key, waiting until it is allowed or ctx is done. It is WaitN with a cost of 1.
func (l *Limiter) Wait(ctx context.Context, key string) error { return l.WaitN(ctx, key, 1) }

// WaitN charges n to key, waiting until it is allowed or ctx is done. If the wait would exceed the deadline of ctx,
// WaitN charges nothing and returns at once, with an error that wraps [context.DeadlineExceeded]. If n exceeds the
// limit the error wraps [ErrExceedsLimit].
//
// Callers that wait for the same bucket are served in order of arrival: each reserves a place, and refunds it if its
// context is done first. Windows and logs cannot be reserved in advance; their callers retry when the take may be
// allowed. Rules with a [Concurrency] limit are not supported: use [Limiter.Acquire].
func (l *Limiter) WaitN(ctx context.Context, key string, n int64) error {
	if n <= 0 {
		return fmt.Errorf("%w: wait: cost %d: use at least 1", ErrInvalid, n)
	}
	if err := l.validate(); err != nil {
		return err
	}
	for _, r := range l.rules {
		if r.Limit.Algorithm == Concurrency {
			return fmt.Errorf("%w: wait: rule %q has a concurrency limit, and its permit would not be released before its TTL: use Acquire", ErrInvalid, r.Name)
		}
	}
	for {
		most := group.MaxDelay
		if deadline, ok := ctx.Deadline(); ok {
			most = max(0, time.Until(deadline))
		}
		if len(l.rules) > 1 {
			most = 0 // a place in one bucket does not reserve the others
		}
		d, err := l.take(ctx, Take{Key: key, Cost: n, MaxDelay: most})
		switch {
		case err != nil:
			return err
		case d.ExceedsLimit:
			return fmt.Errorf("%w: cost %d, limit %d", ErrExceedsLimit, n, d.Limit)
		case d.Allowed && d.Delay > most: // MaxDelay 0 does not bound the wait in a LeakyQueue
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
			wait = max(wait, d.ResetAfter) // the place that becomes free is the last one, which departs when the queue is empty
		case len(l.rules) == 1 && rule.Limit.isBucket() && !d.Blocked:
			wait += most // RetryAfter is the time until a place is at most MaxDelay away
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
	return fmt.Errorf("sluice: wait: allowed in %v, after the deadline: %w", wait, context.DeadlineExceeded)
}

// refundPlace refunds a reserved place that the caller does not use. It needs its own context, because the caller's is
// done.
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
