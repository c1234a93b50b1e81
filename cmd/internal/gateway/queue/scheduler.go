package queue

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// entry is an item as this process knows it. The index's mutex guards it.
type entry struct {
	id  string
	seq uint64 // of the item's message: its order
	itemHeader

	state    State
	stateSeq uint64 // of the state that was read last; 0: there is none
	attempts int
	changed  time.Time
	err      string

	notBefore     time.Time // of the next try
	expiry        time.Time
	claimedBefore bool // others began it, and may have written its result: look before delivering
	phase         phase
	heapIndex     int // in the heap that holds it
	heap          *entries
}

// phase is what this process does with an item.
type phase uint8

const (
	idle          phase = iota
	checkingLimit       // its limits are checked
	delivering          // it is delivered
)

// subqueue is the items of one rule and key.
type subqueue struct {
	name          subqueueID
	ready         entries   // by order
	later         entries   // by time; those of an ordered subqueue are all in ready
	checkingLimit bool      // the limits of one item are checked
	delivering    int       // number of items that this process delivers
	blockedUntil  time.Time // its limits are not checked before
	roomExpected  time.Time // when the rules expect room
	lastServed    time.Time // the one that waited longest is next
	dueAt         time.Time // when there is something to do
	heapIndex     int       // in the heap of subqueues; -1: nothing to do
}

type subqueueID struct {
	rule, key string
	ordered   bool
}

// scheduler decides which item is tried next. It has no clock: callers pass the time.
type scheduler struct {
	all            map[subqueueID]*subqueue
	due            dueHeap
	maxPerSubqueue int  // deliveries of one subqueue at a time
	shared         bool // other instances take from the same subqueues: do not all take the first
}

func newScheduler(max int, wide bool) *scheduler {
	return &scheduler{all: make(map[subqueueID]*subqueue), maxPerSubqueue: max, shared: wide}
}

// candidateCount is among how many items an instance chooses when others do so too.
const candidateCount = 8

func (l *scheduler) of(e *entry) *subqueue {
	name := subqueueID{e.rule, e.key, e.ordered}
	sq := l.all[name]
	if sq == nil {
		sq = &subqueue{name: name, heapIndex: -1, later: entries{byTime: true}}
		l.all[name] = sq
	}
	return sq
}

// add puts an item in its subqueue, to be tried when its time has come.
func (l *scheduler) add(e *entry) {
	sq := l.of(e)
	if !e.ordered && !e.notBefore.IsZero() {
		heap.Push(&sq.later, e)
	} else {
		heap.Push(&sq.ready, e)
	}
	l.update(sq)
}

// remove takes an item out that no worker has.
func (l *scheduler) remove(e *entry) {
	if e.heap == nil {
		return
	}
	heap.Remove(e.heap, e.heapIndex)
	l.update(l.of(e))
}

// countDelivering counts an item that is being delivered.
func (l *scheduler) countDelivering(e *entry) {
	sq := l.of(e)
	e.phase = delivering
	sq.delivering++
	l.update(sq)
}

// pop returns the item to try now, or when to ask again; zero if nothing is known to come.
func (l *scheduler) pop(now time.Time) (e *entry, next time.Time) {
	for len(l.due) > 0 {
		sq := l.due[0]
		if sq.dueAt.After(now) {
			return nil, sq.dueAt
		}
		for len(sq.later.list) > 0 && !sq.later.list[0].notBefore.After(now) {
			heap.Push(&sq.ready, heap.Pop(&sq.later))
		}
		if len(sq.ready.list) == 0 {
			l.update(sq)
			continue
		}
		which := 0
		if l.shared && !sq.name.ordered {
			which = rand.IntN(min(candidateCount, len(sq.ready.list)))
		}
		e = heap.Remove(&sq.ready, which).(*entry)
		sq.checkingLimit, e.phase = true, checkingLimit
		sq.lastServed = now
		l.update(sq)
		return e, time.Time{}
	}
	return nil, time.Time{}
}

