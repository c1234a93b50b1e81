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
	outline

	state    State
	stateSeq uint64 // of the state that was read last; 0: there is none
	attempts int
	changed  time.Time
	err      string

	notBefore time.Time // of the next try
	expiry    time.Time
	taken     bool // others began it, and may have written its result: look before delivering
	phase     phase
	place     int // in the heap that holds it
	in        *entries
}

// phase is what this process does with an item.
type phase uint8

const (
	idle   phase = iota
	trying       // it asks for room
	flying       // it is delivered
)

// lane is the items of one rule and key.
type lane struct {
	name    laneName
	ready   entries   // by order
	later   entries   // by time; those of an ordered lane are all in ready
	trying  bool      // one asks for room
	flying  int       // are delivered by this process
	limited time.Time // it does not ask for room before
	room    time.Time // when the rules said that there may be some
	served  time.Time // when it was last: who waits longest is next
	at      time.Time // when there is something to do
	place   int       // in the heap of lanes; -1: nothing to do
}

type laneName struct {
	rule, key string
	ordered   bool
}

// lanes decide which item is tried next. They know no clock: who calls has it.
type lanes struct {
	all  map[laneName]*lane
	due  dueLanes
	most int  // that one lane may have delivered at a time
	wide bool // others take from the same lanes: do not all take the first
}

func newLanes(most int, wide bool) *lanes {
	return &lanes{all: make(map[laneName]*lane), most: most, wide: wide}
}

// spread is among how many a process chooses when others do so too.
const spread = 8

func (l *lanes) of(e *entry) *lane {
	name := laneName{e.rule, e.key, e.ordered}
	n := l.all[name]
	if n == nil {
		n = &lane{name: name, place: -1, later: entries{byTime: true}}
		l.all[name] = n
	}
	return n
}

// add puts an item in its lane, to be tried when its time has come.
func (l *lanes) add(e *entry) {
	n := l.of(e)
	if !e.ordered && !e.notBefore.IsZero() {
		heap.Push(&n.later, e)
	} else {
		heap.Push(&n.ready, e)
	}
	l.fix(n)
}

// remove takes an item out that nobody tries.
func (l *lanes) remove(e *entry) {
	if e.in == nil {
		return
	}
	heap.Remove(e.in, e.place)
	l.fix(l.of(e))
}

// adopt counts an item that is being delivered already.
func (l *lanes) adopt(e *entry) {
	n := l.of(e)
	e.phase = flying
	n.flying++
	l.fix(n)
}

// pop returns the item to try now, or when to ask again; zero if nothing is known to come.
func (l *lanes) pop(now time.Time) (e *entry, next time.Time) {
	for len(l.due) > 0 {
		n := l.due[0]
		if n.at.After(now) {
			return nil, n.at
		}
		for len(n.later.list) > 0 && !n.later.list[0].notBefore.After(now) {
			heap.Push(&n.ready, heap.Pop(&n.later))
		}
		if len(n.ready.list) == 0 {
			l.fix(n)
			continue
		}
		which := 0
		if l.wide && !n.name.ordered {
			which = rand.IntN(min(spread, len(n.ready.list)))
		}
		e = heap.Remove(&n.ready, which).(*entry)
		n.trying, e.phase = true, trying
		n.served = now
		l.fix(n)
		return e, time.Time{}
	}
	return nil, time.Time{}
}

// begun says that an item that was popped is admitted: the next of its lane may try.
func (l *lanes) begun(e *entry) {
	if e.phase == trying {
		l.of(e).trying = false
		l.adopt(e)
	}
}

// release says that an item is neither tried nor delivered any more. Who wants it tried again adds it.
func (l *lanes) release(e *entry) {
	n := l.of(e)
	switch e.phase {
	case trying:
		n.trying = false
	case flying:
		n.flying--
	}
	e.phase = idle
	l.fix(n)
}

// back has an item tried again that did not begin. Its lane does not ask for room before a time, and may find some later.
func (l *lanes) back(e *entry, limited, room time.Time) {
	l.release(e)
	l.add(e) // a lane that was empty for a moment is a new one
	n := l.of(e)
	if limited.After(n.limited) {
		n.limited, n.room = limited, room
	}
	l.fix(n)
}

// fix finds out when a lane has something to do.
func (l *lanes) fix(n *lane) {
	at, ok := n.next(l.most)
	switch {
	case !ok && n.place >= 0:
		heap.Remove(&l.due, n.place)
		n.place = -1
	case ok && n.place >= 0:
		n.at = at
		heap.Fix(&l.due, n.place)
	case ok:
		n.at = at
		heap.Push(&l.due, n)
	}
	if !n.trying && n.flying == 0 && len(n.ready.list) == 0 && len(n.later.list) == 0 {
		delete(l.all, n.name)
	}
}

// next is when a lane has something to do, if it has.
func (n *lane) next(most int) (time.Time, bool) {
	if n.trying || n.flying >= most || n.name.ordered && n.flying > 0 {
		return time.Time{}, false
	}
	var first time.Time
	switch {
	case len(n.ready.list) > 0 && n.name.ordered:
		first = n.ready.list[0].notBefore
	case len(n.ready.list) > 0:
	case len(n.later.list) > 0:
		first = n.later.list[0].notBefore
	default:
		return time.Time{}, false
	}
	for _, t := range []time.Time{n.limited, n.served} {
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
	h.list[i].place, h.list[j].place = i, j
}

func (h *entries) Push(x any) {
	e := x.(*entry)
	e.place, e.in = len(h.list), h
	h.list = append(h.list, e)
}

func (h *entries) Pop() any {
	last := len(h.list) - 1
	e := h.list[last]
	h.list[last], h.list = nil, h.list[:last]
	e.in = nil
	return e
}

// dueLanes is a heap of lanes by time.
type dueLanes []*lane

func (h dueLanes) Len() int           { return len(h) }
func (h dueLanes) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

func (h dueLanes) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *dueLanes) Push(x any) {
	n := x.(*lane)
	n.place = len(*h)
	*h = append(*h, n)
}

func (h *dueLanes) Pop() any {
	old := *h
	last := len(old) - 1
	n := old[last]
	old[last], *h = nil, old[:last]
	n.place = -1
	return n
}
