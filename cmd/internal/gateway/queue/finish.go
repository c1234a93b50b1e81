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
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// conclude writes what came of a delivery.
func (q *Queue) conclude(f *flight, it *Item, out *Outcome) {
	now := time.Now()
	done, after := out.settled(now)
	if done {
		q.stats.delivered.Add(1)
		q.removed(f, &record{state: Done, result: kept(out, MaxResult)})
		return
	}
	q.stats.failed.Add(1)
	r := &record{state: Queued, attempts: f.attempts, changed: now, err: failure(out), expires: f.expiry}
	if q.ending.Load() && out.Status == 0 {
		q.written(f, r) // it is not the upstream's fault
		return
	}
	r.next = now.Add(max(q.backoff(f.attempts), after))
	if f.attempts >= it.Attempts || r.next.After(f.expiry) {
		q.bury(f, r.err, kept(out, maxDeadResult))
		return
	}
	q.written(f, r)
}

// maxDeadResult is how much is kept of the last answer to what is dead: it takes room until somebody looks.
const maxDeadResult = 4 << 10

func failure(out *Outcome) string {
	switch {
	case out.Err != nil && len(out.Err.Error()) > 500:
		return out.Err.Error()[:500]
	case out.Err != nil:
		return out.Err.Error()
	case out.Status == 0:
		return "there was no answer"
	}
	return fmt.Sprintf("the answer was %d %s", out.Status, http.StatusText(out.Status))
}

// backoff is how long to wait after so many attempts: twice as long each time, and a random part of it less.
func (q *Queue) backoff(attempts int) time.Duration {
	d := q.cfg.MinBackoff << min(max(attempts-1, 0), 30)
	if d <= 0 || d > q.cfg.MaxBackoff {
		d = q.cfg.MaxBackoff
	}
	return d/2 + rand.N(d/2+1)
}

// maxHeaderBytes is how much of an answer's headers is kept.
const maxHeaderBytes = 16 << 10

