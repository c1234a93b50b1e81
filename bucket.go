package sluice

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Bucket identifies the state of one rule for one key. Operator functions such as [Limiter.ResetBuckets] use it.
type Bucket struct {
	Rule    *Rule
	Limit   *Limit // as in Take.Limit; nil means Rule.Limit. Limits of different kinds of algorithms have separate buckets
	Key     string
	HashTag string // as in Take.HashTag
}

// Bucket returns the bucket that the take is counted in.
func (t *Take) Bucket() Bucket { return Bucket{t.Rule, t.Limit, t.Key, t.HashTag} }

// EffectiveLimit returns b.Limit or, if it is nil, the limit of b.Rule. If both are nil it returns a zero Limit.
func (b *Bucket) EffectiveLimit() *Limit { return effectiveLimit(b.Limit, b.Rule) }

// validate returns an error for a bucket whose rule or limit was not built.
func (b *Bucket) validate() error {
	switch {
	case b.Rule == nil || b.Rule.Limit.params == nil:
		return fmt.Errorf("%w: bucket: rule was not created by NewRule", ErrInvalid)
	case b.EffectiveLimit().params == nil:
		return fmt.Errorf("%w: bucket: limit was not created by Limit.Build", ErrInvalid)
	}
	return nil
}

// StoreAdmin is implemented by stores that support resets and blocks.
type StoreAdmin interface {
	// Reset deletes the usage of a bucket and lifts its block.
	Reset(ctx context.Context, b Bucket) error
	// Block denies all takes of a bucket for d from now; 0 lifts the block. A take denied by a block is never charged,
	// not even under a rule with ChargeDenied, because the charges would extend the denial beyond the block.
	Block(ctx context.Context, b Bucket, d time.Duration) error
	// Blocked returns how much longer the bucket is blocked, or 0 if it is not blocked.
	Blocked(ctx context.Context, b Bucket) (time.Duration, error)
}

// operatorTimeout bounds operator calls to a [RemoteStore]. It is longer than the store timeout, because no fail mode
// can decide instead and an operator can wait longer than a request.
const operatorTimeout = time.Second

// Reset deletes the usage of key under all of the limiter's rules and lifts blocks. On an error the store may have
// reset some of the buckets, and the limiter's local state is unchanged.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	if err := l.validateRules("ResetBuckets"); err != nil {
		return err
	}
	return l.ResetBuckets(ctx, l.buckets(ctx, key)...)
}

// Block denies key for d from now, whatever its usage; 0 lifts the block. Takes denied by a block are never charged. On
// an error the store may have blocked some of the buckets, and the limiter's local state is unchanged.
func (l *Limiter) Block(ctx context.Context, key string, d time.Duration) error {
	if err := l.validateRules("BlockBuckets"); err != nil {
		return err
	}
	return l.BlockBuckets(ctx, d, l.buckets(ctx, key)...)
}

// ResetBuckets is like [Limiter.Reset] for explicit buckets, such as those of takes passed to [Limiter.Decide].
func (l *Limiter) ResetBuckets(ctx context.Context, buckets ...Bucket) error {
	return l.forEachBucket(ctx, operatorTimeout, buckets, func(admin StoreAdmin, ctx context.Context, b Bucket) error {
		err := admin.Reset(ctx, b)
		if err == nil {
			l.engine.Forget(b.Rule.inIntegers(), b.EffectiveLimit().params, b.Key)
		}
		return err
	})
}

// BlockBuckets is like [Limiter.Block] for explicit buckets, such as those of takes passed to [Limiter.Decide].
func (l *Limiter) BlockBuckets(ctx context.Context, d time.Duration, buckets ...Bucket) error {
	return l.blockWithin(ctx, operatorTimeout, d, buckets)
}

// Blocked returns how much longer key is blocked, the maximum over the limiter's rules, or 0 if it is not blocked.
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

// BlockedBucket is like [Limiter.Blocked] for one bucket.
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
		return fmt.Errorf("%w: block: duration %v is negative: use a positive duration, or 0 to lift a block", ErrInvalid, d)
	}
	return l.forEachBucket(ctx, timeout, buckets, func(admin StoreAdmin, ctx context.Context, b Bucket) error {
		err := admin.Block(ctx, b, d)
		if err == nil {
			l.engine.Block(b.Rule.inIntegers(), b.Key, d)
		}
		return err
	})
}

// buckets returns the buckets of key, one for each of the limiter's rules.
func (l *Limiter) buckets(ctx context.Context, key string) []Bucket {
	all := make([]Bucket, len(l.Rules()))
	for i, r := range l.Rules() {
		all[i] = Bucket{Rule: r, Limit: l.limitForKey(ctx, key), Key: key}
	}
	return all
}

// forEachBucket calls do for each bucket and joins the errors. The local state of a bucket whose call failed must not
// change: a failed reset must not grant the key a fresh quota in this instance.
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

// storeAdmin returns the limiter's store as a StoreAdmin, and ctx with a timeout if the store is remote.
func (l *Limiter) storeAdmin(ctx context.Context, timeout time.Duration) (StoreAdmin, context.Context, context.CancelFunc, error) {
	if err := l.validate(); err != nil {
		return nil, nil, nil, err
	}
	admin, ok := l.store.(StoreAdmin)
	if !ok {
		return nil, nil, nil, fmt.Errorf("sluice: %w: store %T cannot reset or block keys", errors.ErrUnsupported, l.store)
	}
	if !l.engine.IsRemote() {
		return admin, ctx, func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	return admin, ctx, cancel, nil
}
