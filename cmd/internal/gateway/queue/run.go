package queue

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	firstReopen = time.Second / 4 // first interval after a failure
	lastReopen  = 5 * time.Second // maximum interval between two attempts
	// shutdownWriteTimeout is the time for writing results during the shutdown.
	shutdownWriteTimeout = 2 * time.Second
)

// Run keeps the queue open until ctx is done. Then Next returns no more deliveries, and deliveries in flight have the time Drain
// to end.
func (q *Queue) Run(ctx context.Context) error {
	keeping, done := context.WithCancel(context.WithoutCancel(ctx))
	var keeper sync.WaitGroup
	keeper.Go(func() { q.maintain(keeping) })
	<-ctx.Done()
	q.mu.Lock()
	q.ending.Store(true)
	q.mu.Unlock()
	q.wake() // so that calls of Next return
	drained := time.AfterFunc(max(q.cfg.Drain-shutdownWriteTimeout, q.cfg.Drain/2), q.stopWork)
	over := time.AfterFunc(q.cfg.Drain, q.end) // does not wait for an unavailable server
	q.out.Wait()
	drained.Stop()
	over.Stop()
	q.stopWork()
	done()
	keeper.Wait()
	return nil
}

// maintain reopens the queue after failures and ends expired items.
func (q *Queue) maintain(ctx context.Context) {
	tick := time.NewTicker(q.cfg.sweep)
	defer tick.Stop()
	expiry := time.NewTimer(q.cfg.sweep)
	defer expiry.Stop()
	var looked, rested time.Time // time of the last check for expired items, and earliest time of the next one
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-q.broken:
			q.reopen(ctx, s)
		case <-tick.C:
			q.sweep(ctx)
		case <-q.sooner:
		case <-expiry.C:
			looked = time.Now()
			q.expire()
			rested = time.Now().Add(max(minExpireInterval, 10*time.Since(looked)))
		}
		next := looked.Add(q.cfg.sweep)
		if s := q.current.Load(); s != nil && q.cfg.Delivers {
			if at := s.index.firstExpiry(); !at.IsZero() && at.Before(next) {
				next = at
			}
		}
		expiry.Reset(max(time.Until(next), time.Until(rested), 0))
	}
}

// firstExpiry returns the earliest expiry of the queued items, or zero.
func (x *index) firstExpiry() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.expiry
}

// reopen opens the queue again. It retries until it succeeds or ctx is done.
func (q *Queue) reopen(ctx context.Context, s *session) {
	if s != nil {
		s.close()
	}
	q.ledger.pause()
	for wait := firstReopen; ; wait = min(2*wait, lastReopen) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		err := q.open(ctx)
		if err == nil {
			q.log.Info("queue writable again")
			return
		}
		q.why.Store(&err)
		q.log.Warn("queue still not writable", "error", err)
	}
}

// minExpireInterval is the minimum interval between two checks for expired items. The interval grows with the number of items,
// so that the checks take at most 10 % of a CPU.
const minExpireInterval = 50 * time.Millisecond

// expire ends expired items.
func (q *Queue) expire() {
	s := q.current.Load()
	if s == nil || !q.cfg.Delivers {
		return
	}
	expired, forgotten := s.index.overdue(time.Now())
	for _, a := range expired {
		q.deadLetter(a, "expired before delivery", nil)
	}
	for _, a := range forgotten {
		// Fails if the dead letter is requeued concurrently.
		seq, err := q.writeState(a.id, a.stateSeq, &itemState{state: Cancelled, owner: q.owner, changed: time.Now()})
		if err != nil {
			q.removeDelivery(a)
			continue
		}
		a.stateSeq = seq
		q.log.Warn("dead letter expired", "queue_item", a.id, "rule", a.rule)
		q.finishRemoved(a, &itemState{state: Cancelled})
	}
}

