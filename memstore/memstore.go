// Package memstore keeps buckets in the memory of this process: Sluice's embedded default.
//
//	limiter, err := sluice.New(memstore.New(), "api", sluice.PerMinute(100))
//
// A decision takes well under a microsecond, allocates nothing, and is exact under any number of goroutines. The store
// has no background goroutines and need not be closed.
//
// # Memory
//
// A key takes about 29 bytes. A sliding log takes 8 more per request in its window, a concurrency limit 8 per permit,
// and sub-windows about 88 in total. An expired bucket makes room for the next key. The store never exceeds its memory
// limit: when live keys fill it, further keys are counted together in a sketch of fixed size, which may deny too early
// and never allows too much. So a flood of random keys can neither exhaust memory nor reset the limit of other keys.
//
// The store keeps only keyed hashes of keys, unless Config.KeepKeys is set. The probability that any two of ten million
// live keys are confused is below 1e-9.
//
// # Time
//
// The store has its own clock: the process' monotonic clock, set by the wall clock at the start and moved forward with
// it, never back. If the wall clock is set back, the store clock continues until the wall clock has caught up, so that
// no key is locked out for longer than its limit requires; windows then end late by as much.
package memstore

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/internal/step"
	"github.com/sluiceproject/sluice/internal/storekit"
	"github.com/sluiceproject/sluice/internal/table"
)

// Config configures a store. The zero Config is valid.
type Config struct {
	// MaxBytes is the memory limit, at least 1 MiB. Default 256 MiB. Memory is allocated as needed.
	MaxBytes int64
	// SnapshotFile is a file that Open reads, if it exists, and SaveSnapshot writes, so that long quotas survive a
	// restart. Its directory must exist and be writable.
	SnapshotFile string
	// KeepKeys makes the store keep keys in addition to their hashes, so that List can return them. Keys use 1/8 of
	// MaxBytes, or less if less than 1 MiB would be left for the counts: by default there is room for 200,000 keys of
	// 20 bytes. Further keys are counted as usual and not listed.
	KeepKeys bool
	// Now replaces the clock in tests. It may run backwards.
	Now func() time.Time
}

// Store implements [sluice.Store] in memory. It is safe for concurrent use.
type Store struct {
	table        *table.Table
	clock        clock
	now          func() time.Time
	snapshotFile string
	keys         *keys // nil unless KeepKeys is set
}

var (
	_ sluice.Store      = (*Store)(nil)
	_ sluice.StoreAdmin = (*Store)(nil)
)

// New returns an empty store with the default memory limit.
func New() *Store {
	s := &Store{table: table.New(table.Config{})}
	s.clock.start()
	return s
}

// Open returns a store with the buckets of the snapshot file, if it exists. If the clock was set back by at most 24 h
// since the snapshot was saved, the store clock continues from the time of saving; if by more, the store is empty.
func Open(c Config) (*Store, error) {
	if c.MaxBytes != 0 && c.MaxBytes < table.MinBytes {
		return nil, fmt.Errorf("memstore: MaxBytes is %d: use at least %d (1 MiB), or 0 for the default of 256 MiB", c.MaxBytes, table.MinBytes)
	}
	s := &Store{now: c.Now, snapshotFile: c.SnapshotFile}
	s.clock.start()
	if c.Now != nil {
		s.clock.check.Store(0) // always use micros
	}
	var err error
	budget := cmp.Or(c.MaxBytes, table.DefaultBytes)
	forKeys := int64(0)
	if c.KeepKeys {
		forKeys = min(budget/8, budget-table.MinBytes)
	}
	s.table, err = s.open(table.Config{MaxBytes: budget - forKeys})
	if err != nil {
		return nil, err
	}
	if c.KeepKeys {
		s.keys = newKeys(s.table, forKeys)
	}
	return s, nil
}

func (s *Store) micros() int64 {
	if s.now != nil {
		return s.now().UnixMicro()
	}
	return s.clock.micros()
}

func init() {
	private.RegisterFast(func(store any) private.Fast {
		if s, ok := store.(*Store); ok {
			return fast{s}
		}
		return nil
	})
}

// fast is the store's fast path.
type fast struct{ *Store }

// TakeFast applies one take that has only a cost.
func (s fast) TakeFast(ctx context.Context, r *group.Rule, p *step.Params, key string, cost int64) (private.FastAnswer, error) {
	if p.Queue || cost <= 0 || cost > p.Limit() || r.ChargeDenied {
		return private.FastAnswer{}, nil
	}
	if err := ctx.Err(); err != nil {
		return private.FastAnswer{}, err
	}
	h := s.table.Locate(r.ID, key, p) // the slot is being loaded while the clock is read
	// clock.micros, inlined.
	since := time.Since(s.clock.base).Microseconds()
	now := s.clock.offset.Load() + since
	if since >= s.clock.check.Load() {
		now = s.micros()
	}
	at := now
	fresh, retry, remaining := s.table.Fast(h, p, now, cost)
	if retry == step.Undecided {
		a := s.table.Take(h, p, now, step.Request{Cost: cost, Known: r.Known(&s.table.Rules).With(p)})
		if a.Blocked { // charged nothing, and does not fit into a FastAnswer
			return private.FastAnswer{}, nil
		}
		fresh, retry, remaining = now+a.ResetAfter, a.RetryAfter, a.Remaining
		if s.keys != nil {
			s.keys.add(r.ID, key, p, now)
		}
		at = a.At // a log that has seen a later clock counts from that time
	}
	return private.FastAnswer{
		At: at, Remaining: remaining,
		RetryAfter: time.Duration(retry) * time.Microsecond,
		ResetAfter: time.Duration(fresh-now) * time.Microsecond,
	}, nil
}

