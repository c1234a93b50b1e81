package main

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluiceproject/sluice"
)

// remoteMemory is what a key takes of the server's memory.
type remoteMemory struct {
	Used  float64 // growth of used_memory for a key: with the tables of keys and of times to live
	Usage float64 // MEMORY USAGE of a key
}

// weighRedis fills the server with keys, each used twice, and looks at what that took.
func weighRedis(c *remoteContender, s *scenario, j job) (*result, error) {
	server, err := startRedis(context.Background(), j.RedisCPU)
	if err != nil {
		return nil, err
	}
	defer server.stop()
	sp := spec{burst: spare, every: time.Hour, slide: longWindow, keys: s.keys} // so that none expires meanwhile
	// The script and what the server makes at the first request are not the keys'.
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

// use spends on every key some times and disconnects, so that connections' buffers are gone.
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

// A bareKey is the least that has a state and a time to live: a large integer under the caller's own key.
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

// fractionLimit is a bucket whose drops take a fraction of a microsecond that does not fit an integer state.
func fractionLimit(s spec) sluice.Limit { return sluice.Per(9973, 2*longWindow).WithBurst(s.burst) }
