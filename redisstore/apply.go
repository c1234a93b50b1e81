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

// engine is the store as a [sluice.Limiter] calls it: with compiled operations instead of takes.
type engine struct{ *Store }

// ApplyOps is Apply for compiled operations.
func (s engine) ApplyOps(ctx context.Context, ops []group.Op, out []group.Answer) error {
	if len(ops) == 0 {
		return ctx.Err()
	}
	if _, err := s.connected(); err != nil {
		return unavailable(err)
	}
	return s.applyOps(ctx, ops, out)
}

// ShardOf is Shard for a compiled operation.
func (s engine) ShardOf(op *group.Op) int { return s.shard(op.Key, op.HashTag) }

// connected returns the link to the servers, or the error that explains why there is none.
func (s *Store) connected() (*link, error) {
	if l := s.link.Load(); l != nil {
		return l, nil
	}
	return nil, s.connectLater()
}

// applyOps applies ops after the store has been connected, when the kind of the servers is known.
func (s *Store) applyOps(ctx context.Context, ops []group.Op, out []group.Answer) error {
	if s.names.tagged && len(ops) > 1 {
		if groups := s.groupBySlot(ops); len(groups) > 1 {
			return s.applyBySlot(ctx, groups, out)
		}
	}
	return s.applyTogether(ctx, ops, out)
}

// applyTogether applies ops that share a hash slot, in one call.
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

// runWithDeadline runs a call and returns when ctx ends, even if the client does not return. The client honours
// deadlines while it has a connection. But while it connects to a server that accepts the connection and sends nothing,
// a caller can wait for 1 s, and so do callers that arrive later, regardless of their deadlines.
//
// A goroutine per call would cost more than the call itself, so one is started only while the store is unavailable.
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

// applyTracked runs a call and records whether the store was unavailable.
func (s *Store) applyTracked(ctx context.Context, c *call) error {
	err := s.apply(ctx, c)
	if wrong := errors.Is(err, sluice.ErrUnavailable); wrong != s.unavailable.Load() {
		s.unavailable.Store(wrong)
	}
	return err
}

// apply runs a call.
func (s *Store) apply(ctx context.Context, c *call) error {
	if len(c.ops) > maxTakes {
		return fmt.Errorf("redisstore: %w: %d takes in one call, at most %d are allowed",
			sluice.ErrInvalid, len(c.ops), maxTakes)
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

// announce records, at the server, the limit parameters under which the call will write states, so that other instances
// can convert these states. Each instance records them once. A failure does not delay the call: other instances then
// treat such a state as fully used.
func (s *Store) announce(ctx context.Context, c *call) {
	for i := range c.ops {
		o := &c.ops[i]
		if !o.isRecorded() {
			s.consult(ctx, o.Rule, o.isRecorded, func() error { return s.record(ctx, o) })
		}
	}
}

// isRecorded reports whether the server has a record of the take's limit parameters.
func (o *op) isRecorded() bool { return o.recorded.Now().Has(o.Params) }

// sendAgain runs the script, and runs it again, once for each of the two reasons for which the script changes nothing.
func (s *Store) sendAgain(ctx context.Context, c *call, around int64) (*reply, error) {
	stale := false
	for {
		r, err := s.send(ctx, c, around)
		switch {
		case err != nil:
			return nil, err
		case r.verdicts == staleVerdict && !stale: // the server's clock is far from ours; its time is in the reply
			stale, around = true, r.now
		case r.verdicts == staleVerdict:
			return nil, fmt.Errorf("redisstore: %w: the server's clock jumped between two calls", sluice.ErrUnavailable)
		case r.verdicts == changedVerdict && c.told == nil:
			s.explain(ctx, c, r.changed)
			c.tell(&s.registry)
		case r.verdicts == changedVerdict:
			return nil, fmt.Errorf("redisstore: %w: the script received all limit parameters and requested more: this is a bug, please report it",
				sluice.ErrUnavailable)
		default:
			return r, nil
		}
	}
}

// send runs the script once and parses its reply.
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

// micro returns the current time in microseconds, close to the time that the script uses.
func (s *Store) micro() int64 {
	if s.now != nil {
		return min(max(s.now().UnixMicro(), 1), step.MaxTime-3*step.Horizon/2)
	}
	return s.wall().UnixMicro()
}

// Patience returns how long a server may still take to reply; see [sluice.Arrivals]. It returns 0, false if the client
// is the caller's, because its connections are then unknown.
func (s *Store) Patience(budget time.Duration) (left time.Duration, own bool) {
	if l := s.link.Load(); l != nil && l.dialer != nil {
		return l.dialer.patience(budget)
	}
	return 0, false
}
