package sluice

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluiceproject/sluice/internal/private"
)

// RuleResetter is implemented by stores that can delete all buckets of a rule.
type RuleResetter interface {
	// ResetRules deletes one page of the buckets of rules and lifts their blocks. The work per page is bounded, so a
	// page may remove nothing without being the last.
	ResetRules(ctx context.Context, o ResetOptions) (ResetPage, error)
}

// ResetOptions selects a page of a reset.
type ResetOptions struct {
	Rules     []*Rule // rules whose buckets are reset, under every limit that their takes have had; at least one
	PageToken string  // ResetPage.NextPageToken of the previous page; "" for the first page
	DryRun    bool    // only count
}

// ResetPage is the result of one page of a reset.
type ResetPage struct {
	// Removed is the number of buckets and blocks that were removed, or with DryRun would be. It is -1 if the store
	// removes them without counting.
	Removed       int64
	NextPageToken string // for the next page; "" on the last page
}

func (o *ResetOptions) validate() error {
	if len(o.Rules) == 0 {
		return fmt.Errorf("%w: reset: Rules is empty: set at least one rule", ErrInvalid)
	}
	for i, r := range o.Rules {
		if r == nil || r.Limit.params == nil {
			return fmt.Errorf("%w: reset: rule %d was not created by NewRule", ErrInvalid, i)
		}
	}
	return nil
}

// ResetRules deletes the usage of all keys under some rules, page by page, and lifts blocks. A bucket that is used
// again during the reset may be removed a second time if the store's listing contains it twice.
//
// On an error some buckets of the page may have been removed, and the limiter's local state of the rules is unchanged.
// After each page without an error the limiter drops that state, so that the next take of each key calls the store. As
// with [Limiter.Reset], other instances may still use their leases, and their deny caches for up to 1 s.
func (l *Limiter) ResetRules(ctx context.Context, o ResetOptions) (ResetPage, error) {
	if err := l.validate(); err != nil {
		return ResetPage{}, err
	}
	if err := o.validate(); err != nil {
		return ResetPage{}, err
	}
	store, ok := l.store.(RuleResetter)
	if !ok {
		return ResetPage{}, fmt.Errorf("sluice: %w: store %T cannot find the buckets of a rule: reset keys one by one, or rename the rule, "+
			"whose counts start from zero under another name", errors.ErrUnsupported, l.store)
	}
	if l.engine.IsRemote() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, resetBudget)
		defer cancel()
	}
	page, err := store.ResetRules(ctx, o)
	if err == nil && !o.DryRun { // a failed reset must not grant fresh quotas in this instance
		for _, r := range o.Rules {
			l.engine.ForgetRule(private.RuleOf(r))
		}
	}
	return page, err
}

// resetBudget is the timeout for one page of a [RemoteStore].
const resetBudget = 10 * time.Second
