package queue

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Delivery is an item that is due, in the hands of a worker of this process. The worker calls Begin before anything is sent,
// and when it is done with the item either Later or Done, once.
type Delivery struct {
	active *activeDelivery
	item   *Item
	begin  func() error // once

	ctx      context.Context
	cancel   context.CancelFunc
	ended    chan struct{} // closed when the worker is done with it
	renewing sync.WaitGroup
}

// Next waits until an item is due, and hands it out. It fails when the context ends, or Run has ended: then nothing is
// handed out any more.
func (q *Queue) Next(ctx context.Context) (*Delivery, error) {
	if !q.handOut() {
		return nil, ErrUnavailable
	}
	for {
		a := q.next(ctx)
		if a == nil {
			q.out.Done()
			return nil, cmp.Or(context.Cause(ctx), ErrUnavailable)
		}
		if it := q.prepare(a); it != nil {
			return q.newDelivery(a, it), nil
		}
	}
}

// handOut counts what is handed out, so that Run can wait for it. It reports whether anything may be.
func (q *Queue) handOut() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ending.Load() {
		return false
	}
	q.out.Add(1)
	return true
}

// next waits for an item to try. One worker looks, the others wait behind it.
func (q *Queue) next(ctx context.Context) *activeDelivery {
	q.looking.Lock()
	defer q.looking.Unlock()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if ctx.Err() != nil || q.ending.Load() {
			return nil
		}
		wait := time.Hour
		if s := q.current.Load(); s != nil {
			a, at := s.index.pop(time.Now())
			if a != nil {
				return a
			}
			if !at.IsZero() {
				wait = time.Until(at)
			}
		}
		timer.Reset(max(wait, 0))
		select {
		case <-ctx.Done():
		case <-q.woken:
		case <-timer.C:
		}
	}
}

// prepare reads an item that is to be delivered. It deals with one that is not, and returns nil.
func (q *Queue) prepare(a *activeDelivery) *Item {
	it, err := q.load(q.work, a)
	switch {
	case errors.Is(err, ErrNotFound):
		q.announceRemoved(a)
	case errors.Is(err, ErrUnavailable):
		a.reschedule(time.Now().Add(q.cfg.MinBackoff), time.Time{}, time.Time{})
	case err != nil:
		q.deadLetter(a, err.Error(), nil)
	case a.stateSeq == 0 && q.puts.isRejected(a.id):
		q.removeOne(a)
	case a.state == Cancelled:
		q.finishRemoved(a, &itemState{state: Cancelled})
	case !a.expiry.After(time.Now()):
		q.deadLetter(a, "it was not delivered in time", nil)
	default:
		return it
	}
	return nil
}

func (q *Queue) newDelivery(a *activeDelivery, it *Item) *Delivery {
	d := &Delivery{active: a, item: it, ended: make(chan struct{})}
	d.ctx, d.cancel = context.WithTimeout(q.work, q.cfg.Timeout)
	d.begin = sync.OnceValue(d.start)
	return d
}

// Context ends when the delivery takes too long, or the process is to end and has waited for it.
func (d *Delivery) Context() context.Context { return d.ctx }

// Item is what is to be delivered.
func (d *Delivery) Item() *Item { return d.item }

// Begin writes that this process delivers the item. It is called when the rules have admitted it and before anything is
// sent; if it fails, nothing may be sent, and what Done is told does not matter.
func (d *Delivery) Begin() error { return d.begin() }

// start says from now on that this process is there, where there may be others.
func (d *Delivery) start() error {
	err := d.active.begin()
	if err == nil && d.active.q.shared() {
		d.renewing.Go(func() { d.active.renew(d.ended) })
	}
	return err
}

// Later says that there is no room for the item, and may be some after a time.
func (d *Delivery) Later(after time.Duration) { d.end(postponed, &Outcome{After: after}) }

// Done says what came of the delivery, and returns the state that the item is in then. Delivering means that another gateway
// has it.
func (d *Delivery) Done(out Outcome) State {
	ending := unanswered
	if out.Status != 0 {
		ending = answered
	}
	return d.end(ending, &out)
}

// stage is how far a delivery has got.
type stage uint8

const (
	offered   stage = iota // nothing was written
	started                // it is written that this process delivers it
	overtaken              // others took it over after it was started
	lost                   // others have it, or it was cancelled, before it could be started
	unwritten              // it could not be written that it starts
	stages
)

// ending is what a worker says of a delivery.
type ending uint8

const (
	answered ending = iota
	unanswered
	postponed // there is no room for it yet
	endings
)

// move is what is done with an item at the end of a delivery.
type move uint8

const (
	conclude         move = iota // write what came of it
	startAndConclude             // write first that this process has it
	refresh                      // find out what others did with it
	retrySoon
	awaitRoom // have its whole subqueue wait
)

// moves says what is done with an item, by how far its delivery got and how it ended.
var moves = [stages][endings]move{
	offered:   {answered: startAndConclude, unanswered: retrySoon, postponed: awaitRoom},
	started:   {answered: conclude, unanswered: conclude, postponed: conclude},
	overtaken: {answered: conclude, unanswered: refresh, postponed: refresh}, // what is delivered is delivered
	lost:      {answered: refresh, unanswered: refresh, postponed: refresh},
	unwritten: {answered: retrySoon, unanswered: retrySoon, postponed: retrySoon},
}

