package main

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluiceproject/sluice"
)

// remoteMemory is the memory of a key on the server.
type remoteMemory struct {
	Used  float64 // growth of used_memory per key, including the tables of keys and of TTLs
	Usage float64 // MEMORY USAGE of a key
}

// weighRedis fills the server with keys, each used twice, and measures the memory.
func weighRedis(c *remoteContender, s *scenario, j job) (*result, error) {
	server, err := startRedis(context.Background(), j.RedisCPU)
	if err != nil {
		return nil, err
	}
	defer server.stop()
	sp := spec{burst: spare, every: time.Hour, slide: longWindow, keys: s.keys} // so that none expires during the run
	// The script and other memory that the server allocates for the first request are not counted.
	if err := c.use(server, sp, []string{"first"}, 1); err != nil {
		return nil, err
	}
	if _, err := server.do("FLUSHALL"); err != nil {
		return nil, err
	}
	before, err := server.number("memory", "used_memory")
	if err != nil {
		return nil, err
	}
	keys, err := makeKeys(s.keys)
	if err != nil {
		return nil, err
	}
	if err := c.use(server, sp, keys, 2); err != nil {
		return nil, err
	}
	after, err := server.number("memory", "used_memory")
	if err != nil {
		return nil, err
	}
	if err := server.holds(s.keys); err != nil {
		return nil, err
	}
	m := &remoteMemory{Used: (after - before) / float64(s.keys)}
	if m.Usage, err = server.usageOfOne(); err != nil {
		return nil, err
	}
	return &result{RedisMemory: m}, nil
}

// use uses every key a number of times and disconnects, so that the buffers of connections are freed.
func (c *remoteContender) use(server *redisServer, sp spec, keys []string, times int) error {
	const callers = 16
	rs, err := c.connect(server, sp, callers)
	if err != nil {
		return err
	}
	defer rs.close()
	for range times {
		if allowed, _, err := drive(rs, keys, callers, false); err != nil || allowed != len(keys) {
			return failf("%d of %d keys were allowed: %v", allowed, len(keys), err)
		}
	}
	return nil
}

func (s *redisServer) usageOfOne() (float64, error) {
	key, err := s.do("RANDOMKEY")
	if err != nil {
		return 0, err
	}
	text, err := s.do("MEMORY", "USAGE", key)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(text, 64)
}

// A bareKey is the minimum with a state and a TTL: a large integer under the caller's own key.
type bareKey struct{ client rueidis.Client }

func connectBare(s *redisServer, _ spec, _ int) (*remotes, error) {
	client, err := s.client(nil)
	if err != nil {
		return nil, err
	}
	return everyone(bareKey{client}, client.Close), nil
}

func (b bareKey) decide(key string) (bool, error) {
	err := b.client.Do(context.Background(), b.client.B().Set().Key(key).Value("17672256000000001").Ex(time.Hour).Build()).Error()
	return true, err
}

// fractionLimit is a bucket whose refill time per unit has a fraction that does not fit an integer state.
func fractionLimit(s spec) sluice.Limit { return sluice.Per(9973, 2*longWindow).WithBurst(s.burst) }
