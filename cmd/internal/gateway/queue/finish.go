package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// Outcome is the outcome of a delivery.
type Outcome struct {
	Status int // status of the response; 0: no response
	Header http.Header
	Body   []byte
	Err    error         // why there was no response
	Retry  bool          // not done, regardless of the status
	After  time.Duration // minimum time until the next attempt
}

// conclude writes the outcome of a delivery and returns the new state of the item.
func (q *Queue) conclude(a *activeDelivery, it *Item, out *Outcome) State {
	now := time.Now()
	done, after := out.isFinal(now)
	if done {
		q.stats.delivered.Add(1)
		q.finishRemoved(a, &itemState{state: Done, result: resultOf(out, MaxResult)})
		return Done
	}
	q.stats.failed.Add(1)
	r := &itemState{state: Queued, attempts: a.attempts, changed: now, err: failure(out), expires: a.expiry}
	if q.ending.Load() && out.Status == 0 {
		q.finishWith(a, r) // not a failure of the upstream
		return Queued
	}
	r.next = now.Add(max(q.backoff(a.attempts), after))
	if a.attempts >= it.Attempts || r.next.After(a.expiry) {
		q.deadLetter(a, r.err, resultOf(out, maxDeadResult))
		return Dead
	}
	q.finishWith(a, r)
	return Queued
}

// isFinal reports whether the outcome is final. If not, after is the Retry-After of the upstream.
func (o *Outcome) isFinal(now time.Time) (done bool, after time.Duration) {
	switch {
	case o.Retry || o.Status == 0:
		return false, o.After
	case o.Status == http.StatusRequestTimeout, o.Status == http.StatusTooEarly, o.Status == http.StatusTooManyRequests,
		o.Status >= 500 && o.Status != http.StatusNotImplemented:
		return false, max(o.After, retryAfter(o.Header, now))
	}
	return true, 0
}

// maxRetryAfter is the maximum Retry-After of an upstream.
const maxRetryAfter = time.Hour

func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	after := time.Duration(0)
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		after = time.Duration(n) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		after = at.Sub(now)
	}
	return min(max(after, 0), maxRetryAfter)
}

func failure(out *Outcome) string {
	switch {
	case out.Err != nil && len(out.Err.Error()) > 500:
		return out.Err.Error()[:500]
	case out.Err != nil:
		return out.Err.Error()
	case out.Status == 0:
		return "no response"
	}
	return fmt.Sprintf("response %d %s", out.Status, http.StatusText(out.Status))
}

// backoff returns the time until the next attempt. It doubles with each attempt and is reduced by a random part.
func (q *Queue) backoff(attempts int) time.Duration {
	d := q.cfg.MinBackoff << min(max(attempts-1, 0), 30)
	if d <= 0 || d > q.cfg.MaxBackoff {
		d = q.cfg.MaxBackoff
	}
	return d/2 + rand.N(d/2+1)
}

// MaxResult is the maximum stored size of the body of a response, in bytes.
const MaxResult = 64 << 10

// maxDeadResult is the maximum stored size of the last response of a dead letter, in bytes. It is smaller, because dead letters
// are stored for a long time.
const maxDeadResult = 4 << 10

// maxHeaderBytes is the maximum stored size of the headers of a response.
const maxHeaderBytes = 16 << 10

// resultOf returns the part of a response that is stored, with at most max bytes of its body.
func resultOf(out *Outcome, max int) *Result {
	if out.Status == 0 {
		return nil
	}
	r := &Result{Status: out.Status, Header: http.Header{}, Body: out.Body, Truncated: len(out.Body) > max}
	if r.Truncated {
		bounds.QueueResult.Reached()
	}
	r.Body = r.Body[:min(len(r.Body), max)]
	size := 0
	for _, name := range slices.Sorted(maps.Keys(out.Header)) {
		for _, v := range out.Header[name] {
			if size += len(name) + len(v); size <= maxHeaderBytes {
				r.Header[name] = append(r.Header[name], v)
			}
		}
	}
	return r
}

