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

// TestMixedFleet replaces services one at a time, so that for a while both share a Redis. Together they must admit
// exactly the limit.
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
			t.Errorf("admitted %[2]d of %[1]d requests, want %[3]d", total, got, limit)
		}
		key := fmt.Sprintf("fleet_user_shared_%d", begun.Unix()/3600*3600)
		if len(held) != 1 || held[key] != uint64(total) {
			t.Errorf("Redis contains %v, want only %s: %d", held, key, total)
		}
		return
	}
}

// admits sends one hit and reports whether it was admitted. It may be called from any goroutine.
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

// TestMixedFleetMemcached replaces services on two Memcached servers. The reference counts after its response, so that
// each request waits for the count of the previous one.
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
				t.Errorf("admitted %[3]d of %[1]d requests of %[2]s, want %[4]d", total, user, n, limit)
			}
		}
		return
	}
}

// TestSameAnswersWithoutMemcached calls both services while Memcached is down, with counts in it that neither can read.
// A limit of 0 and hits above the limit are over the limit; all other requests are allowed.
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
					t.Errorf("%s keys: %d hits of %s: the reference returns %s, Sluice %s", keys, hits, key, told[0], told[1])
				}
			}
		}
	}
}
