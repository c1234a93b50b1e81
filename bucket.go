package sluice

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Bucket is where takes are counted: it names what an operator looks at, resets or blocks.
type Bucket struct {
	Rule    *Rule
	Limit   *Limit // as in Take.Limit: another kind of algorithm counts in another place; nil means Rule.Limit
	Key     string
	HashTag string // as in the takes: a Redis Cluster keeps what shares it together
}

// Bucket is where the take is counted.
func (t *Take) Bucket() Bucket { return Bucket{t.Rule, t.Limit, t.Key, t.HashTag} }

// EffectiveLimit is the limit that applies to the bucket; a zero Limit if it has neither a limit nor a rule.
func (b *Bucket) EffectiveLimit() *Limit { return effectiveLimit(b.Limit, b.Rule) }

// validate tells what is wrong with a bucket that a caller has named.
func (b *Bucket) validate() error {
	switch {
	case b.Rule == nil || b.Rule.Limit.params == nil:
		return fmt.Errorf("%w: the bucket's rule was not made by NewRule", ErrInvalid)
	case b.EffectiveLimit().params == nil:
		return fmt.Errorf("%w: the bucket's limit was not made by Limit.Build", ErrInvalid)
	}
	return nil
}

// StoreAdmin is the operator's side of a store.
type StoreAdmin interface {
	// Reset forgets what was spent of a bucket, and lifts a block.
	Reset(ctx context.Context, b Bucket) error
	// Block denies a bucket's takes for d from now, whatever its state; 0 lifts the block. A take that a block denies is
	// never charged, under a ChargeDenied rule neither, so that the block ends when it says.
	Block(ctx context.Context, b Bucket, d time.Duration) error
	// Blocked returns how much longer a block of the bucket lasts, 0 if there is none.
	Blocked(ctx context.Context, b Bucket) (time.Duration, error)
}

// operatorTimeout bounds what an operator asks of a [RemoteStore] store. There is no fail mode that could answer instead, and
// a person can wait longer than a request.
const operatorTimeout = time.Second

// Reset forgets what the key has spent under all of the limiter's rules, and lifts blocks. On an error this process changes
// nothing, and the store may have reset some of the buckets.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	if err := l.validateRules("ResetBuckets"); err != nil {
		return err
	}
	return l.ResetBuckets(ctx, l.buckets(ctx, key)...)
}

// Block denies the key for d from now, whatever it has spent; 0 lifts the block. What a block denies is never charged. On an
// error this process changes nothing, and the store may have blocked some of the buckets.
func (l *Limiter) Block(ctx context.Context, key string, d time.Duration) error {
	if err := l.validateRules("BlockBuckets"); err != nil {
		return err
	}
	return l.BlockBuckets(ctx, d, l.buckets(ctx, key)...)
}

// ResetBuckets is [Limiter.Reset] for callers of [Limiter.Decide].
func (l *Limiter) ResetBuckets(ctx context.Context, buckets ...Bucket) error {
	return l.forEachBucket(ctx, operatorTimeout, buckets, func(admin StoreAdmin, ctx context.Context, b Bucket) error {
		err := admin.Reset(ctx, b)
		if err == nil {
			l.engine.Forget(b.Rule.inIntegers(), b.EffectiveLimit().params, b.Key)
		}
		return err
	})
}

// BlockBuckets is [Limiter.Block] for callers of [Limiter.Decide].
func (l *Limiter) BlockBuckets(ctx context.Context, d time.Duration, buckets ...Bucket) error {
	return l.blockWithin(ctx, operatorTimeout, d, buckets)
}

// Blocked returns how much longer the key is blocked under one of the limiter's rules, 0 if it is not blocked.
func (l *Limiter) Blocked(ctx context.Context, key string) (longest time.Duration, err error) {
	if err := l.validateRules("BlockedBucket"); err != nil {
		return 0, err
	}
	for _, b := range l.buckets(ctx, key) {
		d, err := l.BlockedBucket(ctx, b)
		if err != nil {
			return 0, err
		}
		longest = max(longest, d)
	}
	return longest, nil
}

// BlockedBucket is [Limiter.Blocked] for callers of [Limiter.Decide].
func (l *Limiter) BlockedBucket(ctx context.Context, b Bucket) (time.Duration, error) {
	admin, ctx, cancel, err := l.storeAdmin(ctx, operatorTimeout)
	if err != nil {
		return 0, err
	}
	defer cancel()
	if err := b.validate(); err != nil {
		return 0, err
	}
	return admin.Blocked(ctx, b)
}

func (l *Limiter) blockWithin(ctx context.Context, timeout, d time.Duration, buckets []Bucket) error {
	if d < 0 {
		return fmt.Errorf("%w: block for %v: use a positive duration, or 0 to lift a block", ErrInvalid, d)
	}
	return l.forEachBucket(ctx, timeout, buckets, func(admin StoreAdmin, ctx context.Context, b Bucket) error {
		err := admin.Block(ctx, b, d)
		if err == nil {
			l.engine.Block(b.Rule.inIntegers(), b.Key, d)
		}
		return err
	})
}

// buckets are where the key is counted.
func (l *Limiter) buckets(ctx context.Context, key string) []Bucket {
	all := make([]Bucket, len(l.Rules()))
	for i, r := range l.Rules() {
		all[i] = Bucket{Rule: r, Limit: l.limitForKey(ctx, key), Key: key}
	}
	return all
}

// forEachBucket calls do for each bucket and joins the errors. This process changes nothing of its own state for a bucket whose
// call failed: a reset that did not happen must not grant the key a fresh quota here.
func (l *Limiter) forEachBucket(ctx context.Context, timeout time.Duration, buckets []Bucket, do func(StoreAdmin, context.Context, Bucket) error) error {
	admin, ctx, cancel, err := l.storeAdmin(ctx, timeout)
	if err != nil {
		return err
	}
	defer cancel()
	var faults []error
	for i := range buckets {
		b := &buckets[i]
		if err := b.validate(); err != nil {
			faults = append(faults, err)
			continue
		}
		faults = append(faults, do(admin, ctx, *b))
	}
	return errors.Join(faults...)
}

// storeAdmin is the operator's side of the limiter's store, and a context that bounds what it may take.
func (l *Limiter) storeAdmin(ctx context.Context, timeout time.Duration) (StoreAdmin, context.Context, context.CancelFunc, error) {
	if err := l.validate(); err != nil {
		return nil, nil, nil, err
	}
	admin, ok := l.store.(StoreAdmin)
	if !ok {
		return nil, nil, nil, fmt.Errorf("sluice: %w: %T cannot reset or block keys", errors.ErrUnsupported, l.store)
	}
	if !l.engine.IsRemote() {
		return admin, ctx, func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	return admin, ctx, cancel, nil
}
