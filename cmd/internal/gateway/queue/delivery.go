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
	flight *flight
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
		f := q.next(ctx)
		if f == nil {
			q.out.Done()
			return nil, cmp.Or(context.Cause(ctx), ErrUnavailable)
		}
		if it := q.prepare(f); it != nil {
			return q.newDelivery(f, it), nil
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
func (q *Queue) next(ctx context.Context) *flight {
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
			f, at := s.index.pop(time.Now())
			if f != nil {
				return f
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
func (q *Queue) prepare(f *flight) *Item {
	it, err := q.load(q.work, f)
	switch {
	case errors.Is(err, ErrNotFound):
		q.forget(f)
	case errors.Is(err, ErrUnavailable):
		f.back(time.Now().Add(q.cfg.MinBackoff), time.Time{}, time.Time{})
	case err != nil:
		q.bury(f, err.Error(), nil)
	case f.stateSeq == 0 && q.isRefused(f.id):
		q.removeOne(f)
	case f.state == Cancelled:
		q.removed(f, &record{state: Cancelled})
	case !f.expiry.After(time.Now()):
		q.bury(f, "it was not delivered in time", nil)
	default:
		return it
	}
	return nil
}

func (q *Queue) newDelivery(f *flight, it *Item) *Delivery {
	d := &Delivery{flight: f, item: it, ended: make(chan struct{})}
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
	err := d.flight.begin()
	if err == nil && d.flight.q.shared() {
		d.renewing.Go(func() { d.flight.renew(d.ended) })
	}
	return err
}

// Later says that there is no room for the item, and may be some after a time.
func (d *Delivery) Later(after time.Duration) { d.end(postponed, &Outcome{After: after}) }

// Done says what came of the delivery.
func (d *Delivery) Done(out Outcome) {
	ending := unanswered
	if out.Status != 0 {
		ending = answered
	}
	d.end(ending, &out)
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
	awaitRoom // have its whole lane wait
)

// moves says what is done with an item, by how far its delivery got and how it ended.
var moves = [stages][endings]move{
	offered:   {answered: startAndConclude, unanswered: retrySoon, postponed: awaitRoom},
	started:   {answered: conclude, unanswered: conclude, postponed: conclude},
	overtaken: {answered: conclude, unanswered: refresh, postponed: refresh}, // what is delivered is delivered
	lost:      {answered: refresh, unanswered: refresh, postponed: refresh},
	unwritten: {answered: retrySoon, unanswered: retrySoon, postponed: retrySoon},
}

// end gives the item back.
func (d *Delivery) end(e ending, out *Outcome) {
	f := d.flight
	q := f.q
	defer q.out.Done()
	d.cancel()
	close(d.ended)
	d.renewing.Wait()
	f.mu.Lock()
	m := moves[f.stage][e]
	f.mu.Unlock()
	switch m {
	case startAndConclude:
		if d.begin() != nil {
			q.refresh(f)
			return
		}
		q.conclude(f, d.item, out)
	case conclude:
		q.conclude(f, d.item, out)
	case refresh:
		q.refresh(f)
	case retrySoon:
		f.back(time.Now().Add(q.cfg.MinBackoff), time.Time{}, time.Time{})
	case awaitRoom:
		q.stats.limited.Add(1)
		now := time.Now()
		f.back(time.Time{}, now.Add(roomIn(out.After)), now.Add(out.After))
	}
}

// flight is an item on its way, from when it asks for room until what came of it is written.
type flight struct {
	q   *Queue
	id  string
	seq uint64
	outline
	expiry time.Time
	state  State
	taken  bool

	mu       sync.Mutex // guards the following while it is delivered
	stateSeq uint64
	attempts int
	stage    stage
}

func (q *Queue) setFlying(f *flight) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.flights[f.id] = f
}

func (q *Queue) landed(f *flight) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.flights[f.id] == f {
		delete(q.flights, f.id)
	}
}

func (q *Queue) isFlying(id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.flights[id] != nil
}

var errTaken = errors.New("queue: it was cancelled, or another gateway delivers it")

// askAgain is the longest that a lane waits before it asks again: an operator may have made room, or the rule have changed.
const askAgain = 30 * time.Second

// roomIn is after how long a lane that was told to wait asks again: not before that time, and with jitter, so that lanes do not
// ask all at once.
func roomIn(after time.Duration) time.Duration {
	after = min(max(after, 10*time.Millisecond), askAgain)
	return after + rand.N(min(after/10, time.Second/4)+1)
}

func (f *flight) back(notBefore, limited, room time.Time) {
	if s := f.q.current.Load(); s != nil {
		s.index.back(f, notBefore, limited, room)
		return
	}
	f.q.landed(f) // the next session knows it from the stream
}

// load reads an item's content.
func (q *Queue) load(ctx context.Context, f *flight) (*Item, error) {
	s := q.current.Load()
	if s == nil {
		return nil, ErrUnavailable
	}
	if f.taken {
		if _, err := q.last(ctx, s.results, "result", f.id); err == nil {
			return nil, q.cleared(f)
		} else if !errors.Is(err, ErrNotFound) {
			return nil, err
		}
	}
	m, err := q.last(ctx, s.items, "item", f.id)
	if err != nil {
		return nil, err
	}
	b, err := q.seal.open(m.Subject, m.Data)
	if err != nil {
		return nil, err
	}
	it, err := decodeItem(b)
	if err != nil {
		return nil, err
	}
	it.Attempt = f.attempts + 1
	if it.Header == nil {
		it.Header = http.Header{}
	}
	it.Header.Set(IdempotencyHeader, it.IdempotencyKey)
	it.Header.Set(AttemptHeader, strconv.Itoa(it.Attempt))
	return it, nil
}

// cleared finishes the removal of an item that another process, or a cancellation, has begun.
func (q *Queue) cleared(f *flight) error {
	if err := q.remove(f); err != nil {
		return err
	}
	return ErrNotFound
}

// begin writes that this process delivers the item, over the state that it knows.
func (f *flight) begin() error {
	r := &record{state: Delivering, owner: f.q.owner, attempts: f.attempts + 1, changed: time.Now()}
	seq, err := f.q.writeState(f.id, f.stateSeq, r)
	f.mu.Lock()
	switch {
	case errors.Is(err, errTaken):
		f.stage = lost
	case err != nil:
		f.stage = unwritten
	default:
		f.stage, f.stateSeq, f.attempts, f.taken = started, seq, r.attempts, false
	}
	f.mu.Unlock()
	if s := f.q.current.Load(); err == nil && s != nil {
		s.index.begun(f)
	}
	return err
}

// renew says again and again that this process is there.
func (f *flight) renew(done <-chan struct{}) {
	tick := time.NewTicker(f.q.cfg.Lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		f.mu.Lock()
		r := &record{state: Delivering, owner: f.q.owner, attempts: f.attempts, changed: time.Now()}
		seq, err := f.q.writeState(f.id, f.stateSeq, r)
		switch {
		case err == nil:
			f.stateSeq = seq
		case errors.Is(err, errTaken):
			f.stage = overtaken
		}
		stage := f.stage
		f.mu.Unlock()
		if stage == overtaken {
			return
		}
	}
}