// overdue returns expired items that no worker delivers: queued items and dead letters.
func (x *index) overdue(now time.Time) (expired, forgotten []*activeDelivery) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.expiry = time.Time{}
	for _, e := range x.all {
		switch {
		case e.phase != idle: // checked after its delivery
		case e.state == Queued && !e.expiry.After(now):
			x.scheduler.remove(e)
			expired = append(expired, x.deliveryOf(e))
		case e.state == Queued:
			if x.expiry.IsZero() || e.expiry.Before(x.expiry) {
				x.expiry = e.expiry
			}
		case e.state == Dead && x.q.cfg.DeadLetterTTL > 0 && e.changed.Add(x.q.cfg.DeadLetterTTL).Before(now):
			forgotten = append(forgotten, x.deliveryOf(e))
		}
	}
	return expired, forgotten
}

// sweep checks the server and cleans the index.
func (q *Queue) sweep(ctx context.Context) {
	s := q.current.Load()
	if s == nil {
		return
	}
	if err := q.checkSession(ctx, s); err != nil {
		q.sessionFailed(s, err)
		return
	}
	q.ledger.keep()
	q.removeRejected(s, time.Now())
	s.index.tidy(time.Now())
}

// checkSession returns an error if the session cannot recover: the embedded server has stopped, or an external one has lost the
// streams.
func (q *Queue) checkSession(ctx context.Context, s *session) error {
	if s.server != nil && !s.server.JetStreamEnabled() {
		return errors.New("JetStream has stopped")
	}
	if s.place != nil {
		if err := s.place.present(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for _, stream := range []jetstream.Stream{s.items, s.states, s.results} {
		info, err := stream.Info(ctx)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
		if err != nil && ctx.Err() != nil && context.Cause(ctx) != context.Canceled {
			q.fault(s, err)
			return nil
		}
		if err == nil && stream == s.items && s.consumerStalled(info.State.Msgs) {
			return errors.New("stored items are not received")
		}
	}
	return nil
}

// stalledSweeps is the number of consecutive sweeps without a received item, despite stored items, after which a consumer is
// considered lost.
const stalledSweeps = 3

// consumerStalled reports whether stored items are not received, because the consumer may have been lost with a server.
func (s *session) consumerStalled(stored uint64) bool {
	heard := s.itemsReceived.Load()
	if stored <= uint64(s.index.len())+s.unreadableAtStart || heard != s.receivedAtSweep {
		s.receivedAtSweep, s.stalledCount = heard, 0
		return false
	}
	s.stalledCount++
	return s.stalledCount >= stalledSweeps
}

// tidy removes old entries of removed items, of which the streams deliver no more messages.
func (x *index) tidy(now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.removed, func(_ string, at time.Time) bool { return now.Sub(at) > removedTTL })
}

// sessionFailed ends a session that is not writable. maintain opens the next one.
func (q *Queue) sessionFailed(s *session, err error) {
	if q.current.CompareAndSwap(s, nil) {
		q.why.Store(&err)
		q.log.Error("queue not writable: requests are not queued", "error", err)
		q.broken <- s
	}
}

// fault handles the error of a write. An external server is polled until it replies; until then nothing is accepted. The
// embedded server is restarted, because it does not write again after a disk error.
func (q *Queue) fault(s *session, err error) {
	if !q.shared() {
		q.sessionFailed(s, err)
		return
	}
	if errors.As(err, new(*jetstream.APIError)) || q.life.Err() != nil || !s.silentSince.CompareAndSwap(nil, &err) {
		return
	}
	q.log.Error("queue unavailable: no reply from NATS", "error", err)
	q.beside.Go(func() { q.heal(s) }) // ends with the session
}

// heal polls an unavailable server until it replies.
func (q *Queue) heal(s *session) {
	for {
		select {
		case <-s.life.Done():
			return
		case <-q.life.Done():
			return
		case <-time.After(firstReopen):
		}
		ctx, cancel := context.WithTimeout(s.life, requestTimeout)
		_, err := s.items.Info(ctx)
		cancel()
		if err == nil {
			s.silentSince.Store(nil)
			q.log.Info("queue available again")
			q.wake()
			return
		}
	}
}