// end gives the item back, and returns the state that it is in then.
func (d *Delivery) end(e ending, out *Outcome) State {
	a := d.active
	q := a.q
	defer q.out.Done()
	d.cancel()
	close(d.ended)
	d.renewing.Wait()
	a.mu.Lock()
	m := moves[a.stage][e]
	a.mu.Unlock()
	switch m {
	case startAndConclude:
		if d.begin() != nil {
			q.refresh(a)
			return Delivering
		}
		return q.conclude(a, d.item, out)
	case conclude:
		return q.conclude(a, d.item, out)
	case refresh:
		q.refresh(a)
		return Delivering
	case retrySoon:
		a.reschedule(time.Now().Add(q.cfg.MinBackoff), time.Time{}, time.Time{})
	case awaitRoom:
		q.stats.denied.Add(1)
		now := time.Now()
		a.reschedule(time.Time{}, now.Add(nextLimitCheck(out.After)), now.Add(out.After))
	}
	return Queued
}

// activeDelivery is an item from when its limits are checked until its outcome is written.
type activeDelivery struct {
	q       *Queue
	id      string
	itemSeq uint64
	itemHeader
	expiry        time.Time
	state         State
	claimedBefore bool

	mu       sync.Mutex // guards the following while it is delivered
	stateSeq uint64
	attempts int
	stage    stage
}

func (q *Queue) addDelivery(a *activeDelivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.deliveries[a.id] = a
}

func (q *Queue) removeDelivery(a *activeDelivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.deliveries[a.id] == a {
		delete(q.deliveries, a.id)
	}
}

func (q *Queue) isDelivering(id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.deliveries[id] != nil
}

var errClaimed = errors.New("queue: it was cancelled, or another gateway delivers it")

// maxLimitRecheck is the longest that a subqueue waits before it asks again: an operator may have made room, or the rule have changed.
const maxLimitRecheck = 30 * time.Second

// nextLimitCheck is after how long a subqueue that was told to wait asks again: not before that time, and with jitter, so that subqueues do not
// ask all at once.
func nextLimitCheck(after time.Duration) time.Duration {
	after = min(max(after, 10*time.Millisecond), maxLimitRecheck)
	return after + rand.N(min(after/10, time.Second/4)+1)
}

func (a *activeDelivery) reschedule(notBefore, limited, room time.Time) {
	if s := a.q.current.Load(); s != nil {
		s.index.reschedule(a, notBefore, limited, room)
		return
	}
	a.q.removeDelivery(a) // the next session knows it from the stream
}

// load reads an item's content.
func (q *Queue) load(ctx context.Context, a *activeDelivery) (*Item, error) {
	s := q.current.Load()
	if s == nil {
		return nil, ErrUnavailable
	}
	if a.claimedBefore {
		if _, err := q.last(ctx, s.results, "result", a.id); err == nil {
			return nil, q.cleared(a)
		} else if !errors.Is(err, ErrNotFound) {
			return nil, err
		}
	}
	m, err := q.last(ctx, s.items, "item", a.id)
	if err != nil {
		return nil, err
	}
	b, err := q.cipher.decrypt(m.Subject, m.Data)
	if err != nil {
		return nil, err
	}
	it, err := decodeItem(b)
	if err != nil {
		return nil, err
	}
	it.Attempt = a.attempts + 1
	if it.Header == nil {
		it.Header = http.Header{}
	}
	it.Header.Set(IdempotencyHeader, it.IdempotencyKey)
	it.Header.Set(AttemptHeader, strconv.Itoa(it.Attempt))
	return it, nil
}

// cleared finishes the removal of an item that another process, or a cancellation, has begun.
func (q *Queue) cleared(a *activeDelivery) error {
	if err := q.remove(a); err != nil {
		return err
	}
	return ErrNotFound
}

// begin writes that this process delivers the item, over the state that it knows.
func (a *activeDelivery) begin() error {
	r := &itemState{state: Delivering, owner: a.q.owner, attempts: a.attempts + 1, changed: time.Now()}
	seq, err := a.q.writeState(a.id, a.stateSeq, r)
	a.mu.Lock()
	switch {
	case errors.Is(err, errClaimed):
		a.stage = lost
	case err != nil:
		a.stage = unwritten
	default:
		a.stage, a.stateSeq, a.attempts, a.claimedBefore = started, seq, r.attempts, false
	}
	a.mu.Unlock()
	if s := a.q.current.Load(); err == nil && s != nil {
		s.index.onStart(a)
	}
	return err
}

// renew says again and again that this process is there.
func (a *activeDelivery) renew(done <-chan struct{}) {
	tick := time.NewTicker(a.q.cfg.ClaimTTL / 3)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		a.mu.Lock()
		r := &itemState{state: Delivering, owner: a.q.owner, attempts: a.attempts, changed: time.Now()}
		seq, err := a.q.writeState(a.id, a.stateSeq, r)
		switch {
		case err == nil:
			a.stateSeq = seq
		case errors.Is(err, errClaimed):
			a.stage = overtaken
		}
		stage := a.stage
		a.mu.Unlock()
		if stage == overtaken {
			return
		}
	}
}
