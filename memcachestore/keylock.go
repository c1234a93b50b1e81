package memcachestore

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// keyLocks serializes the callers of one key in this process. If it did not, all but one of those who
// come at the same time would write in vain, and have to read again.
type keyLocks struct {
	parts [64]struct {
		mu    sync.Mutex // guards lines
		lines map[digest]*keyLock
	}
}

// keyLock is the lock of one key, and its callers.
type keyLock struct {
	turn chan struct{} // holds a token while somebody is served; the runtime serves who waits first

	// Guarded by the part's mu:
	callers int     // that hold the lock or wait for it
	waiting []*call // to be run together
	worked  bool    // somebody runs those who wait
}

// wait returns when it is the caller's turn on all keys. They are taken in order, so that callers of several keys
// never wait for each other in a circle. The keys must be different.
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

// acquireRef finds the key's lock, which stays until the caller releases it.
func (q *keyLocks) acquireRef(k digest) *keyLock {
	part := &q.parts[k[0]%64]
	part.mu.Lock()
	defer part.mu.Unlock()
	if part.lines == nil {
		part.lines = map[digest]*keyLock{}
	}
	lock := part.lines[k]
	if lock == nil {
		lock = &keyLock{turn: make(chan struct{}, 1)}
		part.lines[k] = lock
	}
	lock.callers++
	return lock
}

func (q *keyLocks) releaseRef(k digest, lock *keyLock) {
	part := &q.parts[k[0]%64]
	part.mu.Lock()
	defer part.mu.Unlock()
	if lock.callers--; lock.callers == 0 {
		delete(part.lines, k)
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

// leave lets the next callers have their turn.
func (q *keyLocks) leave(keys []digest) {
	for _, k := range keys {
		part := &q.parts[k[0]%64]
		part.mu.Lock()
		lock := part.lines[k]
		part.mu.Unlock()
		<-lock.turn
		q.releaseRef(k, lock)
	}
}

// joinBatch adds a call to those who wait to be run together. It tells whether somebody must be found to run them.
func (q *keyLocks) joinBatch(k digest, lock *keyLock, c *call) (alone bool) {
	part := &q.parts[k[0]%64]
	part.mu.Lock()
	defer part.mu.Unlock()
	lock.waiting = append(lock.waiting, c)
	alone = !lock.worked
	lock.worked = true
	if alone {
		lock.callers++ // the helper that runs them holds one too
	}
	return alone
}

// next takes those who wait, at most so many. If there are none, who runs them is done.
func (q *keyLocks) next(k digest, lock *keyLock, most int) []*call {
	part := &q.parts[k[0]%64]
	part.mu.Lock()
	defer part.mu.Unlock()
	n := min(len(lock.waiting), most)
	if n == 0 {
		lock.worked = false
		return nil
	}
	calls := slices.Clone(lock.waiting[:n])
	lock.waiting = slices.Delete(lock.waiting, 0, n)
	return calls
}

// withdraw takes back a call that has not been taken up.
func (q *keyLocks) withdraw(k digest, lock *keyLock, c *call) {
	part := &q.parts[k[0]%64]
	part.mu.Lock()
	defer part.mu.Unlock()
	lock.waiting = slices.DeleteFunc(lock.waiting, func(w *call) bool { return w == c })
}