// kept is what is kept of an answer.
func kept(out *Outcome, most int) *Result {
	if out.Status == 0 {
		return nil
	}
	r := &Result{Status: out.Status, Header: http.Header{}, Body: out.Body, Truncated: len(out.Body) > most}
	if r.Truncated {
		bounds.QueueResult.Reached()
	}
	r.Body = r.Body[:min(len(r.Body), most)]
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

// bury puts an item on the list of the dead.
func (q *Queue) bury(f *flight, why string, last *Result) {
	if q.written(f, &record{state: Dead, attempts: f.attempts, changed: time.Now(), err: why, result: last, expires: f.expiry}) {
		q.stats.died.Add(1)
		q.logDead(f, why)
	}
}

// logDead logs one in a second, since an upstream that is away may leave thousands.
func (q *Queue) logDead(f *flight, why string) {
	q.mu.Lock()
	now := time.Now()
	if now.Sub(q.mourned) < time.Second {
		q.unmourned++
		q.mu.Unlock()
		return
	}
	more := q.unmourned
	q.mourned, q.unmourned = now, 0
	q.mu.Unlock()
	q.log.Warn("a kept request is dead: sluice queue dead lists such, sluice queue replay tries them again",
		"id", f.id, "rule", f.rule, "attempts", f.attempts, "error", why, "unreported", more)
}

// written writes the state that a flight ends with, unless somebody else wrote one.
func (q *Queue) written(f *flight, r *record) bool {
	var seq uint64
	err := q.persist(func(*session) (err error) {
		seq, err = q.writeState(f.id, f.stateSeq, r)
		return err
	})
	switch s := q.current.Load(); {
	case errors.Is(err, errTaken):
		q.refresh(f)
	case err != nil || s == nil:
		q.landed(f)
	default:
		s.index.settle(f, seq, r)
	}
	return err == nil
}

// removed writes what an item ended with, and removes it.
func (q *Queue) removed(f *flight, r *record) {
	err := q.persist(func(s *session) error { return q.writeResult(s, f, r) })
	if err == nil {
		err = q.persist(func(*session) error { return q.remove(f) })
	}
	if err != nil {
		q.landed(f)
		return
	}
	q.forget(f)
}

func (q *Queue) writeResult(s *session, f *flight, r *record) error {
	now := time.Now()
	keep := max(cmp.Or(f.results, time.Hour), time.Second)
	r.attempts, r.changed, r.expires, r.outline = f.attempts, now, now.Add(keep), &f.outline
	subject := q.subject("result", f.id)
	ctx, cancel := context.WithTimeout(q.life, answerIn)
	defer cancel()
	m := &natsMsg{Subject: subject, Data: q.seal.close(subject, r.encode())}
	_, err := s.js.PublishMsg(ctx, m, jetstream.WithMsgTTL(keep.Round(time.Second)))
	return q.checked(s, err)
}

// remove deletes an item, then its state: the other way round, a crash would leave an item that looks new.
func (q *Queue) remove(f *flight) error {
	s := q.current.Load()
	if s == nil {
		return ErrUnavailable
	}
	ctx, cancel := context.WithTimeout(q.life, answerIn)
	defer cancel()
	q.awaitPut(f.id) // its end is recorded after its beginning
	q.ledger.end(f.id)
	if err := q.checked(s, deleted(s.items.DeleteMsg(ctx, f.seq))); err != nil {
		return err
	}
	if f.stateSeq == 0 {
		return nil
	}
	return q.checked(s, deleted(s.states.DeleteMsg(ctx, f.stateSeq)))
}

// deleted is no error if there was nothing to delete.
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

// forget tells everybody that an item is no more.
func (q *Queue) forget(f *flight) {
	q.landed(f)
	s := q.current.Load()
	if s == nil {
		return
	}
	s.index.drop(f.id)
	if q.shared() {
		_ = s.conn.Publish(q.subject("finished", f.id), nil)
	}
}

// refresh finds out what became of an item that somebody else has changed.
func (q *Queue) refresh(f *flight) {
	s := q.current.Load()
	if s == nil {
		q.landed(f)
		return
	}
	ctx, cancel := context.WithTimeout(q.life, answerIn)
	defer cancel()
	r, seq, err := q.stateOf(ctx, s, f.id)
	if errors.Is(err, ErrNotFound) {
		r, seq = &record{state: Queued, expires: f.expiry}, 0
		_, err = q.last(ctx, s.items, "item", f.id)
	}
	switch {
	case errors.Is(err, ErrNotFound):
		q.forget(f)
	case err != nil:
		f.back(time.Now().Add(q.cfg.MinBackoff), time.Time{}, time.Time{})
	default:
		s.index.settle(f, seq, r)
	}
}

// writeState writes a state over the one that was read, and fails with errTaken if that is not the last.
func (q *Queue) writeState(id string, over uint64, r *record) (seq uint64, err error) {
	s := q.current.Load()
	if s == nil {
		return 0, ErrUnavailable
	}
	subject := q.subject("state", id)
	ctx, cancel := context.WithTimeout(q.life, answerIn)
	defer cancel()
	m := &natsMsg{Subject: subject, Data: q.seal.close(subject, r.encode())}
	ack, err := s.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(over))
	var refused *jetstream.APIError
	if errors.As(err, &refused) && (refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) {
		return 0, errTaken
	}
	if err := q.checked(s, err); err != nil {
		return 0, err
	}
	if over > 0 {
		return ack.Sequence, nil
	}
	// There was no state: nothing was tried yet, or all is over and it was removed, after the item.
	if _, err := q.last(ctx, s.items, "item", id); errors.Is(err, ErrNotFound) {
		_ = s.states.DeleteMsg(ctx, ack.Sequence)
		return 0, errTaken
	} else if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// stateOf reads a state.
func (q *Queue) stateOf(ctx context.Context, s *session, id string) (*record, uint64, error) {
	return q.readRecord(ctx, s.states, "state", id)
}

func (q *Queue) readRecord(ctx context.Context, from jetstream.Stream, kind, id string) (*record, uint64, error) {
	m, err := q.last(ctx, from, kind, id)
	if err != nil {
		return nil, 0, err
	}
	b, err := q.seal.open(m.Subject, m.Data)
	if err != nil {
		return nil, 0, err
	}
	r, err := decodeRecord(b)
	return &r, m.Sequence, err
}

// last reads a message by its id.
func (q *Queue) last(ctx context.Context, from jetstream.Stream, kind, id string) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, answerIn)
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

// checked reports what could not be written.
func (q *Queue) checked(s *session, err error) error {
	if err == nil {
		return nil
	}
	q.fault(s, err)
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
