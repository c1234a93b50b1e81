package interop

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

// TestMixedFleet swaps services one at a time, as one does: for a while old and new share a Redis. Together they admit
// the limit, no more and no less.
func TestMixedFleet(t *testing.T) {
	const limit, callers = 500, 16
	rules := map[string]string{"fleet.yaml": "domain: fleet\ndescriptors:\n" +
		"  - {key: user, rate_limit: {unit: hour, requests_per_unit: 500}}\n"}
	total := soak(2000)
	for attempt := 0; ; attempt++ {
		begun := time.Now()
		redis := redistest.Start(t)
		fleet := []*server{
			startReference(t, redis, rules, nil),
			startSluice(t, redis, rules, settings{"SLUICE_KEY_FORMAT": "envoy"}),
			startReference(t, redis, rules, nil),
			startSluice(t, redis, rules, settings{"SLUICE_KEY_FORMAT": "envoy"}),
		}
		var admitted atomic.Int64
		var work sync.WaitGroup
		for c := range callers {
			work.Go(func() {
				for i := c; i < total; i += callers {
					if fleet[(i/callers+c)%len(fleet)].admits(t, "shared") {
						admitted.Add(1)
					}
				}
			})
		}
		work.Wait()
		held := fleet[0].counters(t)
		if !sameHour(t, begun) && attempt == 0 {
			continue
		}
		if got := admitted.Load(); got != limit {
			t.Errorf("of %d requests %d were admitted, want %d", total, got, limit)
		}
		key := fmt.Sprintf("fleet_user_shared_%d", begun.Unix()/3600*3600)
		if len(held) != 1 || held[key] != uint64(total) {
			t.Errorf("Redis holds %v, want %s: %d alone", held, key, total)
		}
		return
	}
}

// admits asks for one hit. It may be called from any goroutine.
func (s *server) admits(t *testing.T, user string) bool {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	res, err := s.client.ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: "fleet", Descriptors: []*entries.RateLimitDescriptor{
		{Entries: []*entries.RateLimitDescriptor_Entry{{Key: "user", Value: user}}},
	}})
	if err != nil {
		t.Errorf("%s: %v", s.name, err)
		return false
	}
	return res.OverallCode == rls.RateLimitResponse_OK
}
