package envoyratelimit

import (
	"context"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/rlstest"
	"github.com/sluiceproject/sluice/internal/testenv/allocs"
)

// decided returns a function that decides the request.
func decided(t testing.TB, s *Service, ask string) func() {
	t.Helper()
	m, err := rlstest.Ask("d", ask)
	if err != nil {
		t.Fatal(err)
	}
	var (
		req  rls.Request
		resp rls.Response
	)
	req.FromProto(m)
	return func() {
		resp.Reset()
		if err := s.ShouldRateLimit(context.Background(), &req, &resp); err != nil {
			t.Fatal(err)
		}
	}
}

// Decisions do not allocate, except for limit overrides.
func TestAllocations(t *testing.T) {
	s := newTested(t, "  - {key: a, limit: 1}\n  - {key: ip, detailed_metric: true, limit: 1000}\n", "LOCAL_CACHE_SIZE_IN_BYTES=100000")
	for _, ask := range []string{"a=1", "a=2 | a=3 | ip=10.0.0.1", "none=1"} {
		f := decided(t, s.Service, ask)
		f()
		f()
		if n := allocs.Of(f); n > 0 {
			t.Errorf("%s: %v allocations", ask, n)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	s := newTested(b, "  - {key: a, limit: 4294967295}\n")
	f := decided(b, s.Service, "a=1")
	b.ReportAllocs()
	for b.Loop() {
		f()
	}
}
