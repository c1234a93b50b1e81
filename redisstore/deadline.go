package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluiceproject/sluice"
)

// runWithDeadline runs a call, and returns when the caller's time is up even if the client does not. It keeps to the time while
// it has a connection; but a caller for whom it makes one can wait for a second on a server that accepts and says
// nothing, and whoever comes meanwhile waits with it, whatever their time.
//
// A goroutine for each call would cost more than the rest of it. So there is one only while something is wrong.
func (s *Store) runWithDeadline(ctx context.Context, c *call) error {
	if !s.unavailable.Load() {
		return s.applyTracked(ctx, c)
	}
	done := make(chan error, 1)
	if !s.connector.calls.Go(func() { done <- s.applyTracked(ctx, c) }) {
		return s.applyTracked(ctx, c)
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		select {
		case err := <-done:
			return err
		default:
		}
		return fmt.Errorf("redisstore: %w: %w: the takes may have been charged", sluice.ErrUnavailable, ctx.Err())
	}
}

// Patience is how long a server may still take to reply; see [sluice.Arrivals]. Of a client that is the caller's the
// connections are not known.
func (s *Store) Patience(budget time.Duration) (left time.Duration, own bool) {
	if l := s.link.Load(); l != nil && l.dialer != nil {
		return l.dialer.patience(budget)
	}
	return 0, false
}

// applyTracked runs a call and notes whether something is wrong.
func (s *Store) applyTracked(ctx context.Context, c *call) error {
	err := s.apply(ctx, c)
	if wrong := errors.Is(err, sluice.ErrUnavailable); wrong != s.unavailable.Load() {
		s.unavailable.Store(wrong)
	}
	return err
}