// deadLetter makes an item a dead letter.
func (q *Queue) deadLetter(a *activeDelivery, why string, last *Result) {
	if q.finishWith(a, &itemState{state: Dead, attempts: a.attempts, changed: time.Now(), err: why, result: last, expires: a.expiry}) {
		q.stats.deadLettered.Add(1)
		if unlogged, ok := q.deadLog.next(); ok {
			q.log.Warn("queue item became a dead letter",
				"queue_item", a.id, "rule", a.rule, "attempts", a.attempts, "error", why, "suppressed", unlogged)
		}
	}
}

// deadLog logs one dead letter per second, because an unavailable upstream may cause thousands.
type deadLog struct {
	mu       sync.Mutex // guards the following
	at       time.Time  // time of the last line
	unlogged int        // number of dead letters not logged since then
}

// next reports whether a dead letter is logged, and returns the number of those not logged since the last one.
func (l *deadLog) next() (unlogged int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.at) < time.Second {
		l.unlogged++
		return 0, false
	}
	unlogged = l.unlogged
	l.at, l.unlogged = now, 0
	return unlogged, true
}

// finishWith writes the final state of a delivery and reports whether it did: false if another process has written a state.
func (q *Queue) finishWith(a *activeDelivery, r *itemState) bool {
	var seq uint64
	err := q.persist(func(*session) (err error) {
		seq, err = q.writeState(a.id, a.stateSeq, r)
		return err
	})
	switch s := q.current.Load(); {
	case errors.Is(err, errClaimed):
		q.refresh(a)
	case err != nil || s == nil:
		q.removeDelivery(a)
	default:
		s.index.finish(a, seq, r)
	}
	return err == nil
}

// finishRemoved writes the result of an item and removes the item.
func (q *Queue) finishRemoved(a *activeDelivery, r *itemState) {
	err := q.persist(func(s *session) error { return q.writeResult(s, a, r) })
	if err == nil {
		err = q.persist(func(*session) error { return q.remove(a) })
	}
	if err != nil {
		q.removeDelivery(a)
		return
	}
	q.announceRemoved(a)
}

// persist calls write until it succeeds. It stops only at the end of the process, or if another process has changed the item.
func (q *Queue) persist(write func(*session) error) error {
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := ErrUnavailable
		if s := q.current.Load(); s != nil {
			err = write(s)
		}
		if err == nil || !errors.Is(err, ErrUnavailable) {
			return err
		}
		if q.ending.Load() && wait > shutdownWriteTimeout/4 {
			return err
		}
		select {
		case <-q.life.Done():
			return err
		case <-time.After(wait):
		}
	}
}

func (q *Queue) writeResult(s *session, a *activeDelivery, r *itemState) error {
	now := time.Now()
	keep := max(cmp.Or(a.results, time.Hour), time.Second)
	r.attempts, r.changed, r.expires, r.itemHeader = a.attempts, now, now.Add(keep), &a.itemHeader
	subject := q.subject("result", a.id)
	ctx, cancel := context.WithTimeout(q.life, requestTimeout)
	defer cancel()
	m := &nats.Msg{Subject: subject, Data: q.cipher.encrypt(subject, r.encode())}
	_, err := s.js.PublishMsg(ctx, m, jetstream.WithMsgTTL(keep.Round(time.Second)))
	return q.checked(s, err)
}

// remove deletes an item and then its state. In the reverse order, a crash would leave an item without state, as a new one.
func (q *Queue) remove(a *activeDelivery) error {
	s := q.current.Load()
	if s == nil {
		return ErrUnavailable
	}
	ctx, cancel := context.WithTimeout(q.life, requestTimeout)
	defer cancel()
	q.puts.await(a.id) // so that the ledger records the end after the start
	q.ledger.end(a.id)
	if err := q.checked(s, deleted(s.items.DeleteMsg(ctx, a.itemSeq))); err != nil {
		return err
	}
	if a.stateSeq == 0 {
		return nil
	}
	return q.checked(s, deleted(s.states.DeleteMsg(ctx, a.stateSeq)))
}

