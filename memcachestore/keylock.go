package memcachestore

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// queue has the callers of one key in this process go one after the other. If they did not, all but one of those who
// come at the same time would write in vain, and have to read again.
type queue struct {
	parts [64]struct {
		mu    sync.Mutex // guards lines
		lines map[digest]*line
	}
}

// line is where the callers of one key wait.
type line struct {
	turn chan struct{} // holds a token while somebody is served; the runtime serves who waits first

	// Guarded by the part's mu:
	callers int     // in the line
	waiting []*call // to be run together
	worked  bool    // somebody runs those who wait
}

// wait returns when it is the caller's turn on all keys. They are taken in order, so that callers of several keys
// never wait for each other in a circle. The keys must be different.
func (q *queue) wait(ctx context.Context, keys []digest) error {
	slices.SortFunc(keys, func(a, b digest) int { return slices.Compare(a[:], b[:]) })
	for i, k := range keys {
		if err := q.join(ctx, k); err != nil {
			q.leave(keys[:i])
			return fmt.Errorf("waiting behind other callers of the key: %w", err)
		}
	}
	return nil
}

// enter finds the key's line, which stays until the caller quits it.
func (q *queue) enter(k digest) *line {
	part := &q.parts[k[0]%64]
	part.mu.Lock()
	defer part.mu.Unlock()
	if part.lines == nil {
		part.lines = map[digest]*line{}
	}
	l := part.lines[k]
	if l == nil {
		l = &line{turn: make(chan struct{}, 1)}
		part.lines[k] = l
	}
	l.callers++
	return l
}

func (q *queue) quit(k digest, l *line) {
	part := &q.parts[k[0]%64]
	part.mu.Lock()
	defer part.mu.Unlock()
	if l.callers--; l.callers == 0 {
		delete(part.lines, k)
	}
}

func (q *queue) join(ctx context.Context, k digest) error {
	l := q.enter(k)
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		q.quit(k, l)
		return ctx.Err()
	}
}

// leave lets the next callers have their turn.
func (q *queue) leave(keys []digest) {
	for _, k := range keys {
		part := &q.parts[k[0]%64]
		part.mu.Lock()
		l := part.lines[k]
		part.mu.Unlock()
		<-l.turn
		q.quit(k, l)
	}
}

// await adds a call to those who wait to be run together. It tells whether somebody must be found to run them.
func (q *queue) await(k digest, l *line, c *call) (alone bool) {
	part := &q.parts[k[0]%64]
	part.mu.Lock()
	defer part.mu.Unlock()
	l.waiting = append(l.waiting, c)
	alone = !l.worked
	l.worked = true
	if alone {
		l.callers++ // who runs them is in the line too
	}
	return alone
}

// next takes those who wait, at most so many. If there are none, who runs them is done.
func (q *queue) next(k digest, l *line, most int) []*call {
	part := &q.parts[k[0]%64]
	part.mu.Lock()
	defer part.mu.Unlock()
	n := min(len(l.waiting), most)
	if n == 0 {
		l.worked = false
		return nil
	}
	calls := slices.Clone(l.waiting[:n])
	l.waiting = slices.Delete(l.waiting, 0, n)
	return calls
}

// withdraw takes back a call that has not been taken up.
func (q *queue) withdraw(k digest, l *line, c *call) {
	part := &q.parts[k[0]%64]
	part.mu.Lock()
	defer part.mu.Unlock()
	l.waiting = slices.DeleteFunc(l.waiting, func(w *call) bool { return w == c })
}
