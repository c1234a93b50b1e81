package queue

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// entry is an item of the index. The mutex of the index guards it.
type entry struct {
	id  string
	seq uint64 // sequence number of the message of the item
	itemHeader

	state    State
	stateSeq uint64 // sequence number of the last state; 0: none
	attempts int
	changed  time.Time
	err      string

	notBefore     time.Time // earliest next attempt
	expiry        time.Time
	claimedBefore bool // another process claimed it and may have written its result: check before the delivery
	phase         phase
	heapIndex     int // index in heap
	heap          *entries
}

// phase is the current activity of this process for an item.
type phase uint8

const (
	idle          phase = iota
	checkingLimit       // checking its limits
	delivering          // delivering it
)

// subqueue contains the items of one rule and key.
type subqueue struct {
	name          subqueueID
	ready         entries   // by sequence number
	later         entries   // by notBefore; empty for an ordered subqueue
	checkingLimit bool      // the limits of one item are being checked
	delivering    int       // number of items being delivered by this process
	blockedUntil  time.Time // earliest next check of its limits
	roomExpected  time.Time // time at which the rules expect room
	lastServed    time.Time // the subqueue served longest ago is next
	dueAt         time.Time // time of the next action
	heapIndex     int       // index in the heap of subqueues; -1: no action
}

type subqueueID struct {
	rule, key string
	ordered   bool
}

// scheduler selects the next item to deliver. It has no clock: callers pass the time.
type scheduler struct {
	all            map[subqueueID]*subqueue
	due            dueHeap
	maxPerSubqueue int  // maximum concurrent deliveries per subqueue
	shared         bool // other instances use the same subqueues: choose randomly among the first items
}

func newScheduler(max int, wide bool) *scheduler {
	return &scheduler{all: make(map[subqueueID]*subqueue), maxPerSubqueue: max, shared: wide}
}

// candidateCount is the number of items among which an instance of a shared queue chooses.
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

// add adds an item to its subqueue.
func (l *scheduler) add(e *entry) {
	sq := l.of(e)
	if !e.ordered && !e.notBefore.IsZero() {
		heap.Push(&sq.later, e)
	} else {
		heap.Push(&sq.ready, e)
	}
	l.update(sq)
}

// remove removes an item that is not assigned to a worker.
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

// pop returns the item to deliver now, or nil and the time of the next call; zero if there is none.
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

// onStart is called when a popped item is admitted. Then the limits of the next item of the subqueue may be checked.
func (l *scheduler) onStart(e *entry) {
	if e.phase == checkingLimit {
		l.of(e).checkingLimit = false
		l.countDelivering(e)
	}
}

// release ends the activity for an item. To deliver it again, add it.
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

// reschedule returns an item that did not start. The limits of its subqueue are not checked before limited, and the rules expect
// room at room.
func (l *scheduler) reschedule(e *entry, limited, room time.Time) {
	l.release(e)
	l.add(e) // may create the subqueue again
	sq := l.of(e)
	if limited.After(sq.blockedUntil) {
		sq.blockedUntil, sq.roomExpected = limited, room
	}
	l.update(sq)
}

// update computes the time of the next action of a subqueue.
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

// next returns the time of the next action, and reports whether there is one.
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

// dueHeap is a heap of subqueues by dueAt.
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
