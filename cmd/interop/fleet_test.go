package interop

import (
	"context"
	"fmt"
	"hash/crc32"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
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

// TestMixedFleetMemcached swaps services on two Memcached. The reference counts after it has answered, so that each request
// waits for the count of the one before.
func TestMixedFleetMemcached(t *testing.T) {
	const limit, total = 6, 10
	rules := map[string]string{"fleet.yaml": "domain: fleet\ndescriptors:\n" +
		"  - {key: user, rate_limit: {unit: hour, requests_per_unit: 6}}\n"}
	for attempt := 0; ; attempt++ {
		begun := time.Now()
		redis, memcached := redistest.Start(t), []*memcachetest.Server{memcachetest.Start(t), memcachetest.Start(t)}
		env := settings{
			"BACKEND_TYPE": "memcache", "MEMCACHE_HOST_PORT": memcached[0].Addr + "," + memcached[1].Addr, "SLUICE_KEY_FORMAT": "envoy",
		}
		fleet := []*server{startReference(t, redis, rules, env), startSluice(t, redis, rules, env)}
		admitted := map[string]int{}
		for _, user := range []string{"a", "b", "c", "d"} { // on both servers
			key := fmt.Sprintf("fleet_user_%s_%d", user, begun.Unix()/3600*3600)
			for i := range total {
				if fleet[i%len(fleet)].admits(t, user) {
					admitted[user]++
				}
				for at := crc32.ChecksumIEEE([]byte(key)) % 2; memcached[at].Ask("incr "+key+" 0") != fmt.Sprint(i+1); {
					if time.Since(begun) > patience {
						t.Fatalf("%s is %s, want %d", key, memcached[at].Ask("incr "+key+" 0"), i+1)
					}
				}
			}
		}
		if !sameHour(t, begun) && attempt == 0 {
			continue
		}
		for user, n := range admitted {
			if n != limit {
				t.Errorf("of %d requests of %s %d were admitted, want %d", total, user, n, limit)
			}
		}
		return
	}
}

// TestSameAnswersWithoutMemcached asks both services while Memcached is down, with counts in it that neither can read. A limit of
// 0 and hits that are more than the limit are over the limit; all else passes.
func TestSameAnswersWithoutMemcached(t *testing.T) {
	rules := map[string]string{"fleet.yaml": "domain: fleet\ndescriptors:\n" +
		"  - {key: user, rate_limit: {unit: year, requests_per_unit: 40}}\n" +
		"  - {key: never, rate_limit: {unit: year, requests_per_unit: 0}}\n"}
	for _, keys := range []string{"sluice", "envoy"} {
		redis, memcached := redistest.Start(t), memcachetest.Start(t)
		env := settings{"BACKEND_TYPE": "memcache", "MEMCACHE_HOST_PORT": memcached.Addr, "SLUICE_KEY_FORMAT": keys}
		reference, sluice := startReference(t, redis, rules, env), startSluice(t, redis, rules, env)
		memcached.Kill()
		for _, key := range []string{"user", "never"} {
			for _, hits := range []uint32{1, 39, 40, 41, 1000} {
				var told []string
				for _, s := range []*server{reference, sluice} {
					res, err := s.client.ShouldRateLimit(t.Context(), &rls.RateLimitRequest{
						Domain: "fleet", HitsAddend: hits, Descriptors: []*entries.RateLimitDescriptor{
							{Entries: []*entries.RateLimitDescriptor_Entry{{Key: key, Value: "a"}}},
						},
					})
					if err != nil {
						t.Fatalf("%s: %v", s.name, err)
					}
					told = append(told, fmt.Sprintf("%v, %v, %d left", res.OverallCode, res.Statuses[0].Code, res.Statuses[0].LimitRemaining))
				}
				if told[0] != told[1] {
					t.Errorf("%s keys: %d hits of %s: the reference answers %s, Sluice %s", keys, hits, key, told[0], told[1])
				}
			}
		}
	}
}
