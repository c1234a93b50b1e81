package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Get returns the status of an item. It reads the streams, because the index may lag behind them and another gateway may have
// returned a later state already.
func (q *Queue) Get(ctx context.Context, id string) (*Status, error) {
	st, err := q.get(ctx, id)
	q.setDeadExpiry(st)
	return st, err
}

// setDeadExpiry replaces the deadline for delivery, which dead letters have passed, by the time of their deletion.
func (q *Queue) setDeadExpiry(st *Status) {
	if st == nil || st.State != Dead {
		return
	}
	st.Expires = time.Time{}
	if q.cfg.DeadLetterTTL > 0 {
		st.Expires = st.Changed.Add(q.cfg.DeadLetterTTL)
	}
}

func (q *Queue) get(ctx context.Context, id string) (*Status, error) {
	s := q.current.Load()
	switch {
	case !validID(id):
		return nil, ErrNotFound
	case s == nil:
		return nil, ErrUnavailable
	}
	err := ErrUnavailable
	if s.silentSince.Load() == nil { // otherwise the reads would time out
		// Between two reads an item may be replaced by its result.
		for range 2 {
			var st *Status
			if st, err = q.readStatus(ctx, s, id); err == nil {
				return st, nil
			} else if !errors.Is(err, ErrNotFound) {
				break
			}
		}
	}
	if st, _ := s.index.status(id); st != nil {
		return st, nil
	}
	return nil, err
}

// readStatus reads the status of an item from the streams, and the position and the next attempt from the index.
func (q *Queue) readStatus(ctx context.Context, s *session, id string) (*Status, error) {
	r, _, err := q.readState(ctx, s.results, "result", id)
	if err == nil {
		return r.status(id), nil
	} else if !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	st, known := s.index.status(id)
	if st == nil {
		m, err := q.last(ctx, s.items, "item", id)
		if err != nil {
			return nil, err
		}
		o, err := q.cipher.openHeader(m.Subject, m.Header.Get(itemHeaderField))
		if err != nil {
			return nil, err
		}
		st = o.status(id)
	}
	r, seq, err := q.stateOf(ctx, s, id)
	switch {
	case errors.Is(err, ErrNotFound) && known == 0: // without attempts
	case err != nil:
		return nil, err // ErrNotFound: the item was removed
	case seq > known:
		st.update(r)
	case seq == known && r.state == Dead:
		st.Result = r.result
	}
	return st, nil
}

// status returns the status of an item without attempts.
func (o *itemHeader) status(id string) *Status {
	return &Status{ID: id, Rule: o.rule, Key: o.key, State: Queued, Accepted: o.accepted, Expires: o.expires, Size: o.size}
}

// update applies a later state.
func (st *Status) update(r *itemState) {
	st.State, st.Attempts, st.Changed, st.Error, st.Result = r.state, r.attempts, r.changed, r.err, r.result
	st.Position, st.Next = 0, time.Time{}
	if r.state == Queued {
		st.Next = r.next
	}
	if !r.expires.IsZero() {
		st.Expires = r.expires
	}
}

func (r *itemState) status(id string) *Status {
	st := &Status{
		ID: id, State: r.state, Attempts: r.attempts, Changed: r.changed, Error: r.err, Result: r.result, Expires: r.expires,
	}
	if o := r.itemHeader; o != nil {
		st.Rule, st.Key, st.Accepted, st.Size = o.rule, o.key, o.accepted, o.size
	}
	return st
}

// maxPosition is the maximum position that is counted.
const maxPosition = 10_000

// status returns the status of an item in the index and the sequence number of its state; 0: none. The status is nil if the
// index does not contain the item.
func (x *index) status(id string) (st *Status, stateSeq uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.all[id]
	if e == nil {
		return nil, 0
	}
	st = e.status()
	sq := x.scheduler.all[subqueueID{e.rule, e.key, e.ordered}]
	if st.State == Queued && sq != nil && sq.roomExpected.After(st.Next) {
		st.Next = sq.roomExpected // for the first item of the subqueue; others are later
	}
	if st.State != Queued || sq == nil || len(sq.ready.list)+len(sq.later.list) > maxPosition {
		return st, e.stateSeq
	}
	st.Position = 1
	for _, list := range [][]*entry{sq.ready.list, sq.later.list} {
		for _, other := range list {
			if other.seq < e.seq {
				st.Position++
			}
		}
	}
	return st, e.stateSeq
}

func (e *entry) status() *Status {
	st := &Status{
		ID: e.id, Rule: e.rule, Key: e.key, State: e.state, Attempts: e.attempts, Accepted: e.accepted, Changed: e.changed,
		Error: e.err, Expires: e.expiry, Size: e.size,
	}
	if e.state == Queued {
		st.Next = e.notBefore
	}
	return st
}

// Cancel removes an item that is not being delivered, so that it never is. It returns the new status. Cancelling an already
// cancelled item returns the same result.
func (q *Queue) Cancel(ctx context.Context, id string) (*Status, error) {
	if !validID(id) {
		return nil, ErrNotFound
	}
	for {
		st, err := q.cancel(ctx, id)
		if !errors.Is(err, errClaimed) || ctx.Err() != nil {
			return st, err
		}
	}
}

