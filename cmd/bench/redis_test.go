package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// requireRedis skips a test if redis-server is not installed, or fails it in CI, where no test may be skipped.
func requireRedis(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("redis-server is not installed; on Debian: apt-get install redis-server")
		}
		t.Skip("redis-server is not installed; on Debian: apt-get install redis-server")
	}
}

var fewDecisions = scenario{name: redisLoad, keys: 50, ops: 1600}

func TestEveryRemoteContenderPassesTheChecks(t *testing.T) {
	requireRedis(t)
	for _, c := range remoteContenders() {
		if !c.runs(redisLoad) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			res, err := measureRedis(&c, &fewDecisions, job{Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			want := len(c.phases)
			if want == 0 {
				want = len(fewDecisions.loads())
			}
			if len(res.Redis) != want {
				t.Errorf("%d loads, want %d", len(res.Redis), want)
			}
			for _, p := range res.Redis {
				if p.PerSecond <= 0 || p.CPU < 0 || p.P50 <= 0 || p.P99 < p.P50 {
					t.Errorf("%+v", p)
				}
				if most := float64(len(c.requests)); p.Requests <= 0 || p.Requests > most+0.1 && c.name != "redis-throttled" {
					t.Errorf("%s: %v requests per decision", p.Load, p.Requests)
				}
			}
		})
	}
}

// remoteFunc is a remote with an arbitrary decision function.
type remoteFunc func(key string) (bool, error)

func (f remoteFunc) decide(key string) (bool, error) { return f(key) }

func TestRemoteChecksCatchCheats(t *testing.T) {
	requireRedis(t)
	ctx := context.Background()
	for name, cheat := range map[string]struct {
		load   string
		decide func(s *redisServer, honest remote) remote
	}{
		"allows everything": {denied64, func(*redisServer, remote) remote {
			return remoteFunc(func(string) (bool, error) { return true, nil })
		}},
		"keeps nothing": {hot64, func(*redisServer, remote) remote {
			return remoteFunc(func(string) (bool, error) { return true, nil })
		}},
		"denies everything": {hot64, func(*redisServer, remote) remote {
			return remoteFunc(func(string) (bool, error) { return false, nil })
		}},
		"fails": {denied64, func(_ *redisServer, honest remote) remote {
			return remoteFunc(func(key string) (bool, error) {
				ok, _ := honest.decide(key)
				if !ok {
					return false, errors.New("out of order")
				}
				return ok, nil
			})
		}},
		"forgets": {hot64, func(s *redisServer, honest remote) remote {
			var n atomic.Int64
			return remoteFunc(func(key string) (bool, error) {
				if n.Add(1) == 500 {
					s.control.Do(ctx, s.control.B().Flushall().Build())
				}
				return honest.decide(key)
			})
		}},
		"has one key": {spread64, func(_ *redisServer, honest remote) remote {
			return remoteFunc(func(string) (bool, error) { return honest.decide("user:0000000") })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := ourRemote("cheat", "", func(s *redisServer, sp spec, callers int) (*remotes, error) {
				if name == "has one key" {
					sp.burst *= 100
				}
				rs, err := connectStore(1, bucketLimit)(s, sp, callers)
				if err != nil {
					return nil, err
				}
				return everyone(cheat.decide(s, rs.of(0)), rs.close), nil
			}, cheat.load)
			if _, err := measureRedis(&c, &fewDecisions, job{Seed: 1}); !errors.Is(err, errCheck) {
				t.Errorf("passed: %v", err)
			}
		})
	}
}

func TestRawRequestsAreTheStores(t *testing.T) {
	requireRedis(t)
	server, err := startRedis(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.stop)
	request, err := captured(server, small(10), "user:0000001")
	if err != nil {
		t.Fatal(err)
	}
	if packed := request[5]; !strings.Contains(packed, "\x00") || len(packed) < 50 {
		t.Errorf("the packed argument is %q", packed)
	}
	l, err := newRawLoad(server, small(10), []string{"user:0000001", "user:0000002"}, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	if batch := string(l.batches[0][0]); strings.Count(batch, "user:0000002\r\n") != 2 || strings.Count(batch, request[5][16:]) != 2 { // except for the nonce
		t.Errorf("the batch is %q", batch)
	}
}

func TestRemoteMemory(t *testing.T) {
	requireRedis(t)
	used := map[string]float64{}
	for _, name := range []string{"redis-bare", "redis-sluice", "redis-sluice-fraction"} {
		res, err := weighRedis(remoteNamed(name), &scenario{name: redisMem, keys: 2000}, job{})
		if err != nil {
			t.Fatal(name, err)
		}
		m := res.RedisMemory
		if m.Usage < 50 || m.Used < m.Usage || m.Used > 400 {
			t.Errorf("%s: %+v", name, m)
		}
		used[name] = m.Used
	}
	if used["redis-bare"] >= used["redis-sluice"] || used["redis-sluice"] >= used["redis-sluice-fraction"] {
		t.Errorf("%v", used)
	}
}

func TestLeases(t *testing.T) {
	requireRedis(t)
	for _, c := range leaseContenders {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			res, err := measureLease(&c, &scenario{name: leased, ops: 20_000}, job{Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			if hot := res.Lease[0]; hot.Ns <= 0 || c.memory != (hot.PerRequest == 0) || !c.memory && hot.PerRequest < 2 {
				t.Errorf("%+v", hot)
			}
		})
	}
}

func TestRemoteBars(t *testing.T) {
	row := func(name string, perSecond, cpu float64) remoteRow {
		return remoteRow{Contender: name, remotePhase: remotePhase{PerSecond: perSecond, CPU: cpu}, Repeated: 1}
	}
	slow := row("redis-raw-P16", 100, 5)
	slow.Disturbed = true
	r := &report{
		Redis: []remoteTable{
			{Load: spread64, Rows: []remoteRow{
				row("redis_rate", 50, 20), row("redis-sluice-1", 120, 8), row("redis-plain", 100, 10), row("redis-sluice-5", 40, 25), slow,
			}},
			{Load: spread256, Rows: []remoteRow{row("redis-sluice", 400, 4), row("redis-raw-P16", 200, 5)}},
		},
		RedisMemory: []remoteMemoryRow{{Contender: "redis-sluice-window", remoteMemory: remoteMemory{Used: 120, Usage: 80}}},
		Lease:       []leaseRow{{Contender: "lease-bucket", leaseCost: leaseCost{Keys: 1, PerRequest: 70}, PerMemory: 0.4}},
	}
	var got []string
	for _, b := range r.remoteBars() {
		if b.Got != "" {
			got = append(got, b.Name+" "+b.Got+" "+b.Verdict)
		}
	}
	want := []string{
		"Redis, one decision per call, 64 callers 2.40× redis_rate pass",
		"Redis, one decision per call, 64 callers 1.20× redis-raw-P16 disturbed",
		"Redis, batched calls, 256 callers 2.00× redis-raw-P16 pass",
		"Redis CPU per decision, one per call, 64 callers 0.80× plain script pass",
		"Redis CPU per decision, batched calls, 256 callers 4.00 µs miss",
		"Redis CPU per decision over five limits, one per call 3.12× one limit miss",
		"memory per key in Redis, used_memory, redis-sluice-window 120.00 B miss",
		"memory per key in Redis, MEMORY USAGE, redis-sluice-window 80.00 B pass",
		"lease-bucket, 1 keys, speed 0.40× memstore miss",
		"lease-bucket, 1 keys, decisions per request 70.00 pass",
	}
	if !slices.Equal(got, want) {
		t.Errorf("bars:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