// deleted returns err, or nil if the message did not exist.
func deleted(err error) error {
	if errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
		for _, text := range []string{"err_code=10043", "no message found", "message deleted", "message not found"} {
			if strings.Contains(err.Error(), text) {
				return nil
			}
		}
	}
	return err
}

// announceRemoved removes an item from the index and notifies the other instances.
func (q *Queue) announceRemoved(a *activeDelivery) {
	q.removeDelivery(a)
	s := q.current.Load()
	if s == nil {
		return
	}
	s.index.drop(a.id)
	if q.shared() {
		_ = s.conn.Publish(q.subject("finished", a.id), nil)
	}
}

// refresh reads the state of an item that another process has changed.
func (q *Queue) refresh(a *activeDelivery) {
	s := q.current.Load()
	if s == nil {
		q.removeDelivery(a)
		return
	}
	ctx, cancel := context.WithTimeout(q.life, requestTimeout)
	defer cancel()
	r, seq, err := q.stateOf(ctx, s, a.id)
	if errors.Is(err, ErrNotFound) {
		r, seq = &itemState{state: Queued, expires: a.expiry}, 0
		_, err = q.last(ctx, s.items, "item", a.id)
	}
	switch {
	case errors.Is(err, ErrNotFound):
		q.announceRemoved(a)
	case err != nil:
		a.reschedule(time.Now().Add(q.cfg.MinBackoff), time.Time{}, time.Time{})
	default:
		s.index.finish(a, seq, r)
	}
}

// writeState replaces the state with sequence number over. It returns errClaimed if that is not the last one.
func (q *Queue) writeState(id string, over uint64, r *itemState) (seq uint64, err error) {
	s := q.current.Load()
	if s == nil {
		return 0, ErrUnavailable
	}
	subject := q.subject("state", id)
	ctx, cancel := context.WithTimeout(q.life, requestTimeout)
	defer cancel()
	m := &nats.Msg{Subject: subject, Data: q.cipher.encrypt(subject, r.encode())}
	ack, err := s.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(over))
	var refused *jetstream.APIError
	if errors.As(err, &refused) && (refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) {
		return 0, errClaimed
	}
	if err := q.checked(s, err); err != nil {
		return 0, err
	}
	if over > 0 {
		return ack.Sequence, nil
	}
	// There was no state: no attempt was made, or the item and then its state were removed.
	if _, err := q.last(ctx, s.items, "item", id); errors.Is(err, ErrNotFound) {
		_ = s.states.DeleteMsg(ctx, ack.Sequence)
		return 0, errClaimed
	} else if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// stateOf reads the state of an item and its sequence number.
func (q *Queue) stateOf(ctx context.Context, s *session, id string) (*itemState, uint64, error) {
	return q.readState(ctx, s.states, "state", id)
}

func (q *Queue) readState(ctx context.Context, from jetstream.Stream, kind, id string) (*itemState, uint64, error) {
	m, err := q.last(ctx, from, kind, id)
	if err != nil {
		return nil, 0, err
	}
	r, err := q.cipher.openState(m.Subject, m.Data)
	return &r, m.Sequence, err
}

// last reads the message of an item from a stream.
func (q *Queue) last(ctx context.Context, from jetstream.Stream, kind, id string) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	m, err := from.GetLastMsgForSubject(ctx, q.subject(kind, id))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, ErrNotFound
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return m, nil
}

// checked handles the error of a write: it reports a failed session and wraps the error.
func (q *Queue) checked(s *session, err error) error {
	if err == nil {
		return nil
	}
	q.fault(s, err)
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
