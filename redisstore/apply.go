package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
	"github.com/sluiceproject/sluice/internal/storekit"
)

// Apply applies the takes, all or nothing; see [sluice.Store].
func (s *Store) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	return storekit.Apply(ctx, "redisstore", engine{s}, takes, out)
}

// engine is how a limiter asks the store.
type engine struct{ *Store }

// ApplyOps is Apply, in integers.
func (s engine) ApplyOps(ctx context.Context, ops []group.Op, out []group.Answer) error {
	if len(ops) == 0 {
		return ctx.Err()
	}
	if _, err := s.connected(); err != nil {
		return unavailable(err)
	}
	return s.applyOps(ctx, ops, out)
}

// ShardOf is Shard, of an op.
func (s engine) ShardOf(op *group.Op) int { return s.shard(op.Key, op.HashTag) }

// connected is the link to the servers, or why there is none.
func (s *Store) connected() (*link, error) {
	if l := s.link.Load(); l != nil {
		return l, nil
	}
	return nil, s.connectLater()
}

// applyOps applies ops at servers that are known.
func (s *Store) applyOps(ctx context.Context, ops []group.Op, out []group.Answer) error {
	if s.names.tagged && len(ops) > 1 {
		if groups := s.groupBySlot(ops); len(groups) > 1 {
			return s.applyBySlot(ctx, groups, out)
		}
	}
	return s.applyTogether(ctx, ops, out)
}

// applyTogether applies ops of one slot.
func (s *Store) applyTogether(ctx context.Context, ops []group.Op, out []group.Answer) error {
	c, err := newCall(&s.names, s.recorded.Load(), ops)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.batcher.apply(ctx, c); err != nil {
		return err
	}
	for i := range ops {
		out[i] = group.AnswerOf(ops[i].Params, &c.answers[i])
	}
	c.recycle(&idleCalls)
	return nil
}

// runWithDeadline runs a call, and returns when the caller's time is up even if the client does not. It keeps to the time while
// it has a connection; but a caller for whom it makes one can wait for a second on a server that accepts and says
// nothing, and whoever comes meanwhile waits with it, whatever their time.
//
// A goroutine for each call would cost more than the rest of it. So there is one only while something is wrong.
func (s *Store) runWithDeadline(ctx context.Context, c *call) error {
	if !s.unavailable.Load() {
		return s.applyTracked(ctx, c)
	}
	done := make(chan error, 1)
	if !s.connector.calls.Go(func() { done <- s.applyTracked(ctx, c) }) {
		return s.applyTracked(ctx, c)
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		select {
		case err := <-done:
			return err
		default:
		}
		return fmt.Errorf("redisstore: %w: %w: the takes may have been charged", sluice.ErrUnavailable, ctx.Err())
	}
}

// applyTracked runs a call and notes whether something is wrong.
func (s *Store) applyTracked(ctx context.Context, c *call) error {
	err := s.apply(ctx, c)
	if wrong := errors.Is(err, sluice.ErrUnavailable); wrong != s.unavailable.Load() {
		s.unavailable.Store(wrong)
	}
	return err
}

// apply runs a call.
func (s *Store) apply(ctx context.Context, c *call) error {
	if len(c.ops) > mostTakes {
		return fmt.Errorf("redisstore: %w: %d takes in one call, at most %d are allowed",
			sluice.ErrInvalid, len(c.ops), mostTakes)
	}
	s.announce(ctx, c)
	c.place()
	wall := s.micro()
	s.hints.addHints(c, wall)
	if c.mixed {
		c.tell(&s.registry)
	}
	r, err := s.sendAgain(ctx, c, wall)
	if err != nil {
		s.hints.failed(err)
		return err
	}
	if err := c.replay(r); err != nil {
		return fmt.Errorf("%w: %w", sluice.ErrUnavailable, err)
	}
	s.hints.learn(c, r, wall)
	return nil
}

// announce makes the numbers known to all processes that a call's states will be written under, unless this process has
// done so before. What cannot be made known holds nobody up: others then take such a state for one that is all used.
func (s *Store) announce(ctx context.Context, c *call) {
	for i := range c.ops {
		o := &c.ops[i]
		if !o.isRecorded() {
			s.consult(ctx, o.Rule, o.isRecorded, func() error { return s.record(ctx, o) })
		}
	}
}

// isRecorded reports whether the server is known to know the take's numbers.
func (o *op) isRecorded() bool { return o.recorded.Now().Has(o.Params) }

// sendAgain runs the script, and once more for each reason that it may give for having changed nothing.
func (s *Store) sendAgain(ctx context.Context, c *call, around int64) (*reply, error) {
	stale := false
	for {
		r, err := s.send(ctx, c, around)
		switch {
		case err != nil:
			return nil, err
		case r.verdicts == staleVerdict && !stale: // the server's clock is far from ours; now its time is known
			stale, around = true, r.now
		case r.verdicts == staleVerdict:
			return nil, fmt.Errorf("redisstore: %w: the server's clock jumped between two calls", sluice.ErrUnavailable)
		case r.verdicts == changedVerdict && c.told == nil:
			s.explain(ctx, c, r.changed)
			c.tell(&s.registry)
		case r.verdicts == changedVerdict:
			return nil, fmt.Errorf("redisstore: %w: the script was told all numbers and asks for more: this is a bug, please report it",
				sluice.ErrUnavailable)
		default:
			return r, nil
		}
	}
}

// send runs the script and reads what it says.
func (s *Store) send(ctx context.Context, c *call, around int64) (*reply, error) {
	var now int64
	if s.now != nil {
		now = s.micro()
		around = now
	}
	nonce := int64(s.nonce.Add(1) & (1<<50 - 1))
	message, err := s.run(ctx, c.keys, c.packed(now, nonce, s.extraTTL, around))
	if err != nil {
		return nil, err
	}
	r, err := c.read(message, nonce)
	if err != nil {
		if errors.Is(err, errMismatchedReply) {
			s.discard()
		}
		return nil, unavailable(fmt.Errorf("reply: %w", err))
	}
	return r, nil
}

// micro is a time near the script's.
func (s *Store) micro() int64 {
	if s.now != nil {
		return min(max(s.now().UnixMicro(), 1), step.MaxTime-3*step.Horizon/2)
	}
	return s.wall().UnixMicro()
}

// Patience is how long a server may still take to reply; see [sluice.Arrivals]. Of a client that is the caller's the
// connections are not known.
func (s *Store) Patience(budget time.Duration) (left time.Duration, own bool) {
	if l := s.link.Load(); l != nil && l.dialer != nil {
		return l.dialer.patience(budget)
	}
	return 0, false
}
