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

// Get returns the status of an item. The streams decide, not the index: that may lag behind them, and another gateway may have
// shown a later state already.
func (q *Queue) Get(ctx context.Context, id string) (*Status, error) {
	s := q.current.Load()
	switch {
	case !validID(id):
		return nil, ErrNotFound
	case s == nil:
		return nil, ErrUnavailable
	}
	err := ErrUnavailable
	if s.silentSince.Load() == nil { // it is not waited for otherwise
		// Between two reads an item may become a result.
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

// readStatus reads the status of an item in the streams, and takes from the index what they do not hold.
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
	case errors.Is(err, ErrNotFound) && known == 0: // it was never tried
	case err != nil:
		return nil, err // removed, if it is not found
	case seq > known:
		st.update(r)
	case seq == known && r.state == Dead:
		st.Result = r.result
	}
	return st, nil
}

// status is that of an item that was never tried.
func (o *itemHeader) status(id string) *Status {
	return &Status{ID: id, Rule: o.rule, Key: o.key, State: Queued, Accepted: o.accepted, Expires: o.expires, Size: o.size}
}

// update takes over a later state.
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

// maxPosition is how far a place is counted.
const maxPosition = 10_000

// status returns the status of an item as far as the index knows it, and the sequence number of its state: 0 is none. The status
// is nil if the index does not know the item.
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
		st.Next = sq.roomExpected // for the first of the subqueue, and for others later
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

// Cancel removes an item that is not being delivered: it never will be. It returns the status that it wrote. Cancelling a cancelled
// item returns the same result.
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

// cancel fails with errClaimed if something happened to the item meanwhile.
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
	// From here on it is not delivered. What of the rest fails is done by the process that finds it.
	result := &itemState{state: Cancelled}
	if q.writeResult(s, a, result) == nil && q.remove(a) == nil {
		q.announceRemoved(a)
	}
	return result.status(id), nil
}

// ended returns the status of a cancelled item that is no more, or why such an item cannot be cancelled.
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

// Requeue queues a dead letter again, with all its attempts and time before it and the same idempotency key. It returns the status
// that it wrote.
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
	s.index.onState(id, seq, again) // the stream tells of it later
	if st, known := s.index.status(id); known == seq {
		return st, nil // with its position
	}
	st := o.status(id)
	st.update(again)
	return st, nil
}

// List lists up to limit items of a state, the oldest first, and where to go on; "" at the end. State 0 is all that are not
// done.
func (q *Queue) List(ctx context.Context, state State, after string, limit int) ([]*Status, string, error) {
	s := q.current.Load()
	if s == nil {
		return nil, "", ErrUnavailable
	}
	var from uint64
	if after != "" {
		if _, err := fmt.Sscanf(after, "%d", &from); err != nil {
			return nil, "", fmt.Errorf("queue: after: %q is not what a list ended with", after)
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

// forList leaves out what a list need not show.
func (r *Result) forList() {
	if r != nil {
		r.Header, r.Body = nil, nil
	}
}
