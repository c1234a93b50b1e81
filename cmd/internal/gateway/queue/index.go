package queue

import (
	"maps"
	"sync"
	"time"
)

// index is what a process knows of all items. It follows the streams, and so may be late: what counts is decided by writing
// a state over the one that was read.
type index struct {
	q  *Queue
	mu sync.Mutex // guards the following
	// all are the items by id.
	all map[string]*entry
	// unread are items that cannot be read.
	unread map[string]struct{}
	// orphanStates are states whose items were not seen yet.
	orphanStates map[string]orphanState
	// removed are items that are no more, for as long as streams may still tell of them.
	removed   map[string]time.Time
	scheduler *scheduler
	// expiry is when the first of the queued items expires. Zero: there is none
	expiry time.Time
	// pendingPuts are items that are being written, or have been and were not seen yet.
	pendingPuts       map[string]subqueueID
	pendingBySubqueue map[subqueueID]int // how many of a subqueue are coming
	shares            shares
}

// removedTTL is how late a stream may be.
const removedTTL = time.Minute

type orphanState struct {
	stateSeq uint64
	itemState
}

func newIndex(q *Queue) *index {
	return &index{
		q: q, all: make(map[string]*entry), unread: make(map[string]struct{}), orphanStates: make(map[string]orphanState), removed: make(map[string]time.Time),
		pendingPuts: make(map[string]subqueueID), pendingBySubqueue: make(map[subqueueID]int),
		scheduler: newScheduler(max(1, q.cfg.Workers/2), q.shared()),
		shares:    newShares(q.cfg.MaxKeyCount, q.cfg.MaxKeyBytes),
	}
}

// onItem is called for each item, in their order.
func (x *index) onItem(id string, seq uint64, o itemHeader) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.clearPendingPut(id)
	if _, removed := x.removed[id]; removed || x.all[id] != nil {
		x.shares.withdraw(id)
		return
	}
	x.shares.add(id, &o)
	e := &entry{id: id, seq: seq, itemHeader: o, state: Queued, expiry: o.expires}
	x.all[id] = e
	if s, ok := x.orphanStates[id]; ok {
		delete(x.orphanStates, id)
		e.stateSeq = s.stateSeq
		x.apply(e, &s.itemState)
	} else {
		x.place(e)
	}
}

// announce says that an item is being written: who comes after it must not overtake it. It reports whether its key has
// room for it.
func (x *index) announce(id string, o *itemHeader) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.shares.reserve(id, o) {
		return false
	}
	if !o.ordered {
		return true
	}
	name := subqueueID{o.rule, o.key, true}
	x.pendingPuts[id] = name
	x.pendingBySubqueue[name]++
	return true
}

// withdraw says that an item could not be written.
func (x *index) withdraw(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.clearPendingPut(id)
	x.shares.withdraw(id)
}

// clearPendingPut ends the put that announce began.
func (x *index) clearPendingPut(id string) {
	name, ok := x.pendingPuts[id]
	if !ok {
		return
	}
	delete(x.pendingPuts, id)
	if x.pendingBySubqueue[name]--; x.pendingBySubqueue[name] == 0 {
		delete(x.pendingBySubqueue, name)
	}
}

// len is how many items are known, those that cannot be read included.
func (x *index) len() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.all) + len(x.unread)
}

// onUnreadable is called for an item that cannot be read.
func (x *index) onUnreadable(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.unread[id] = struct{}{}
}

// hasPending reports whether a subqueue has items that are not done.
func (x *index) hasPending(name subqueueID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.scheduler.all[name] != nil || x.pendingBySubqueue[name] > 0
}

// onState is called for each state.
func (x *index) onState(id string, seq uint64, r *itemState) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.all[id]
	_, removed := x.removed[id]
	switch {
	case removed:
	case e == nil:
		x.orphanStates[id] = orphanState{seq, *r}
	case seq <= e.stateSeq || e.phase != idle: // written by this process; or it will find out when it writes
	default:
		x.scheduler.remove(e)
		e.stateSeq = seq
		x.apply(e, r)
	}
}

// apply takes over a state.
func (x *index) apply(e *entry, r *itemState) {
	e.state, e.attempts, e.changed, e.err, e.notBefore = r.state, r.attempts, r.changed, r.err, r.next
	if !r.expires.IsZero() {
		e.expiry = r.expires
	}
	if r.state == Delivering || r.state == Cancelled {
		// Whoever does it may be gone. Whether they are shows when they do not say for a while that they are there; where
		// nobody else can be, it was this process before it ended.
		e.claimedBefore = true
		if x.q.shared() && r.owner != x.q.owner {
			e.notBefore = time.Now().Add(x.q.cfg.ClaimTTL)
		}
	}
	x.place(e)
}

