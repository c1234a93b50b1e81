package redisstore

import (
	"fmt"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/storekit"
)

// opsOf says takes in integers. An error means that they make no sense.
func opsOf(takes []sluice.Take) ([]group.Op, error) {
	ops := make([]group.Op, len(takes))
	for i := range takes {
		if err := storekit.SetOp(&ops[i], &takes[i]); err != nil {
			return nil, fmt.Errorf("take %d: %w", i, err)
		}
	}
	return ops, nil
}

// WithoutHints has a store send no hints, to show what they are good for. It comes before the first call.
func (s *Store) WithoutHints() *Store {
	s.hints.off = true
	return s
}
