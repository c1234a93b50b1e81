package remote

import (
	"sync"
	"sync/atomic"

	"github.com/sluiceproject/sluice/internal/step"
)

// parts caches parts of limits, because creating one takes longer than a decision.
type parts struct {
	all  sync.Map // partKey → *step.Params
	kept atomic.Int64
}

// partKey is a limit and the number of instances that share it.
type partKey struct {
	limit     *step.Params
	instances int
}

// maxCachedParts is the maximum number of cached parts; further ones are created when needed.
const maxCachedParts = 100_000

func (s *parts) of(k partKey, make func() *step.Params) *step.Params {
	if kept, ok := s.all.Load(k); ok {
		return kept.(*step.Params)
	}
	part := make()
	if s.kept.Add(1) <= maxCachedParts {
		s.all.Store(k, part)
	}
	return part
}
