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
	// early are states whose items were not seen yet.
	early map[string]early
	// gone are items that are no more, for as long as streams may still tell of them.
	gone  map[string]time.Time
	lanes *lanes
	// expiry is when the first of the queued items expires. Zero: there is none
	expiry time.Time
	// coming are items that are being written, or have been and were not seen yet.
	coming map[string]laneName
	queued map[laneName]int // how many of a lane are coming
	shares shares
}

// goneFor is how late a stream may be.
const goneFor = time.Minute

type early struct {
	seq uint64
	record
}

func newIndex(q *Queue) *index {
	return &index{
		q: q, all: make(map[string]*entry), unread: make(map[string]struct{}), early: make(map[string]early), gone: make(map[string]time.Time),
		coming: make(map[string]laneName), queued: make(map[laneName]int),
		lanes:  newLanes(max(1, q.cfg.Workers/2), q.shared()),
		shares: newShares(q.cfg.MaxKeyCount, q.cfg.MaxKeyBytes),
	}
}

// sawItem is called for each item, in their order.
func (x *index) sawItem(id string, seq uint64, o outline) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.came(id)
	if _, gone := x.gone[id]; gone || x.all[id] != nil {
		x.shares.withdraw(id)
		return
	}
	x.shares.add(id, &o)
	e := &entry{id: id, seq: seq, outline: o, state: Queued, expiry: o.expires}
	x.all[id] = e
	if s, ok := x.early[id]; ok {
		delete(x.early, id)
		e.stateSeq = s.seq
		x.apply(e, &s.record)
	} else {
		x.place(e)
	}
}

// announce says that an item is being written: who comes after it must not overtake it. It reports whether its key has
// room for it.
func (x *index) announce(id string, o *outline) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.shares.reserve(id, o) {
		return false
	}
	if !o.ordered {
		return true
	}
	name := laneName{o.rule, o.key, true}
	x.coming[id] = name
	x.queued[name]++
	return true
}

// withdraw says that an item could not be written.
func (x *index) withdraw(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.came(id)
	x.shares.withdraw(id)
}

// came ends what announce began.
func (x *index) came(id string) {
	name, ok := x.coming[id]
	if !ok {
		return
	}
	delete(x.coming, id)
	if x.queued[name]--; x.queued[name] == 0 {
		delete(x.queued, name)
	}
}

// len is how many items are known, those that cannot be read included.
func (x *index) len() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.all) + len(x.unread)
}

// sawUnreadable is called for an item that cannot be read.
func (x *index) sawUnreadable(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.unread[id] = struct{}{}
}

// waiting tells whether a lane has items that are not done.
func (x *index) waiting(name laneName) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.lanes.all[name] != nil || x.queued[name] > 0
}

// sawState is called for each state.
func (x *index) sawState(id string, seq uint64, r *record) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.all[id]
	_, gone := x.gone[id]
	switch {
	case gone:
	case e == nil:
		x.early[id] = early{seq, *r}
	case seq <= e.stateSeq || e.phase != idle: // written by this process; or it will find out when it writes
	default:
		x.lanes.remove(e)
		e.stateSeq = seq
		x.apply(e, r)
	}
}

// apply takes over a state.
func (x *index) apply(e *entry, r *record) {
	e.state, e.attempts, e.changed, e.err, e.notBefore = r.state, r.attempts, r.changed, r.err, r.next
	if !r.expires.IsZero() {
		e.expiry = r.expires
	}
	if r.state == Delivering || r.state == Cancelled {
		// Whoever does it may be gone. Whether they are shows when they do not say for a while that they are there; where
		// nobody else can be, it was this process before it ended.
		e.taken = true
		if x.q.shared() && r.owner != x.q.owner {
			e.notBefore = time.Now().Add(x.q.cfg.Lease)
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
	case x.q.isFlying(e.id):
		x.lanes.adopt(e)
	default:
		x.lanes.add(e)
	}
	x.q.wake()
}

// pop gives the next item to try.
func (x *index) pop(now time.Time) (*flight, time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, next := x.lanes.pop(now)
	if e == nil {
		return nil, next
	}
	return x.flight(e), time.Time{}
}

func (x *index) flight(e *entry) *flight {
	f := &flight{
		q: x.q, id: e.id, seq: e.seq, outline: e.outline, stateSeq: e.stateSeq, attempts: e.attempts, state: e.state, taken: e.taken,
		expiry: e.expiry,
	}
	x.q.setFlying(f)
	return f
}

// begun says that an item is being delivered.
func (x *index) begun(f *flight) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.all[f.id]; e != nil {
		e.state, e.stateSeq, e.attempts, e.changed, e.taken = Delivering, f.stateSeq, f.attempts, time.Now(), false
		x.lanes.begun(e)
		x.q.wake()
	}
}

// back has an item tried again that did not begin: not before a time, and its whole lane not before another; there may be
// room for it when a third has come.
func (x *index) back(f *flight, notBefore, limited, room time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.q.landed(f)
	if e := x.all[f.id]; e != nil {
		e.notBefore = notBefore
		x.lanes.back(e, limited, room)
		x.expires(e)
		x.q.wake()
	}
}

// settle takes over the state that a flight ended with.
func (x *index) settle(f *flight, seq uint64, r *record) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.q.landed(f)
	if e := x.all[f.id]; e != nil {
		x.lanes.remove(e)
		x.lanes.release(e)
		e.stateSeq = seq
		x.apply(e, r)
	}
}

// drop forgets an item that is no more.
func (x *index) drop(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.early, id)
	x.gone[id] = time.Now()
	x.shares.withdraw(id)
	if e := x.all[id]; e != nil {
		x.shares.remove(&e.outline)
		delete(x.all, id)
		x.lanes.remove(e)
		x.lanes.release(e)
		x.q.wake()
	}
}

// tidy forgets what the streams will not tell of any more.
func (x *index) tidy(now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.gone, func(_ string, at time.Time) bool { return now.Sub(at) > goneFor })
}

// overdue are items that nobody tries and whose time is over: those that wait, and those that are dead.
func (x *index) overdue(now time.Time) (expired, forgotten []*flight) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.expiry = time.Time{}
	for _, e := range x.all {
		switch {
		case e.phase != idle: // it is looked at when it is back
		case e.state == Queued && !e.expiry.After(now):
			x.lanes.remove(e)
			expired = append(expired, x.flight(e))
		case e.state == Queued:
			if x.expiry.IsZero() || e.expiry.Before(x.expiry) {
				x.expiry = e.expiry
			}
		case e.state == Dead && x.q.cfg.KeepDead > 0 && e.changed.Add(x.q.cfg.KeepDead).Before(now):
			forgotten = append(forgotten, x.flight(e))
		}
	}
	return expired, forgotten
}

// claim takes an item that was never tried, or returns nil.
func (x *index) claim(id string) *flight {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.all[id]
	if e == nil || e.phase != idle || e.stateSeq != 0 {
		return nil
	}
	x.lanes.remove(e)
	return x.flight(e)
}

// strays are states without items: left by who ended while removing them.
func (x *index) strays() map[string]uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make(map[string]uint64, len(x.early))
	for id, s := range x.early {
		out[id] = s.seq
	}
	return out
}
