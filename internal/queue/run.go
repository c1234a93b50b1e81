package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	firstReopen = time.Second / 4 // after a fault
	lastReopen  = 5 * time.Second // at most between two tries
	// givingUp is how long a result may take to be written when the process ends.
	givingUp = 2 * time.Second
)

// Run delivers until the context ends, and keeps the queue open. Deliveries that are under way then have Drain to end.
func (q *Queue) Run(ctx context.Context) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	keeping, done := context.WithCancel(context.WithoutCancel(ctx))
	var keeper, workers sync.WaitGroup
	keeper.Go(func() { q.keep(keeping) })
	if q.cfg.Deliver != nil {
		q.dispatch(ctx, work, &workers)
	}
	<-ctx.Done()
	q.ending.Store(true)
	drained := time.AfterFunc(q.cfg.Drain, stop)
	workers.Wait()
	drained.Stop()
	stop()
	done()
	keeper.Wait()
	return nil
}

// dispatch has items tried until ctx ends.
func (q *Queue) dispatch(ctx, work context.Context, workers *sync.WaitGroup) {
	slots := make(chan struct{}, q.cfg.Workers)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		f := q.next(ctx)
		if f == nil {
			return
		}
		workers.Go(func() {
			q.fly(work, f)
			<-slots
		})
	}
}

// next waits for an item to try.
func (q *Queue) next(ctx context.Context) *flight {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if ctx.Err() != nil {
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

// keep opens the queue again after faults, and buries what is overdue.
func (q *Queue) keep(ctx context.Context) {
	tick := time.NewTicker(q.cfg.sweep)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-q.broken:
			q.reopen(ctx, s)
		case <-tick.C:
			q.sweep()
		}
	}
}

// fault is told of what could not be written. A server outside heals by itself; the one in this process is started anew,
// since it writes no more after a fault of the disk.
func (q *Queue) fault(s *session, err error) {
	if !q.shared() {
		q.broke(s, err)
	}
}

func (q *Queue) broke(s *session, err error) {
	if q.current.CompareAndSwap(s, nil) {
		q.log.Error("the queue cannot be written: nothing is kept until it can", "error", err)
		q.broken <- s
	}
}

// reopen tries until it can.
func (q *Queue) reopen(ctx context.Context, s *session) {
	if s != nil {
		s.close()
	}
	for wait := firstReopen; ; wait = min(2*wait, lastReopen) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		err := q.open()
		if err == nil {
			q.log.Info("the queue can be written again")
			return
		}
		q.log.Warn("the queue still cannot be written", "error", err)
	}
}

// sweep looks at the server, and at what waits for longer than it should.
func (q *Queue) sweep() {
	s := q.current.Load()
	if s == nil {
		return
	}
	if err := s.sound(); err != nil {
		q.broke(s, err)
		return
	}
	s.index.tidy(time.Now())
	if q.cfg.Deliver == nil {
		return
	}
	expired, forgotten := s.index.overdue(time.Now())
	for _, f := range expired {
		q.bury(f, "it was not delivered in time", nil)
	}
	for _, f := range forgotten {
		// Who replays it just now is not to find it gone.
		seq, err := q.writeState(f.id, f.stateSeq, &record{state: Cancelled, owner: q.owner, changed: time.Now()})
		if err != nil {
			q.landed(f)
			continue
		}
		f.stateSeq = seq
		q.log.Warn("a dead request is dropped: it was kept for as long as was asked", "id", f.id, "rule", f.rule)
		q.removed(f, &record{state: Cancelled})
	}
}

// sound tells what does not pass by itself: a server in this process that has stopped, or one outside that lost the streams.
func (s *session) sound() error {
	if s.server != nil && !s.server.JetStreamEnabled() {
		return errors.New("JetStream has stopped")
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerIn)
	defer cancel()
	for _, stream := range []jetstream.Stream{s.items, s.states, s.results} {
		info, err := stream.Info(ctx)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
		if err == nil && stream == s.items && s.isDeaf(info.State.Msgs) {
			return errors.New("there are requests that nothing was heard of")
		}
	}
	return nil
}

// deaf is for how many sweeps in a row nothing may be heard of items that are there.
const deaf = 3

// isDeaf tells whether items were stored that the stream does not tell of: who follows it may have been lost with a server.
func (s *session) isDeaf(stored uint64) bool {
	heard := s.heard.Load()
	if stored <= uint64(s.index.len())+s.unread.Load() || heard != s.heardBefore {
		s.heardBefore, s.silent = heard, 0
		return false
	}
	s.silent++
	return s.silent >= deaf
}

// persist has something written, again and again until it is. Only the end of the process, or somebody who was faster,
// stops it.
func (q *Queue) persist(write func(*session) error) error {
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := ErrUnavailable
		if s := q.current.Load(); s != nil {
			err = write(s)
		}
		if err == nil || !errors.Is(err, ErrUnavailable) {
			return err
		}
		if q.ending.Load() && wait > givingUp/4 {
			return err
		}
		time.Sleep(wait)
	}
}

// clearStrays removes states whose items are no more.
func (q *Queue) clearStrays(s *session) {
	ctx, cancel := context.WithTimeout(context.Background(), loadIn)
	defer cancel()
	for id, seq := range s.index.strays() {
		if _, err := q.last(ctx, s.items, "item", id); errors.Is(err, ErrNotFound) {
			_ = s.states.DeleteMsg(ctx, seq)
			s.index.drop(id)
		}
	}
}
