package memcachestore

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
)

// maxBatchCalls bounds the calls that share a swap.
const maxBatchCalls = 256

// applyOneKey runs a call about one item. If nobody else is about it, it does so at once. Those who come meanwhile wait,
// and are then run together: they would have to wait for each other's round trips otherwise, and a key could not be
// asked for more often than the network allows.
func (s *Store) applyOneKey(ctx context.Context, c *call) error {
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	k := c.units[0].digest
	lock := s.keyLocks.acquireRef(k)
	defer s.keyLocks.releaseRef(k, lock)
	select {
	case lock.turn <- struct{}{}:
		defer func() { <-lock.turn }()
		return failure(ctx, "take", s.runBatch(bounded, []*call{c}))
	default:
	}
	c.ctx, c.done = bounded, make(chan error, 1)
	if s.keyLocks.joinBatch(k, lock, c) && !s.helpers.Go(func() { s.help(k, lock) }) {
		s.help(k, lock) // all is closed, and everybody will hear so
	}
	select {
	case err := <-c.done:
		return failure(ctx, "take", err)
	case <-bounded.Done():
		select {
		case err := <-c.done:
			return failure(ctx, "take", err)
		default:
		}
		// It may have been taken up, and be charged yet: as after any error.
		s.keyLocks.withdraw(k, lock, c)
		return failure(ctx, "take", fmt.Errorf("waiting behind other callers of the key: %w", bounded.Err()))
	}
}

// help runs the calls that wait for a lock, until there are none. It is nobody's call in particular, so that no caller
// who gives up takes others along.
func (s *Store) help(k digest, lock *keyLock) {
	defer s.keyLocks.releaseRef(k, lock)
	for {
		lock.turn <- struct{}{}
		calls := s.keyLocks.next(k, lock, maxBatchCalls)
		if len(calls) > 0 {
			s.runForAll(calls)
		}
		<-lock.turn // between times it is the turn of calls about several items
		if len(calls) == 0 {
			return
		}
	}
}

// runForAll runs calls for as long as one of their callers waits.
func (s *Store) runForAll(calls []*call) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var waiting atomic.Int64
	waiting.Store(int64(len(calls)))
	for _, c := range calls {
		defer context.AfterFunc(c.ctx, func() {
			if waiting.Add(-1) == 0 {
				cancel()
			}
		})()
	}
	err := s.runBatch(ctx, calls)
	for _, c := range calls {
		if c.dropped {
			c.done <- c.ctx.Err()
			continue
		}
		c.done <- err
	}
}

// runBatch decides calls about one item, one after the other, and swaps it once. If the swap is lost all are decided
// again, so that each has the answer that it would have had by itself.
func (s *Store) runBatch(ctx context.Context, calls []*call) error {
	u := *calls[0].units[0]
	for attempt := 0; ; attempt++ {
		if err := s.backOff(ctx, attempt); err != nil {
			return err
		}
		calls = slices.DeleteFunc(slices.Clone(calls), (*call).drop)
		if len(calls) == 0 {
			return nil
		}
		u.ids = nil
		for _, c := range calls {
			u.ids = append(u.ids, c.units[0].ids...)
		}
		if err := s.read(ctx, []*unit{&u}); err != nil {
			return err
		}
		now := s.micros()
		for _, c := range calls {
			c.units[0].item = u.item
			if err := c.learn(ctx, now); err != nil {
				return err
			}
			c.decide(now)
			c.veto = c.vetoed()
			c.commit(now)
		}
		_, lost, err := s.write(ctx, []*unit{&u}, now)
		if err != nil || lost == 0 {
			return err
		}
	}
}

// drop tells whether a call's caller has given up. What it was answered in vain is no answer.
func (c *call) drop() bool {
	c.dropped = c.ctx != nil && c.ctx.Err() != nil
	return c.dropped
}
