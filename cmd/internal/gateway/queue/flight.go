package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

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
	begun    bool
	lost     bool  // somebody else has it, or cancelled it
	err      error // why it could not begin
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

// fly tries an item: ctx ends when the process is to end.
func (q *Queue) fly(ctx context.Context, f *flight) {
	it, err := q.load(ctx, f)
	switch {
	case errors.Is(err, ErrNotFound):
		q.forget(f)
		return
	case errors.Is(err, ErrUnavailable):
		f.back(time.Now().Add(q.cfg.MinBackoff), time.Time{}, time.Time{})
		return
	case err != nil:
		q.bury(f, err.Error(), nil)
		return
	case f.stateSeq == 0 && q.isRefused(f.id):
		q.removeOne(f)
		return
	case f.state == Cancelled:
		q.removed(f, &record{state: Cancelled})
		return
	case !f.expiry.After(time.Now()):
		q.bury(f, "it was not delivered in time", nil)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, q.cfg.Timeout)
	defer cancel()
	out := q.deliver(ctx, f, it)
	cancel()
	f.mu.Lock()
	lost, failed, begun := f.lost, f.err, f.begun
	f.mu.Unlock()
	switch {
	case lost && out.Status != 0 && begun:
		q.conclude(f, it, &out) // somebody took over, but it is delivered
	case lost:
		q.refresh(f)
	case failed != nil:
		f.back(time.Now().Add(q.cfg.MinBackoff), time.Time{}, time.Time{})
	case begun:
		q.conclude(f, it, &out)
	case out.Limited:
		q.stats.limited.Add(1)
		now := time.Now()
		f.back(time.Time{}, now.Add(roomIn(out.After)), now.Add(out.After))
	case ctx.Err() != nil && out.Status == 0:
		f.back(time.Now().Add(q.cfg.MinBackoff), time.Time{}, time.Time{})
	case f.begin() != nil:
		q.refresh(f)
	default:
		q.conclude(f, it, &out)
	}
}

// askAgain is the longest that a lane waits before it asks again: an operator may have made room, or the rule have changed.
const askAgain = 30 * time.Second

// roomIn is when a lane asks again that was told to wait. Nobody is early, and not all come at once.
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

// cleared finishes what somebody began to remove, and says that it is no more.
func (q *Queue) cleared(f *flight) error {
	if err := q.remove(f); err != nil {
		return err
	}
	return ErrNotFound
}

// deliver has an item delivered, and says meanwhile that this process does it.
func (q *Queue) deliver(ctx context.Context, f *flight, it *Item) (out Outcome) {
	var renewing sync.WaitGroup
	done := make(chan struct{})
	defer renewing.Wait()
	defer close(done)
	begin := func() error {
		err := f.begin()
		if err == nil && q.shared() {
			renewing.Go(func() { f.renew(done) })
		}
		return err
	}
	defer func() {
		if p := recover(); p != nil {
			q.log.Error("delivering a kept request went wrong", "id", f.id, "panic", fmt.Sprint(p))
			out = Outcome{Err: errors.New("the gateway failed")}
		}
	}()
	return q.cfg.Deliver(ctx, it, sync.OnceValue(begin))
}

// begin writes that this process delivers the item, over the state that it knows.
func (f *flight) begin() error {
	r := &record{state: Delivering, owner: f.q.owner, attempts: f.attempts + 1, changed: time.Now()}
	seq, err := f.q.writeState(f.id, f.stateSeq, r)
	f.mu.Lock()
	switch {
	case errors.Is(err, errTaken):
		f.lost = true
	case err != nil:
		f.err = err
	default:
		f.begun, f.stateSeq, f.attempts, f.taken = true, seq, r.attempts, false
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
		if err == nil {
			f.stateSeq = seq
		}
		f.lost = errors.Is(err, errTaken)
		lost := f.lost
		f.mu.Unlock()
		if lost {
			return
		}
	}
}
