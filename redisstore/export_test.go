package redisstore

import (
	"fmt"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/storekit"
)

// opsOf compiles takes. It returns an error if they are invalid.
func opsOf(takes []sluice.Take) ([]group.Op, error) {
	ops := make([]group.Op, len(takes))
	for i := range takes {
		if err := storekit.SetOp(&ops[i], &takes[i]); err != nil {
			return nil, fmt.Errorf("take %d: %w", i, err)
		}
	}
	return ops, nil
}

// WithoutHints disables failover hints, to show their effect. It must be called before the first call.
func (s *Store) WithoutHints() *Store {
	s.hints.off = true
	return s
}