// expires notes when a queued item expires, though its turn may be long after.
func (x *index) expires(e *entry) {
	if e.state != Queued || !x.expiry.IsZero() && !e.expiry.Before(x.expiry) {
		return
	}
	x.expiry = e.expiry
	select {
	case x.q.sooner <- struct{}{}:
	default:
	}
}

// firstExpiry is when the first of the queued items expires, or zero.
func (x *index) firstExpiry() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.expiry
}

// place puts an item where it is tried, unless it is not to be.
func (x *index) place(e *entry) {
	x.expires(e)
	switch {
	case e.state == Dead:
	case x.q.isDelivering(e.id):
		x.scheduler.countDelivering(e)
	default:
		x.scheduler.add(e)
	}
	x.q.wake()
}

// pop gives the next item to try.
func (x *index) pop(now time.Time) (*activeDelivery, time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, next := x.scheduler.pop(now)
	if e == nil {
		return nil, next
	}
	return x.deliveryOf(e), time.Time{}
}

func (x *index) deliveryOf(e *entry) *activeDelivery {
	a := &activeDelivery{
		q: x.q, id: e.id, itemSeq: e.seq, itemHeader: e.itemHeader, stateSeq: e.stateSeq, attempts: e.attempts, state: e.state, claimedBefore: e.claimedBefore,
		expiry: e.expiry,
	}
	x.q.addDelivery(a)
	return a
}

// onStart is called when the delivery of an item starts.
func (x *index) onStart(a *activeDelivery) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.all[a.id]; e != nil {
		e.state, e.stateSeq, e.attempts, e.changed, e.claimedBefore = Delivering, a.stateSeq, a.attempts, time.Now(), false
		x.scheduler.onStart(e)
		x.q.wake()
	}
}

// reschedule returns an item that did not start: not before a time, and its whole subqueue not before another; there may be
// room for it when a third has come.
func (x *index) reschedule(a *activeDelivery, notBefore, limited, room time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.q.removeDelivery(a)
	if e := x.all[a.id]; e != nil {
		e.notBefore = notBefore
		x.scheduler.reschedule(e, limited, room)
		x.expires(e)
		x.q.wake()
	}
}

// finish applies the state that a delivery ended with.
func (x *index) finish(a *activeDelivery, seq uint64, r *itemState) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.q.removeDelivery(a)
	if e := x.all[a.id]; e != nil {
		x.scheduler.remove(e)
		x.scheduler.release(e)
		e.stateSeq = seq
		x.apply(e, r)
	}
}

// drop forgets an item that is no more.
func (x *index) drop(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.orphanStates, id)
	x.removed[id] = time.Now()
	x.shares.withdraw(id)
	if e := x.all[id]; e != nil {
		x.shares.remove(&e.itemHeader)
		delete(x.all, id)
		x.scheduler.remove(e)
		x.scheduler.release(e)
		x.q.wake()
	}
}

// tidy forgets what the streams will not tell of any more.
func (x *index) tidy(now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.removed, func(_ string, at time.Time) bool { return now.Sub(at) > removedTTL })
}

// overdue are items that nobody tries and whose time is over: those that wait, and those that are dead.
func (x *index) overdue(now time.Time) (expired, forgotten []*activeDelivery) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.expiry = time.Time{}
	for _, e := range x.all {
		switch {
		case e.phase != idle: // it is looked at when it is back
		case e.state == Queued && !e.expiry.After(now):
			x.scheduler.remove(e)
			expired = append(expired, x.deliveryOf(e))
		case e.state == Queued:
			if x.expiry.IsZero() || e.expiry.Before(x.expiry) {
				x.expiry = e.expiry
			}
		case e.state == Dead && x.q.cfg.DeadLetterTTL > 0 && e.changed.Add(x.q.cfg.DeadLetterTTL).Before(now):
			forgotten = append(forgotten, x.deliveryOf(e))
		}
	}
	return expired, forgotten
}

// claim takes an item that was never tried, or returns nil.
func (x *index) claim(id string) *activeDelivery {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.all[id]
	if e == nil || e.phase != idle || e.stateSeq != 0 {
		return nil
	}
	x.scheduler.remove(e)
	return x.deliveryOf(e)
}

// orphanedStates are states without items: left by a process that ended while removing them.
func (x *index) orphanedStates() map[string]uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make(map[string]uint64, len(x.orphanStates))
	for id, s := range x.orphanStates {
		out[id] = s.stateSeq
	}
	return out
}