// onStart is called when a popped item is admitted: the next of its subqueue may try.
func (l *scheduler) onStart(e *entry) {
	if e.phase == checkingLimit {
		l.of(e).checkingLimit = false
		l.countDelivering(e)
	}
}

// release says that an item is neither tried nor delivered any more. Who wants it tried again adds it.
func (l *scheduler) release(e *entry) {
	sq := l.of(e)
	switch e.phase {
	case checkingLimit:
		sq.checkingLimit = false
	case delivering:
		sq.delivering--
	}
	e.phase = idle
	l.update(sq)
}

// reschedule returns an item that did not start. The limits of its subqueue are not checked before blockedUntil, and may have room later.
func (l *scheduler) reschedule(e *entry, limited, room time.Time) {
	l.release(e)
	l.add(e) // a subqueue that was empty for a moment is a new one
	sq := l.of(e)
	if limited.After(sq.blockedUntil) {
		sq.blockedUntil, sq.roomExpected = limited, room
	}
	l.update(sq)
}

// update computes when a subqueue is due.
func (l *scheduler) update(sq *subqueue) {
	at, ok := sq.next(l.maxPerSubqueue)
	switch {
	case !ok && sq.heapIndex >= 0:
		heap.Remove(&l.due, sq.heapIndex)
		sq.heapIndex = -1
	case ok && sq.heapIndex >= 0:
		sq.dueAt = at
		heap.Fix(&l.due, sq.heapIndex)
	case ok:
		sq.dueAt = at
		heap.Push(&l.due, sq)
	}
	if !sq.checkingLimit && sq.delivering == 0 && len(sq.ready.list) == 0 && len(sq.later.list) == 0 {
		delete(l.all, sq.name)
	}
}

// next is when a subqueue has something to do, if it has.
func (sq *subqueue) next(max int) (time.Time, bool) {
	if sq.checkingLimit || sq.delivering >= max || sq.name.ordered && sq.delivering > 0 {
		return time.Time{}, false
	}
	var first time.Time
	switch {
	case len(sq.ready.list) > 0 && sq.name.ordered:
		first = sq.ready.list[0].notBefore
	case len(sq.ready.list) > 0:
	case len(sq.later.list) > 0:
		first = sq.later.list[0].notBefore
	default:
		return time.Time{}, false
	}
	for _, t := range []time.Time{sq.blockedUntil, sq.lastServed} {
		if first.Before(t) {
			first = t
		}
	}
	return first, true
}

// entries is a heap of items.
type entries struct {
	list   []*entry
	byTime bool
}

func (h *entries) Len() int { return len(h.list) }

func (h *entries) Less(i, j int) bool {
	a, b := h.list[i], h.list[j]
	if h.byTime && !a.notBefore.Equal(b.notBefore) {
		return a.notBefore.Before(b.notBefore)
	}
	return a.seq < b.seq
}

func (h *entries) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	h.list[i].heapIndex, h.list[j].heapIndex = i, j
}

func (h *entries) Push(x any) {
	e := x.(*entry)
	e.heapIndex, e.heap = len(h.list), h
	h.list = append(h.list, e)
}

func (h *entries) Pop() any {
	last := len(h.list) - 1
	e := h.list[last]
	h.list[last], h.list = nil, h.list[:last]
	e.heap = nil
	return e
}

// dueHeap is a heap of subqueues by time.
type dueHeap []*subqueue

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].dueAt.Before(h[j].dueAt) }

func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapIndex, h[j].heapIndex = i, j
}

func (h *dueHeap) Push(x any) {
	sq := x.(*subqueue)
	sq.heapIndex = len(*h)
	*h = append(*h, sq)
}

func (h *dueHeap) Pop() any {
	old := *h
	last := len(old) - 1
	sq := old[last]
	old[last], *h = nil, old[:last]
	sq.heapIndex = -1
	return sq
}
