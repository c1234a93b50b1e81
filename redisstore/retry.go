package redisstore

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// retries says how many commands may be sent again: one for each ten that were sent, and a few to begin with. More would
// be load on top of trouble.
type retries struct {
	spent atomic.Int64 // tenths; may be negative
}

const (
	retryCost = 10
	mostSaved = 10 * retryCost
)

// sent notes a command.
func (r *retries) sent() {
	if r.spent.Load() > 0 {
		r.spent.Add(-1)
	}
}

// take tells whether one more may be sent again.
func (r *retries) take() bool {
	if r.spent.Add(retryCost) > mostSaved {
		r.spent.Add(-retryCost)
		return false
	}
	return true
}

// retryPause is about how long to wait before a command is sent again: a slot's move or a new connection takes that long.
const retryPause = 2 * time.Millisecond

// again sends a command, and once more if that is certain not to charge anything twice.
func again[T any](ctx context.Context, s *Store, send func(c Commander) (T, error)) (T, error) {
	link, err := s.connected()
	if err != nil {
		var none T
		return none, err
	}
	s.retries.sent()
	answer, err := send(link.client)
	if err == nil {
		return answer, nil
	}
	v, _ := classify(err)
	if v == wrongServer {
		link.reconnect()
	}
	if v != notRun && v != wrongServer || !s.retries.take() || !pause(ctx, retryPause/2+rand.N(retryPause)) {
		return answer, err
	}
	return send(link.client)
}

// pause waits, and tells whether there is time left after it.
func pause(ctx context.Context, d time.Duration) bool {
	if until, ok := ctx.Deadline(); ok && time.Until(until) <= d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
