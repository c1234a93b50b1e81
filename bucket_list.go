package sluice

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluiceproject/sluice/internal/private"
)

// BucketLister is implemented by stores that can tell which buckets they hold. A store that keeps digests alone cannot.
type BucketLister interface {
	// List returns a page of what is stored. It takes bounded work, however much is stored, so that a page may be empty
	// and yet not the last. What comes or goes meanwhile may be missed, and some may be listed twice.
	List(ctx context.Context, q ListOptions) (BucketPage, error)
}

// ListOptions asks for a page.
type ListOptions struct {
	Rules     []*Rule // list these rules' buckets; empty: all, and no names
	PageToken string  // BucketPage.NextPageToken of the page before; "" begins
	PageSize  int     // about how many to list; 0 means 100, at most 1,000
}

// BucketPage is a part of what a store holds.
type BucketPage struct {
	Buckets       []BucketInfo
	NextPageToken string // where to go on; "" means that this was all
}

// BucketInfo is something that a store holds: a bucket, or that one is blocked.
type BucketInfo struct {
	Rule       *Rule         // nil: none of ListOptions.Rules
	RuleDigest string        // a digest of the rule's name
	Key        string        // "" if the store has no more than a digest of it
	KeyDigest  string        // of the key; "" if the store has the key
	HashTagged bool          // counted under a Take.HashTag, which the store does not know
	Blocked    bool          // this says that the bucket is blocked, for as long as it is kept
	Kind       string        // the way of counting; "" if Blocked
	ExpiresIn  time.Duration // how much longer the store keeps it: about until it has worn off
	Decision   *Decision     // what a peek says; nil: see [Limiter.ListBuckets]
}

// Most that a page lists.
const (
	defaultListed = 100
	maxListed     = 1000
)

// Limiter.ListBuckets peeks at so many at a time.
const peeksAtOnce = 64

// setDefaults fills in what is not set, and tells what is wrong.
func (q *ListOptions) setDefaults() error {
	if q.PageSize < 0 || q.PageSize > maxListed {
		return fmt.Errorf("%w: list %d: ask for 1 to %d at a time", ErrInvalid, q.PageSize, maxListed)
	}
	if q.PageSize == 0 {
		q.PageSize = defaultListed
	}
	for i, r := range q.Rules {
		if r == nil || r.Limit.params == nil {
			return fmt.Errorf("%w: rule %d was not made by NewRule", ErrInvalid, i)
		}
	}
	return nil
}

// ListBuckets returns a page of what the store holds, by default of the limiter's rules, and for each bucket its state. There
// is no Decision for what cannot be asked for: a bucket of a rule that is not named, of a key that is stored as a digest, one
// that is counted under a hash tag, or under another kind of limit than the rule's.
func (l *Limiter) ListBuckets(ctx context.Context, q ListOptions) (BucketPage, error) {
	if err := l.validate(); err != nil {
		return BucketPage{}, err
	}
	lister, ok := l.store.(BucketLister)
	if !ok {
		return BucketPage{}, fmt.Errorf("sluice: %w: %T cannot list its keys", errors.ErrUnsupported, l.store)
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

// listBudget bounds a page of a [RemoteStore] store.
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
