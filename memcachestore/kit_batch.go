package memcachestore

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
)

// maxBatchCalls is the maximum number of calls that share a swap.
const maxBatchCalls = 256

// applyOneKey runs a call on one item, immediately if no other call uses the item. Calls that arrive while another runs
// wait, and are then run as a batch. Otherwise they would wait for each other's round trips, and the network latency
// would bound the number of calls per key.
func (s *kit) applyOneKey(ctx context.Context, c *call) error {
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	k := c.units[0].digest
	lock := s.keyLocks.acquireRef(k)
	defer s.keyLocks.releaseRef(k, lock)
	select {
	case lock.turn <- struct{}{}:
		defer func() { <-lock.turn }()
		return s.failure(ctx, "take", s.runBatch(bounded, []*call{c}))
	default:
	}
	c.ctx, c.done = bounded, make(chan error, 1)
	if s.keyLocks.joinBatch(k, lock, c) && !s.helpers.Go(func() { s.help(k, lock) }) {
		s.help(k, lock) // the kit is closed, and all calls fail
	}
	select {
	case err := <-c.done:
		return s.failure(ctx, "take", err)
	case <-bounded.Done():
		select {
		case err := <-c.done:
			return s.failure(ctx, "take", err)
		default:
		}
		// A batch may already include the call and still charge it, as after any error.
		s.keyLocks.withdraw(k, lock, c)
		return s.failure(ctx, "take", fmt.Errorf("waiting behind other callers of the key: %w", bounded.Err()))
	}
}

// help runs the calls that wait for a lock until none is left. It runs in the background, so that a caller that stops
// waiting does not end the calls of others.
func (s *kit) help(k digest, lock *keyLock) {
	defer s.keyLocks.releaseRef(k, lock)
	for {
		lock.turn <- struct{}{}
		calls := s.keyLocks.next(k, lock, maxBatchCalls)
		if len(calls) > 0 {
			s.runForAll(calls)
		}
		<-lock.turn // otherwise calls on several items would never get the lock
		if len(calls) == 0 {
			return
		}
	}
}

// runForAll runs calls until they are done or all their callers have stopped waiting.
func (s *kit) runForAll(calls []*call) {
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

// runBatch decides calls on one item one after the other, and swaps the item once. If the swap is lost, all are decided
// again, so that each gets the same decision as alone.
func (s *kit) runBatch(ctx context.Context, calls []*call) error {
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

// drop reports whether the call's caller has stopped waiting. Its decisions are not used then.
func (c *call) drop() bool {
	c.dropped = c.ctx != nil && c.ctx.Err() != nil
	return c.dropped
}
