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

// Get returns what is known of an item.
func (q *Queue) Get(ctx context.Context, id string) (*Status, error) {
	s := q.current.Load()
	switch {
	case !validID(id):
		return nil, ErrNotFound
	case s == nil:
		return nil, ErrUnavailable
	}
	if st := s.index.status(id); st != nil {
		if st.State == Dead {
			if r, _, err := q.stateOf(ctx, s, id); err == nil && r.state == Dead {
				st.Result = r.result
			}
		}
		return st, nil
	}
	// It is done, or was accepted so short a time ago that it is not known yet. Between the two questions it may have
	// become the former.
	for range 2 {
		r, _, err := q.readState(ctx, s.results, "result", id)
		if err == nil {
			return r.status(id), nil
		} else if !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		m, err := q.last(ctx, s.items, "item", id)
		if errors.Is(err, ErrNotFound) {
			continue
		} else if err != nil {
			return nil, err
		}
		o, err := q.cipher.openHeader(m.Subject, m.Header.Get(itemHeaderField))
		if err != nil {
			return nil, err
		}
		return &Status{ID: id, Rule: o.rule, Key: o.key, State: Queued, Accepted: o.accepted, Expires: o.expires, Size: o.size}, nil
	}
	return nil, ErrNotFound
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

func (x *index) status(id string) *Status {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.all[id]
	if e == nil {
		return nil
	}
	st := e.status()
	sq := x.scheduler.all[subqueueID{e.rule, e.key, e.ordered}]
	if st.State == Queued && sq != nil && sq.roomExpected.After(st.Next) {
		st.Next = sq.roomExpected // for the first of the subqueue, and for others later
	}
	if st.State != Queued || sq == nil || len(sq.ready.list)+len(sq.later.list) > maxPosition {
		return st
	}
	st.Position = 1
	for _, list := range [][]*entry{sq.ready.list, sq.later.list} {
		for _, other := range list {
			if other.seq < e.seq {
				st.Position++
			}
		}
	}
	return st
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

// Cancel removes an item that is not being delivered: it never will be. Who cancels again is told the same.
func (q *Queue) Cancel(ctx context.Context, id string) error {
	if !validID(id) {
		return ErrNotFound
	}
	for {
		err := q.cancel(ctx, id)
		if !errors.Is(err, errClaimed) || ctx.Err() != nil {
			return err
		}
	}
}

// cancel fails with errClaimed if something happened to the item meanwhile.
func (q *Queue) cancel(ctx context.Context, id string) error {
	s := q.current.Load()
	if s == nil {
		return ErrUnavailable
	}
	m, err := q.last(ctx, s.items, "item", id)
	if errors.Is(err, ErrNotFound) {
		return q.ended(ctx, s, id)
	} else if err != nil {
		return err
	}
	o, err := q.cipher.openHeader(m.Subject, m.Header.Get(itemHeaderField))
	if err != nil {
		return err
	}
	a := &activeDelivery{q: q, id: id, itemSeq: m.Sequence, itemHeader: o}
	r, seq, err := q.stateOf(ctx, s, id)
	switch {
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return err
	case r.state == Delivering:
		return ErrDelivering
	default:
		a.attempts = r.attempts
	}
	a.stateSeq, err = q.writeState(id, seq, &itemState{state: Cancelled, owner: q.owner, attempts: a.attempts, changed: time.Now()})
	if err != nil {
		return err
	}
	q.stats.cancelled.Add(1)
	// From here on it is not delivered. What of the rest fails is done by the process that finds it.
	if q.writeResult(s, a, &itemState{state: Cancelled}) == nil && q.remove(a) == nil {
		q.announceRemoved(a)
	}
	return nil
}

// ended says why something that is no more cannot be cancelled.
func (q *Queue) ended(ctx context.Context, s *session, id string) error {
	r, _, err := q.readState(ctx, s.results, "result", id)
	switch {
	case err != nil:
		return err
	case r.state == Cancelled:
		return nil
	}
	return ErrDone
}

// Requeue queues a dead letter again, with all its attempts and time before it and the same idempotency key.
func (q *Queue) Requeue(ctx context.Context, id string) error {
	s := q.current.Load()
	switch {
	case !validID(id):
		return ErrNotFound
	case s == nil:
		return ErrUnavailable
	}
	m, err := q.last(ctx, s.items, "item", id)
	if errors.Is(err, ErrNotFound) {
		if err := q.ended(ctx, s, id); err != nil && !errors.Is(err, ErrDone) {
			return err
		}
		return ErrNotDead
	} else if err != nil {
		return err
	}
	o, err := q.cipher.openHeader(m.Subject, m.Header.Get(itemHeaderField))
	if err != nil {
		return err
	}
	r, seq, err := q.stateOf(ctx, s, id)
	switch {
	case errors.Is(err, ErrNotFound) || err == nil && r.state != Dead:
		return ErrNotDead
	case err != nil:
		return err
	}
	now := time.Now()
	again := &itemState{state: Queued, changed: now, expires: now.Add(o.expires.Sub(o.accepted))}
	if _, err := q.writeState(id, seq, again); errors.Is(err, errClaimed) {
		return ErrNotDead
	} else if err != nil {
		return err
	}
	q.stats.requeued.Add(1)
	return nil
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