// cancel returns errClaimed if the item was changed concurrently.
func (q *Queue) cancel(ctx context.Context, id string) (*Status, error) {
	s := q.current.Load()
	if s == nil {
		return nil, ErrUnavailable
	}
	m, err := q.last(ctx, s.items, "item", id)
	if errors.Is(err, ErrNotFound) {
		return q.ended(ctx, s, id)
	} else if err != nil {
		return nil, err
	}
	o, err := q.cipher.openHeader(m.Subject, m.Header.Get(itemHeaderField))
	if err != nil {
		return nil, err
	}
	a := &activeDelivery{q: q, id: id, itemSeq: m.Sequence, itemHeader: o}
	r, seq, err := q.stateOf(ctx, s, id)
	switch {
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return nil, err
	case r.state == Delivering:
		return nil, ErrDelivering
	default:
		a.attempts = r.attempts
	}
	a.stateSeq, err = q.writeState(id, seq, &itemState{state: Cancelled, owner: q.owner, attempts: a.attempts, changed: time.Now()})
	if err != nil {
		return nil, err
	}
	q.stats.cancelled.Add(1)
	// From here on the item is not delivered. If a later step fails, the instance that finds the item completes it.
	result := &itemState{state: Cancelled}
	if q.writeResult(s, a, result) == nil && q.remove(a) == nil {
		q.announceRemoved(a)
	}
	return result.status(id), nil
}

// ended returns the status of an item that was already cancelled and removed, or the error of cancelling another removed item.
func (q *Queue) ended(ctx context.Context, s *session, id string) (*Status, error) {
	r, _, err := q.readState(ctx, s.results, "result", id)
	switch {
	case err != nil:
		return nil, err
	case r.state == Cancelled:
		return r.status(id), nil
	}
	return nil, ErrDone
}

// Requeue queues a dead letter again, with the full number of attempts and time, and the same idempotency key. It returns the
// new status.
func (q *Queue) Requeue(ctx context.Context, id string) (*Status, error) {
	s := q.current.Load()
	switch {
	case !validID(id):
		return nil, ErrNotFound
	case s == nil:
		return nil, ErrUnavailable
	}
	m, err := q.last(ctx, s.items, "item", id)
	if errors.Is(err, ErrNotFound) {
		if _, err := q.ended(ctx, s, id); err != nil && !errors.Is(err, ErrDone) {
			return nil, err
		}
		return nil, ErrNotDead
	} else if err != nil {
		return nil, err
	}
	o, err := q.cipher.openHeader(m.Subject, m.Header.Get(itemHeaderField))
	if err != nil {
		return nil, err
	}
	r, seq, err := q.stateOf(ctx, s, id)
	switch {
	case errors.Is(err, ErrNotFound) || err == nil && r.state != Dead:
		return nil, ErrNotDead
	case err != nil:
		return nil, err
	}
	now := time.Now()
	again := &itemState{state: Queued, changed: now, expires: now.Add(o.expires.Sub(o.accepted))}
	if seq, err = q.writeState(id, seq, again); errors.Is(err, errClaimed) {
		return nil, ErrNotDead
	} else if err != nil {
		return nil, err
	}
	q.stats.requeued.Add(1)
	s.index.onState(id, seq, again) // the stream delivers it later
	if st, known := s.index.status(id); known == seq {
		return st, nil // with its position
	}
	st := o.status(id)
	st.update(again)
	return st, nil
}

// List returns up to limit items of a state, the oldest first, and the page token of the next call; "" at the end. State 0
// selects all items that are not done.
func (q *Queue) List(ctx context.Context, state State, after string, limit int) ([]*Status, string, error) {
	s := q.current.Load()
	if s == nil {
		return nil, "", ErrUnavailable
	}
	var from uint64
	if after != "" {
		if _, err := fmt.Sscanf(after, "%d", &from); err != nil {
			return nil, "", fmt.Errorf("queue: invalid page token %q", after)
		}
	}
	if state == Done || state == Cancelled {
		return q.listResults(ctx, s, state, from, limit)
	}
	found := s.index.list(state, from)
	next := ""
	if len(found) > limit {
		found = found[:limit]
		next = fmt.Sprint(found[limit-1].seq)
	}
	out := make([]*Status, len(found))
	for i := range found {
		out[i] = found[i].Status
		q.setDeadExpiry(out[i])
	}
	return out, next, nil
}

type placed struct {
	seq uint64
	*Status
}

func (x *index) list(state State, after uint64) (found []placed) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.all {
		if e.seq > after && (state == 0 || e.state == state) {
			found = append(found, placed{e.seq, e.status()})
		}
	}
	slices.SortFunc(found, func(a, b placed) int { return cmp.Compare(a.seq, b.seq) })
	return found
}

func (q *Queue) listResults(ctx context.Context, s *session, state State, from uint64, limit int) (out []*Status, next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for len(out) < limit {
		m, err := s.results.GetMsg(ctx, from+1, jetstream.WithGetMsgSubject(q.subject("result", "*")))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return out, "", nil
		} else if err != nil {
			return nil, "", fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		from = m.Sequence
		r, err := q.cipher.openState(m.Subject, m.Data)
		if err != nil {
			return nil, "", err
		}
		if st := r.status(idOf(m.Subject)); st.State == state {
			st.Result.forList()
			out = append(out, st)
		}
	}
	return out, fmt.Sprint(from), nil
}

// forList removes the parts that a list does not show.
func (r *Result) forList() {
	if r != nil {
		r.Header, r.Body = nil, nil
	}
}
