package memstore

import (
	"context"
	"fmt"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/private"
)

var _ sluice.RuleResetter = (*Store)(nil)

// ResetRules resets all buckets of the rules at once, in one page, and lifts their blocks. The store has neither keys
// nor rules of its buckets and so does not count them; their memory is freed when they would have expired.
func (s *Store) ResetRules(ctx context.Context, o sluice.ResetOptions) (sluice.ResetPage, error) {
	if err := ctx.Err(); err != nil {
		return sluice.ResetPage{}, err
	}
	if err := private.CheckResetOptions(&o); err != nil {
		return sluice.ResetPage{}, fmt.Errorf("memstore: %w", err)
	}
	if o.PageToken != "" {
		return sluice.ResetPage{}, fmt.Errorf("memstore: reset: %w: memstore has one page: leave PageToken empty", sluice.ErrInvalid)
	}
	if !o.DryRun {
		for _, r := range o.Rules {
			s.table.ResetRule(private.RuleOf(r).ID)
		}
	}
	return sluice.ResetPage{Removed: -1}, nil
}
