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

// Delivery is an item that is due and assigned to a worker of this process. The worker calls Begin before anything is sent, and
// at the end either Later or Done, once.
type Delivery struct {
	active *activeDelivery
	item   *Item
	begin  func() error // runs once

	ctx      context.Context
	cancel   context.CancelFunc
	ended    chan struct{} // closed at the end of the delivery
	renewing sync.WaitGroup
}

// Next waits until an item is due and returns its delivery. It fails when ctx is done or after Run has ended.
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

// handOut counts a delivery, so that Run can wait for it. It reports whether deliveries are still allowed.
func (q *Queue) handOut() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ending.Load() {
		return false
	}
	q.out.Add(1)
	return true
}

// next waits for an item that is due. One worker polls the index; the others wait for its lock.
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

// prepare returns the content of an item that is to be delivered. It ends any other item and returns nil.
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
		q.deadLetter(a, "expired before delivery", nil)
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

// Context returns a context that is done after the delivery timeout, and after the drain timeout of a shutdown.
func (d *Delivery) Context() context.Context { return d.ctx }

// Item returns the item to be delivered.
func (d *Delivery) Item() *Item { return d.item }

// Begin claims the item for this process. It must be called after the rules have admitted the item and before anything is sent.
// If it fails, nothing may be sent, and the argument of Done is ignored.
func (d *Delivery) Begin() error { return d.begin() }

// start claims the item and, if other gateways share the queue, renews the claim from now on.
func (d *Delivery) start() error {
	err := d.active.begin()
	if err == nil && d.active.q.shared() {
		d.renewing.Go(func() { d.active.renew(d.ended) })
	}
	return err
}

// Later ends the delivery of an item that the rules deny. There may be room after the given time.
func (d *Delivery) Later(after time.Duration) { d.end(postponed, &Outcome{After: after}) }

// Done ends the delivery with its outcome and returns the new state of the item. Delivering means that another gateway has
// claimed it.
func (d *Delivery) Done(out Outcome) State {
	ending := unanswered
	if out.Status != 0 {
		ending = answered
	}
	return d.end(ending, &out)
}

// stage is the progress of a delivery.
type stage uint8

const (
	offered   stage = iota // not claimed
	started                // claimed by this process
	overtaken              // claimed by another gateway after it was started
	lost                   // claimed by another gateway or cancelled before it was started
	unwritten              // writing the claim failed
	stages
)

// ending is the kind of outcome that a worker reports.
type ending uint8

const (
	answered ending = iota
	unanswered
	postponed // denied by the rules
	endings
)

// move is the action at the end of a delivery.
type move uint8

const (
	conclude         move = iota // write the outcome
	startAndConclude             // claim the item, then write the outcome
	refresh                      // read the state that others have written
	retrySoon
	awaitRoom // block the whole subqueue
)

// moves maps the stage and the ending of a delivery to an action.
var moves = [stages][endings]move{
	offered:   {answered: startAndConclude, unanswered: retrySoon, postponed: awaitRoom},
	started:   {answered: conclude, unanswered: conclude, postponed: conclude},
	overtaken: {answered: conclude, unanswered: refresh, postponed: refresh}, // the response is written although another gateway has claimed the item
	lost:      {answered: refresh, unanswered: refresh, postponed: refresh},
	unwritten: {answered: retrySoon, unanswered: retrySoon, postponed: retrySoon},
}

// end ends the delivery and returns the new state of the item.
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

	mu       sync.Mutex // guards the following during the delivery
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

var errClaimed = errors.New("queue: item was cancelled or claimed by another gateway")

// maxLimitRecheck is the maximum time between two checks of the limits of a subqueue: an operator may have reset the bucket, or
// the rule may have changed.
const maxLimitRecheck = 30 * time.Second

// nextLimitCheck returns the time until the limits of a denied subqueue are checked again: at least after, with jitter, so that
// subqueues are not all checked at once.
func nextLimitCheck(after time.Duration) time.Duration {
	after = min(max(after, 10*time.Millisecond), maxLimitRecheck)
	return after + rand.N(min(after/10, time.Second/4)+1)
}

func (a *activeDelivery) reschedule(notBefore, limited, room time.Time) {
	if s := a.q.current.Load(); s != nil {
		s.index.reschedule(a, notBefore, limited, room)
		return
	}
	a.q.removeDelivery(a) // the next session reads the item from the stream
}

// load reads the content of an item.
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

// cleared completes the removal of an item that another process or a cancellation has begun.
func (q *Queue) cleared(a *activeDelivery) error {
	if err := q.remove(a); err != nil {
		return err
	}
	return ErrNotFound
}

// begin claims the item by replacing the state that this process has read.
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

// renew renews the claim periodically until done is closed.
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
