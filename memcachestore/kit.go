package memcachestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/goroutines"
	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/internal/step"
	"github.com/sluiceproject/sluice/internal/storekit"
)

// kit is a store on any backend: it encodes states, decides takes, and serializes the callers of a key in this process,
// so that they do not lose swaps to each other. The kit files use nothing of the other files, so that they can become a
// public package.
type kit struct {
	kitConfig
	shards   []shard
	clock    clock
	keyLocks keyLocks
	helpers  goroutines.Group

	casConflicts, refunds atomic.Int64
}

// kitConfig configures a kit.
type kitConfig struct {
	pkg       string                // package of the store, the prefix of errors
	keyPrefix string                // of every stored key
	timeout   time.Duration         // of a call, unless its context ends earlier
	now       func() time.Time      // replaces the clock in tests; nil means the wall clock
	pick      func(hash uint64) int // chooses the shard of an item by a hash of its key; nil with one shard
}

// shard is a backend, and the limit parameters that are recorded there by rule.
type shard struct {
	backend
	rules group.Registry
}

func newKit(c kitConfig, backends []backend) *kit {
	s := &kit{kitConfig: c, shards: make([]shard, len(backends))}
	for i, b := range backends {
		s.shards[i].backend = b
	}
	return s
}

// close waits for calls that run in the background. They end when the backends are closed.
func (s *kit) close() { s.helpers.Close() }

// Apply applies the takes; see [sluice.Store].
func (s *kit) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	return storekit.Apply(ctx, s.pkg, s, takes, out)
}

// ApplyOps is Apply for compiled operations; see [private.Engine].
func (s *kit) ApplyOps(ctx context.Context, ops []group.Op, out []group.Answer) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(ops) == 0 {
		return nil
	}
	c := s.newCall(slices.Clone(ops)) // a caller that gives up may leave the call to others
	if err := c.publish(ctx); err != nil {
		return err
	}
	run := s.applyMultiKey
	if len(c.units) == 1 {
		run = s.applyOneKey
	}
	if err := run(ctx, c); err != nil {
		return err
	}
	for i := range c.ops {
		out[i] = group.AnswerOf(c.ops[i].Params, &c.group.Out[i])
	}
	return nil
}

// ShardOf returns the shard of an op; see [private.Engine].
func (s *kit) ShardOf(op *group.Op) int { return s.shardOf(op.Rule, op.Key) }

func (s *kit) shardOf(rule group.RuleID, key string) int {
	if len(s.shards) == 1 {
		return 0 // the digest is not needed
	}
	return s.place(itemDigest(rule, key))
}

// Reset removes the usage of a bucket and lifts its block, even if the stored state cannot be decoded.
func (s *kit) Reset(ctx context.Context, b sluice.Bucket) error {
	return s.change(ctx, "reset", b, replace, func(it *item, _ int64) { it.reset(private.ParamsOf(b.EffectiveLimit())) })
}

// Block denies a bucket's takes for d; 0 lifts the block.
func (s *kit) Block(ctx context.Context, b sluice.Bucket, d time.Duration) error {
	return s.change(ctx, "block", b, fail, func(it *item, now int64) {
		it.blocked = 0
		if d > 0 {
			it.blocked = min(now+d.Microseconds(), step.MaxTime)
		}
	})
}

// Blocked returns the remaining time of the bucket's block, or 0 if it is not blocked.
func (s *kit) Blocked(ctx context.Context, b sluice.Bucket) (left time.Duration, err error) {
	err = s.onBucket(ctx, "blocked", b, func(ctx context.Context, u *unit) error {
		if err := s.read(ctx, []*unit{u}); err != nil {
			return err
		}
		left = time.Duration(max(0, u.item.blocked-s.micros())) * time.Microsecond
		return nil
	})
	return left, err
}

func (s *kit) change(ctx context.Context, what string, b sluice.Bucket, bad unreadable, f changer) error {
	return s.onBucket(ctx, what, b, func(ctx context.Context, u *unit) error { return s.update(ctx, u, bad, f) })
}

// onBucket runs f while it holds the bucket's lock.
func (s *kit) onBucket(ctx context.Context, what string, b sluice.Bucket, f func(ctx context.Context, u *unit) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := private.CheckBucket(&b); err != nil {
		return fmt.Errorf("%s: %s: %w", s.pkg, what, err)
	}
	u := s.unit(private.RuleOf(b.Rule).ID, b.Key)
	return s.applyKey(ctx, what, []*unit{u}, func(ctx context.Context) error { return f(ctx, u) })
}

// applyMultiKey runs a call on several items.
func (s *kit) applyMultiKey(ctx context.Context, c *call) error {
	return s.applyKey(ctx, "take", c.units, c.run)
}

// applyKey runs f while it holds the locks of all the units.
func (s *kit) applyKey(ctx context.Context, what string, units []*unit, f func(ctx context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	keys := make([]digest, len(units))
	for i, u := range units {
		keys[i] = u.digest
	}
	if err := s.keyLocks.wait(bounded, keys); err != nil {
		return s.failure(ctx, what, err)
	}
	defer s.keyLocks.leave(keys)
	return s.failure(ctx, what, f(bounded))
}

// Ping reads an unused key from every shard.
func (s *kit) Ping(ctx context.Context) error {
	return s.eachShard(ctx, "ping", func(ctx context.Context, i int) error {
		return s.shards[i].get(ctx, []string{s.unusedKey()}, make([]stored, 1))
	})
}

// eachShard runs f for every shard, one after the other, within the timeout of one call.
func (s *kit) eachShard(ctx context.Context, what string, f func(ctx context.Context, i int) error) error {
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var faults []error
	for i := range s.shards {
		faults = append(faults, f(bounded, i))
	}
	return s.failure(ctx, what, errors.Join(faults...))
}

// failure converts an error for callers. If the caller's context ended, the error wraps the context's error; any other
// error means that the store is unavailable. An error never results in a decision.
func (s *kit) failure(ctx context.Context, what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sluice.ErrClosed):
		return fmt.Errorf("%s: %s: %w", s.pkg, what, sluice.ErrClosed)
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("%s: %s: %w: %v", s.pkg, what, ctx.Err(), err)
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %s: %w: %w: %v", s.pkg, what, sluice.ErrUnavailable, ctx.Err(), err)
	}
	return fmt.Errorf("%s: %s: %w: %w", s.pkg, what, sluice.ErrUnavailable, err)
}
