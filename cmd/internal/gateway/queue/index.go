package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// index is an in-memory view of all items, built from the streams. It may lag; correctness comes from compare-and-swap writes to
// the state stream, never from the index.
type index struct {
	q  *Queue
	mu sync.Mutex // guards the following
	// all are the items by id.
	all map[string]*entry
	// unread are the IDs of unreadable items.
	unread map[string]struct{}
	// orphanStates are states whose items were not received yet.
	orphanStates map[string]orphanState
	// removed are removed items, stored while streams may still deliver messages of them.
	removed   map[string]time.Time
	scheduler *scheduler
	// expiry is the earliest expiry of the queued items; zero: none.
	expiry time.Time
	// pendingPuts are items that are being written, or were written and not received yet.
	pendingPuts       map[string]subqueueID
	pendingBySubqueue map[subqueueID]int // number of pending puts by subqueue
	shares            shares
}

// removedTTL is the maximum lag of a stream.
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

// itemHeaderField is the name of the message header with the encrypted itemHeader.
const itemHeaderField = "Sluice-Outline"

// follow reads all existing messages and starts consuming new ones.
func (s *session) follow(ctx context.Context, q *Queue) error {
	err := s.watch(ctx, q, s.states, false, func(id string, seq uint64, m jetstream.Msg) error {
		r, err := q.cipher.openState(m.Subject(), m.Data())
		if err == nil {
			s.index.onState(id, seq, &r)
		}
		return err
	})
	if err != nil {
		return err
	}
	err = s.watch(ctx, q, s.items, true, func(id string, seq uint64, m jetstream.Msg) error {
		s.itemsReceived.Add(1)
		o, err := q.cipher.openHeader(m.Subject(), m.Headers().Get(itemHeaderField))
		if err == nil {
			s.index.onItem(id, seq, o)
		} else {
			s.index.onUnreadable(id)
		}
		return err
	})
	if err != nil || !q.shared() {
		return err
	}
	_, err = s.conn.Subscribe(q.subject("finished", "*"), func(m *nats.Msg) {
		s.index.drop(idOf(m.Subject))
	})
	return err
}

// watch calls see for each message of a stream, and returns when all existing messages were seen.
func (s *session) watch(ctx context.Context, q *Queue, of jetstream.Stream, headers bool, see func(id string, seq uint64, m jetstream.Msg) error) error {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	consumer, err := of.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{HeadersOnly: headers})
	if err != nil {
		return wrap(err)
	}
	var seen atomic.Uint64
	caught := make(chan struct{}, 1)
	watch, err := consumer.Consume(func(m jetstream.Msg) {
		meta, err := m.Metadata()
		if err != nil {
			return
		}
		if err := see(idOf(m.Subject()), meta.Sequence.Stream, m); err != nil {
			q.log.Error("queue item unreadable: skipped", "queue_item", idOf(m.Subject()), "error", err)
		}
		seen.Store(meta.Sequence.Stream)
		if meta.NumPending == 0 {
			select {
			case caught <- struct{}{}:
			default:
			}
		}
	}, jetstream.PullMaxMessages(1000))
	if err != nil {
		return wrap(err)
	}
	s.watches = append(s.watches, watch)
	info, err := of.Info(ctx)
	if err != nil {
		return wrap(err)
	}
	if info.State.Msgs == 0 {
		return nil
	}
	return awaitLast(ctx, of, &seen, caught)
}

// awaitLast returns when the last message of the stream was seen. It polls the stream, because the last message may have been
// removed or be unreadable and is then never delivered.
func awaitLast(ctx context.Context, of jetstream.Stream, seen *atomic.Uint64, caught <-chan struct{}) error {
	ask := time.NewTicker(time.Second / 4)
	defer ask.Stop()
	for {
		select {
		case <-caught:
			return nil
		case <-ask.C:
			next := seen.Load() + 1
			info, err := of.Info(ctx)
			if err == nil && info.State.Msgs > 0 && next <= info.State.LastSeq {
				_, err = of.GetMsg(ctx, next, jetstream.WithGetMsgSubject(">"))
				if !errors.Is(err, jetstream.ErrMsgNotFound) {
					continue
				}
				err = nil
			}
			if err == nil {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("queue: reading the stored items took longer than %v", loadTimeout)
		}
	}
}

// loadTimeout is the maximum time for reading all items.
const loadTimeout = 5 * time.Minute

// onItem is called for each item, in order.
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

// onUnreadable is called for an unreadable item.
func (x *index) onUnreadable(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.unread[id] = struct{}{}
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
		if seq > x.orphanStates[id].stateSeq {
			x.orphanStates[id] = orphanState{seq, *r}
		}
	case seq <= e.stateSeq || e.phase != idle: // written by this process, or detected by its next write
	default:
		x.scheduler.remove(e)
		e.stateSeq = seq
		x.apply(e, r)
	}
}

// apply applies a state to an item.
func (x *index) apply(e *entry, r *itemState) {
	e.state, e.attempts, e.changed, e.err, e.notBefore = r.state, r.attempts, r.changed, r.err, r.next
	if !r.expires.IsZero() {
		e.expiry = r.expires
	}
	if r.state == Delivering || r.state == Cancelled {
		// The process that claimed it may have crashed; then the claim expires. Without a shared queue it was this process before
		// a restart.
		e.claimedBefore = true
		if x.q.shared() && r.owner != x.q.owner {
			e.notBefore = time.Now().Add(x.q.cfg.ClaimTTL)
		}
	}
	x.place(e)
}

// place adds an item to the scheduler if it is to be delivered.
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

// expires records the expiry of a queued item, which may be long before its next attempt.
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

// announce records that an item is being written, so that later items do not overtake it. It reports whether the share of its
// key has room for it.
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

// withdraw records that writing an item failed.
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

// hasPending reports whether a subqueue contains items that are not done.
func (x *index) hasPending(name subqueueID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.scheduler.all[name] != nil || x.pendingBySubqueue[name] > 0
}

// pop returns the next item to deliver, or the time of the next call.
func (x *index) pop(now time.Time) (*activeDelivery, time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, next := x.scheduler.pop(now)
	if e == nil {
		return nil, next
	}
	return x.deliveryOf(e), time.Time{}
}

// claim takes an item without attempts out of the scheduler. It returns nil if there is none.
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

// reschedule returns an item that did not start to the scheduler. Its next attempt is not before notBefore, that of its whole
// subqueue not before limited, and the rules expect room at room.
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

// finish applies the final state of a delivery.
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

// drop removes an item from the index.
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

func (x *index) count(c *Counts, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.all {
		c.Bytes += int64(e.size)
		switch e.state {
		case Dead:
			c.Dead++
			continue
		case Delivering:
			c.Delivering++
		default:
			c.Queued++
		}
		c.Oldest = max(c.Oldest, now.Sub(e.accepted))
	}
}

// len returns the number of items, unreadable ones included.
func (x *index) len() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.all) + len(x.unread)
}