// onStack is the maximum number of takes of one call that are handled without an allocation.
const onStack = 8

// Apply applies the takes, all or nothing; see [sluice.Store].
func (s *Store) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(takes) <= table.MaxBatch && s.applyFast(takes, out) {
		return nil
	}
	var opsOnStack [onStack]group.Op
	var answersOnStack [onStack]step.Answer
	ops, answers := opsOnStack[:], answersOnStack[:]
	if len(takes) > onStack {
		ops, answers = make([]group.Op, len(takes)), make([]step.Answer, len(takes))
	}
	ops, answers = ops[:len(takes)], answers[:len(takes)]
	for i := range takes {
		if err := storekit.SetOp(&ops[i], &takes[i]); err != nil {
			return fmt.Errorf("memstore: take %d: %w", i, err)
		}
		ops[i].Request.Known = ops[i].By.Known(&s.table.Rules).With(ops[i].Params)
	}
	now := s.micros()
	s.table.Apply(now, ops, answers)
	for i := range takes {
		a := group.AnswerOf(ops[i].Params, &answers[i])
		storekit.SetDecision(&out[i], &a)
		if s.keys != nil && !takes[i].DryRun {
			s.keys.add(ops[i].Rule, takes[i].Key, ops[i].Params, now)
		}
	}
	return nil
}

// applyFast applies takes without unusual options, and reports whether it did.
func (s *Store) applyFast(takes []sluice.Take, out []sluice.Decision) bool {
	var plain [table.MaxBatch]table.FastTake
	for i := range takes {
		k := &plain[i]
		rule, p := storekit.FastTake(&takes[i])
		if rule == nil {
			return false
		}
		k.Hash = s.table.Locate(rule.ID, takes[i].Key, p)
		k.Params, k.Cost, k.Shadow = p, takes[i].Cost, rule.Shadow
	}
	now := s.micros()
	if !s.table.FastBatch(plain[:len(takes)], now) {
		return false
	}
	for i := range takes {
		d, k := &out[i], &plain[i]
		*d = sluice.Decision{}
		d.Allowed = k.Allowed
		d.Limit = k.Params.Limit()
		d.Remaining = k.Remaining
		d.Receipt = now
		d.RetryAfter = time.Duration(k.Retry) * time.Microsecond
		d.ResetAfter = time.Duration(k.Fresh-now) * time.Microsecond
		if k.Charged {
			d.Granted = k.Cost
		}
	}
	return true
}

// Reset deletes the usage of a bucket and lifts its block.
func (s *Store) Reset(ctx context.Context, b sluice.Bucket) error {
	if err := checked(ctx, &b); err != nil {
		return err
	}
	s.table.Reset(s.table.Hash(private.RuleOf(b.Rule).ID, b.Key), private.ParamsOf(b.EffectiveLimit()), s.micros())
	return nil
}

// Block denies a bucket's takes for d; 0 lifts the block.
func (s *Store) Block(ctx context.Context, b sluice.Bucket, d time.Duration) error {
	if err := checked(ctx, &b); err != nil {
		return err
	}
	now := s.micros()
	if !s.table.Block(s.table.Hash(private.RuleOf(b.Rule).ID, b.Key), now, now+d.Microseconds()) {
		return fmt.Errorf("memstore: block: %w: raise Config.MaxBytes", sluice.ErrStoreFull)
	}
	if s.keys != nil {
		s.keys.add(private.RuleOf(b.Rule).ID, b.Key, nil, now)
	}
	return nil
}

// Blocked returns how much longer the bucket is blocked, or 0 if it is not blocked.
func (s *Store) Blocked(ctx context.Context, b sluice.Bucket) (time.Duration, error) {
	if err := checked(ctx, &b); err != nil {
		return 0, err
	}
	now := s.micros()
	until := s.table.BlockedUntil(s.table.Hash(private.RuleOf(b.Rule).ID, b.Key), now)
	return time.Duration(max(0, until-now)) * time.Microsecond, nil
}

func checked(ctx context.Context, b *sluice.Bucket) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return private.CheckBucket(b)
}

// Len returns the number of keys with usage that has not expired, including keys whose rule [Store.ResetRules] has reset since:
// their memory is freed when the usage would have expired. It visits all keys.
func (s *Store) Len() int { return s.table.Len(s.micros()) }

// UsedBytes returns the memory that the store uses.
func (s *Store) UsedBytes() int64 {
	n := s.table.Bytes()
	if s.keys != nil {
		n += s.keys.usedBytes()
	}
	return n
}

// clock follows the wall clock, but never goes back.
type clock struct {
	base   time.Time
	offset atomic.Int64 // microseconds since the epoch at base; only increases
	check  atomic.Int64 // microseconds since base at which to read the wall clock again
}

func (c *clock) start() {
	c.base = time.Now()
	c.offset.Store(c.base.UnixMicro())
	c.check.Store(anchorInterval)
}

// anchorInterval is how often the wall clock is read, in microseconds.
const anchorInterval = 1_000_000

func (c *clock) micros() int64 {
	since := time.Since(c.base).Microseconds()
	if since >= c.check.Load() {
		c.anchor(since, time.Now().Round(0))
	}
	return c.offset.Load() + since
}

// anchor moves the clock forward to the wall clock. It never moves it back, because that would grant the same quota
// twice.
func (c *clock) anchor(since int64, wall time.Time) {
	check := c.check.Load()
	if since < check || !c.check.CompareAndSwap(check, since+anchorInterval) {
		return // another goroutine did
	}
	// Time has passed since `since` was read; up to 1 ms is not a step of the wall clock.
	const tolerance = 1000
	offset := c.offset.Load()
	if ahead := wall.UnixMicro() - since - offset; ahead > tolerance {
		c.offset.Store(offset + ahead)
	}
}
