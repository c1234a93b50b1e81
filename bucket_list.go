package sluice

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluiceproject/sluice/internal/private"
)

// BucketLister is implemented by stores that can list their buckets. A store that keeps only digests of keys cannot.
type BucketLister interface {
	// List returns one page of the stored buckets and blocks. The work per page is bounded, so a page may be empty
	// without being the last. Buckets created or deleted during the listing may be missed, and some may be listed
	// twice.
	List(ctx context.Context, q ListOptions) (BucketPage, error)
}

// ListOptions selects a page of buckets.
type ListOptions struct {
	Rules     []*Rule // rules whose buckets are listed; empty lists all buckets, without rule names
	PageToken string  // BucketPage.NextPageToken of the previous page; "" for the first page
	PageSize  int     // approximate number of buckets per page; 0 means 100, maximum 1000
}

// BucketPage is one page of the buckets and blocks in a store.
type BucketPage struct {
	Buckets       []BucketInfo
	NextPageToken string // for the next page; "" on the last page
}

// BucketInfo describes one stored bucket or one block of a bucket.
type BucketInfo struct {
	Rule       *Rule         // nil if the rule is not in ListOptions.Rules
	RuleDigest string        // digest of the rule's name
	Key        string        // "" if the store has only a digest of the key
	KeyDigest  string        // digest of the key; "" if the store has the key
	HashTagged bool          // the bucket has a hash tag, which the store does not keep
	Blocked    bool          // the entry is a block, which ends after ExpiresIn
	Kind       string        // kind of algorithm; "" for a block
	ExpiresIn  time.Duration // time until the store deletes the entry, about when the bucket is fully reset
	Decision   *Decision     // result of a peek; nil if there is none, see [Limiter.ListBuckets]
}

// Default and maximum number of entries per page.
const (
	defaultListed = 100
	maxListed     = 1000
)

// peeksAtOnce is the number of buckets that Limiter.ListBuckets peeks at per store call.
const peeksAtOnce = 64

// setDefaults sets unset fields to their defaults. It returns an error if the options are invalid.
func (q *ListOptions) setDefaults() error {
	if q.PageSize < 0 || q.PageSize > maxListed {
		return fmt.Errorf("%w: list: PageSize %d: use 0 to %d", ErrInvalid, q.PageSize, maxListed)
	}
	if q.PageSize == 0 {
		q.PageSize = defaultListed
	}
	for i, r := range q.Rules {
		if r == nil || r.Limit.params == nil {
			return fmt.Errorf("%w: list: rule %d was not created by NewRule", ErrInvalid, i)
		}
	}
	return nil
}

// ListBuckets returns one page of the stored buckets, by default those of the limiter's rules, with the state of each.
// Decision is nil where the bucket cannot be peeked at: its rule is not in q.Rules, its key is stored as a digest, it
// has a hash tag, or its limit is of another kind than the rule's.
func (l *Limiter) ListBuckets(ctx context.Context, q ListOptions) (BucketPage, error) {
	if err := l.validate(); err != nil {
		return BucketPage{}, err
	}
	lister, ok := l.store.(BucketLister)
	if !ok {
		return BucketPage{}, fmt.Errorf("sluice: %w: store %T cannot list its buckets", errors.ErrUnsupported, l.store)
	}
	if len(q.Rules) == 0 {
		q.Rules = l.rules
	}
	if l.engine.IsRemote() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, listBudget)
		defer cancel()
	}
	page, err := lister.List(ctx, q)
	if err != nil {
		return BucketPage{}, err
	}
	return page, l.peekAll(ctx, page.Buckets)
}

// listBudget is the timeout for one page of a [RemoteStore].
const listBudget = 10 * time.Second

func (l *Limiter) peekAll(ctx context.Context, listed []BucketInfo) error {
	var takes []Take
	var of []*BucketInfo
	for i := range listed {
		x := &listed[i]
		if x.Rule == nil || x.KeyDigest != "" || x.HashTagged || x.Blocked {
			continue
		}
		t := Take{Rule: x.Rule, Limit: l.limitForKey(ctx, x.Key), Key: x.Key, DryRun: true}
		if private.CounterKind(t.EffectiveLimit()) == x.Kind {
			takes, of = append(takes, t), append(of, x)
		}
	}
	for len(takes) > 0 {
		n := min(len(takes), peeksAtOnce)
		out := make([]Decision, n)
		if err := l.store.Apply(ctx, takes[:n], out); err != nil {
			return err
		}
		for i := range out {
			of[i].Decision = &out[i]
		}
		takes, of = takes[n:], of[n:]
	}
	return nil
}
