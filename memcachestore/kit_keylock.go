package memcachestore

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// keyLocks serializes the callers of one key in this process. Otherwise all concurrent callers except one would lose
// their swap and have to read again.
type keyLocks struct {
	parts [64]lockPart
}

type lockPart struct {
	mu    sync.Mutex // guards the locks
	locks map[digest]*keyLock
}

// keyLock is the lock of one key, and its callers.
type keyLock struct {
	turn chan struct{} // contains a token while the lock is held; the runtime serves waiting callers in order

	// Guarded by the part's mu:
	callers int     // callers that hold the lock or wait for it
	waiting []*call // calls that wait for a batch
	worked  bool    // a helper runs them
}

// lockPart locks and returns the part of a key.
func (q *keyLocks) lockPart(k digest) *lockPart {
	part := &q.parts[k[0]%64]
	part.mu.Lock()
	return part
}

// wait locks all keys, which must be different. It locks them in order, so that callers of several keys cannot
// deadlock.
func (q *keyLocks) wait(ctx context.Context, keys []digest) error {
	slices.SortFunc(keys, func(a, b digest) int { return slices.Compare(a[:], b[:]) })
	for i, k := range keys {
		if err := q.join(ctx, k); err != nil {
			q.leave(keys[:i])
			return fmt.Errorf("waiting behind other callers of the key: %w", err)
		}
	}
	return nil
}

// acquireRef returns the key's lock, which exists until all its callers have released it.
func (q *keyLocks) acquireRef(k digest) *keyLock {
	part := q.lockPart(k)
	defer part.mu.Unlock()
	if part.locks == nil {
		part.locks = map[digest]*keyLock{}
	}
	lock := part.locks[k]
	if lock == nil {
		lock = &keyLock{turn: make(chan struct{}, 1)}
		part.locks[k] = lock
	}
	lock.callers++
	return lock
}

func (q *keyLocks) releaseRef(k digest, lock *keyLock) {
	part := q.lockPart(k)
	defer part.mu.Unlock()
	if lock.callers--; lock.callers == 0 {
		delete(part.locks, k)
	}
}

func (q *keyLocks) join(ctx context.Context, k digest) error {
	lock := q.acquireRef(k)
	select {
	case lock.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		q.releaseRef(k, lock)
		return ctx.Err()
	}
}

// leave unlocks the keys.
func (q *keyLocks) leave(keys []digest) {
	for _, k := range keys {
		part := q.lockPart(k)
		lock := part.locks[k]
		part.mu.Unlock()
		<-lock.turn
		q.releaseRef(k, lock)
	}
}

// joinBatch adds a call to those that wait for a batch. It reports whether the caller must start a helper.
func (q *keyLocks) joinBatch(k digest, lock *keyLock, c *call) (first bool) {
	part := q.lockPart(k)
	defer part.mu.Unlock()
	lock.waiting = append(lock.waiting, c)
	first = !lock.worked
	lock.worked = true
	if first {
		lock.callers++ // for the helper
	}
	return first
}

// next removes and returns waiting calls. If there are none, the helper must end.
func (q *keyLocks) next(k digest, lock *keyLock, maxCalls int) []*call {
	part := q.lockPart(k)
	defer part.mu.Unlock()
	n := min(len(lock.waiting), maxCalls)
	if n == 0 {
		lock.worked = false
		return nil
	}
	calls := slices.Clone(lock.waiting[:n])
	lock.waiting = slices.Delete(lock.waiting, 0, n)
	return calls
}

// withdraw removes a call that is not in a batch yet.
func (q *keyLocks) withdraw(k digest, lock *keyLock, c *call) {
	part := q.lockPart(k)
	defer part.mu.Unlock()
	lock.waiting = slices.DeleteFunc(lock.waiting, func(w *call) bool { return w == c })
}
