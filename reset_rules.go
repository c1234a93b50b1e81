package sluice

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluiceproject/sluice/internal/private"
)

// RuleResetter is implemented by stores that can forget all buckets of a rule.
type RuleResetter interface {
	// ResetRules forgets a page of what is stored of rules, and lifts blocks. It takes bounded work, however much is stored,
	// so that a page may remove nothing and yet not be the last.
	ResetRules(ctx context.Context, o ResetOptions) (ResetPage, error)
}

// ResetOptions asks for a page of a reset.
type ResetOptions struct {
	Rules     []*Rule // whose buckets are meant, with all limits that their takes have had; at least one
	PageToken string  // ResetPage.NextPageToken of the page before; "" begins
	DryRun    bool    // count only
}

// ResetPage is what a page of a reset did.
type ResetPage struct {
	// Removed is how many buckets and blocks were removed, or with DryRun would be. It is -1 if the store forgets them without
	// knowing how many there are.
	Removed       int64
	NextPageToken string // where to go on; "" means that this was all
}

func (o *ResetOptions) validate() error {
	if len(o.Rules) == 0 {
		return fmt.Errorf("%w: reset: there is no rule: name at least one", ErrInvalid)
	}
	for i, r := range o.Rules {
		if r == nil || r.Limit.params == nil {
			return fmt.Errorf("%w: reset: rule %d was not made by NewRule", ErrInvalid, i)
		}
	}
	return nil
}

// ResetRules forgets what all keys have spent under some rules, page by page, and lifts blocks. Each bucket begins anew when
// its page comes. One that is used meanwhile may be removed once more if the store's listing shows it twice.
//
// On an error some of the page's buckets may have been removed, and this process keeps its own state of the rules. After each
// page without an error it asks the store again about all of their keys. Others may still spend what they have leased, and remember
// a denial for a second, as with [Limiter.Reset].
func (l *Limiter) ResetRules(ctx context.Context, o ResetOptions) (ResetPage, error) {
	if err := l.validate(); err != nil {
		return ResetPage{}, err
	}
	if err := o.validate(); err != nil {
		return ResetPage{}, err
	}
	store, ok := l.store.(RuleResetter)
	if !ok {
		return ResetPage{}, fmt.Errorf("sluice: %w: %T cannot find the keys of a rule: reset keys one by one, or rename the rule, "+
			"whose counts begin anew under another name", errors.ErrUnsupported, l.store)
	}
	if l.engine.IsRemote() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, resetBudget)
		defer cancel()
	}
	page, err := store.ResetRules(ctx, o)
	if err == nil && !o.DryRun { // a reset that failed must not grant fresh quotas here
		for _, r := range o.Rules {
			l.engine.ForgetRule(private.RuleOf(r))
		}
	}
	return page, err
}

// resetBudget bounds a page of a [RemoteStore] store.
const resetBudget = 10 * time.Second
