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
	firstReopen = time.Second / 4 // after a fault
	lastReopen  = 5 * time.Second // at most between two tries
	// shutdownWriteTimeout is how long a result may take to be written when the process ends.
	shutdownWriteTimeout = 2 * time.Second
)

// Run keeps the queue open until the context ends. From then on nothing is handed out, and deliveries that are under way
// have Drain to end.
func (q *Queue) Run(ctx context.Context) error {
	keeping, done := context.WithCancel(context.WithoutCancel(ctx))
	var keeper sync.WaitGroup
	keeper.Go(func() { q.maintain(keeping) })
	<-ctx.Done()
	q.mu.Lock()
	q.ending.Store(true)
	q.mu.Unlock()
	q.wake() // who looks for an item finds out
	drained := time.AfterFunc(max(q.cfg.Drain-shutdownWriteTimeout, q.cfg.Drain/2), q.stopWork)
	over := time.AfterFunc(q.cfg.Drain, q.end) // a server that does not answer is not waited for
	q.out.Wait()
	drained.Stop()
	over.Stop()
	q.stopWork()
	done()
	keeper.Wait()
	return nil
}

// maintain reopens the queue after faults, and ends expired items.
func (q *Queue) maintain(ctx context.Context) {
	tick := time.NewTicker(q.cfg.sweep)
	defer tick.Stop()
	expiry := time.NewTimer(q.cfg.sweep)
	defer expiry.Stop()
	var looked, rested time.Time // when items were looked through, and from when on they may be again
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

// firstExpiry is when the first of the queued items expires, or zero.
func (x *index) firstExpiry() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.expiry
}

// reopen tries until it can.
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
			q.log.Info("the queue can be written again")
			return
		}
		q.why.Store(&err)
		q.log.Warn("the queue still cannot be written", "error", err)
	}
}

// minExpireInterval is how long at least items are not looked through for expired ones after that was done. The interval
// grows with the number of items, so that it takes at most 10 % of a CPU.
const minExpireInterval = 50 * time.Millisecond

// expire ends items whose time is over.
func (q *Queue) expire() {
	s := q.current.Load()
	if s == nil || !q.cfg.Delivers {
		return
	}
	expired, forgotten := s.index.overdue(time.Now())
	for _, a := range expired {
		q.deadLetter(a, "it was not delivered in time", nil)
	}
	for _, a := range forgotten {
		// Who replays it just now is not to find it gone.
		seq, err := q.writeState(a.id, a.stateSeq, &itemState{state: Cancelled, owner: q.owner, changed: time.Now()})
		if err != nil {
			q.removeDelivery(a)
			continue
		}
		a.stateSeq = seq
		q.log.Warn("a dead request is dropped: it was kept for as long as was asked", "id", a.id, "rule", a.rule)
		q.finishRemoved(a, &itemState{state: Cancelled})
	}
}

// overdue are items that no worker has and whose time is over: those that wait, and those that are dead.
func (x *index) overdue(now time.Time) (expired, forgotten []*activeDelivery) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.expiry = time.Time{}
	for _, e := range x.all {
		switch {
		case e.phase != idle: // it is looked at when it is back
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

// sweep looks at the server, and forgets what nothing tells of any more.
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

// checkSession returns an error that does not pass by itself: a server in this process that has stopped, or one outside that lost the streams.
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
			return errors.New("there are requests that nothing was heard of")
		}
	}
	return nil
}

// stalledSweeps is for how many consecutive sweeps a consumer may receive none of the stored items.
const stalledSweeps = 3

// consumerStalled reports whether stored items are not received: the consumer may have been lost with a server.
func (s *session) consumerStalled(stored uint64) bool {
	heard := s.itemsReceived.Load()
	if stored <= uint64(s.index.len())+s.unreadableAtStart || heard != s.receivedAtSweep {
		s.receivedAtSweep, s.stalledCount = heard, 0
		return false
	}
	s.stalledCount++
	return s.stalledCount >= stalledSweeps
}

// tidy forgets what the streams will not tell of any more.
func (x *index) tidy(now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.removed, func(_ string, at time.Time) bool { return now.Sub(at) > removedTTL })
}

// sessionFailed ends a session that cannot be written. maintain opens the next.
func (q *Queue) sessionFailed(s *session, err error) {
	if q.current.CompareAndSwap(s, nil) {
		q.why.Store(&err)
		q.log.Error("the queue cannot be written: nothing is kept until it can", "error", err)
		q.broken <- s
	}
}

// fault is told of what could not be written. A server outside heals by itself: until it answers again, nothing is
// accepted. The one in this process is started anew, since it writes no more after a fault of the disk.
func (q *Queue) fault(s *session, err error) {
	if !q.shared() {
		q.sessionFailed(s, err)
		return
	}
	if errors.As(err, new(*jetstream.APIError)) || q.life.Err() != nil || !s.silentSince.CompareAndSwap(nil, &err) {
		return
	}
	q.log.Error("queue unavailable: the NATS server does not answer", "error", err)
	q.beside.Go(func() { q.heal(s) }) // ends with the session
}

// heal queries a server that did not answer until it does.
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
