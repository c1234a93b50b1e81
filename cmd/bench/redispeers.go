package main

import (
	"context"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/throttled/throttled/v2"
	throttledredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
	ululelimiter "github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
)

func remotePeer(name, clock, about string, connect func(*redisServer, spec, int) (*remotes, error), phases ...string) remoteContender {
	return remoteContender{
		contender: contender{name: name, role: rolePeer, about: about, clock: clock, scenarios: []string{redisLoad}},
		phases:    phases, requests: oneRequest, connect: connect,
	}
}

var remotePeers = append([]remoteContender{
	weighed(remotePeer("redis-plain", serverClock, "a simple GCRA script (TIME, GET, SET PX, two numbers returned) on rueidis v1.0.79, "+
		"which collects writes for 20 µs", connectPlain)),
	remotePeer("redis-plain-goredis", serverClock, "the same script on go-redis v9.23.0, one connection per caller", connectPlainGo,
		spread64, spread256, alone, hot64),
	weighed(remotePeer("redis_rate", serverClock, "go-redis/redis_rate v10.0.1, GCRA, one connection per caller", connectRate)),
	weighed(remotePeer("redis-ulule", "the server's expiry", "ulule/limiter v3.11.2, fixed window, redis store on go-redis", connectUlule)),
}, weighed(throttledPeer()))

// throttledPeer does not run with the hot key, where its compare-and-swaps fail most of the time.
func throttledPeer() remoteContender {
	c := remotePeer("redis-throttled", serverClock,
		"throttled v2.15.0, GCRA by compare-and-swap, go-redis store; not run on a hot key, where most of its attempts fail",
		connectThrottled, spread64, spread256, alone, denied64)
	c.requests = []string{"time", "eval"} // TIME and GET are pipelined
	return c
}

// plainScript is a straightforward script for a token bucket in Redis.
const plainScript = `
local every, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local tat = tonumber(redis.call('GET', KEYS[1]) or now)
if tat < now then tat = now end
local next = tat + every
local wait = next - every * burst - now
if wait > 0 then return {0, wait} end
redis.call('SET', KEYS[1], string.format('%.0f', next), 'PX', math.ceil((next - now) / 1000))
return {1, math.floor((burst * every - (next - now)) / every)}
`

type plain struct {
	client       rueidis.Client
	script       *rueidis.Lua
	every, burst string
}

func connectPlain(s *redisServer, sp spec, _ int) (*remotes, error) {
	client, err := s.client(batched)
	if err != nil {
		return nil, err
	}
	p := plain{client, rueidis.NewLuaScript(plainScript), strconv.FormatInt(sp.every.Microseconds(), 10), strconv.FormatInt(sp.burst, 10)}
	return everyone(p, client.Close), nil
}

func (p plain) decide(key string) (bool, error) {
	answer, err := p.script.Exec(context.Background(), p.client, []string{"plain:" + key}, []string{p.every, p.burst}).ToArray()
	if err != nil {
		return false, err
	}
	ok, err := answer[0].AsInt64()
	return ok == 1, err
}

func goClient(s *redisServer, callers int) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.addr, PoolSize: callers, MaxRetries: -1, PoolTimeout: time.Minute})
}

func closing(c *redis.Client) func() { return func() { _ = c.Close() } }

type plainGo struct {
	client       *redis.Client
	script       *redis.Script
	every, burst int64
}

func connectPlainGo(s *redisServer, sp spec, callers int) (*remotes, error) {
	client := goClient(s, callers)
	return everyone(plainGo{client, redis.NewScript(plainScript), sp.every.Microseconds(), sp.burst}, closing(client)), nil
}

func (p plainGo) decide(key string) (bool, error) {
	answer, err := p.script.Run(context.Background(), p.client, []string{"plain:" + key}, p.every, p.burst).Int64Slice()
	if err != nil {
		return false, err
	}
	return answer[0] == 1, nil
}

type rateRemote struct {
	*redis_rate.Limiter
	limit redis_rate.Limit
}

func connectRate(s *redisServer, sp spec, callers int) (*remotes, error) {
	client := goClient(s, callers)
	limit := redis_rate.Limit{Rate: bucketCount, Period: bucketCount * sp.every, Burst: int(sp.burst)}
	return everyone(rateRemote{redis_rate.NewLimiter(client), limit}, closing(client)), nil
}

func (r rateRemote) decide(key string) (bool, error) {
	res, err := r.Allow(context.Background(), key, r.limit)
	return err == nil && res.Allowed == 1, err
}

type ululeRemote struct{ *ululelimiter.Limiter }

func connectUlule(s *redisServer, sp spec, callers int) (*remotes, error) {
	client := goClient(s, callers)
	store, err := ululeredis.NewStore(client)
	return everyone(ululeRemote{ululelimiter.New(store, ululelimiter.Rate{Period: longWindow, Limit: sp.burst})}, closing(client)), err
}

func (r ululeRemote) decide(key string) (bool, error) {
	c, err := r.Get(context.Background(), key)
	return !c.Reached, err
}

type throttledRemote struct{ *throttled.GCRARateLimiterCtx }

func connectThrottled(s *redisServer, sp spec, callers int) (*remotes, error) {
	client := goClient(s, callers)
	store, err := throttledredis.NewCtx(client, "throttled:")
	if err != nil {
		return nil, err
	}
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate: throttled.PerDuration(bucketCount, bucketCount*sp.every), MaxBurst: int(sp.burst) - 1,
	})
	if err != nil {
		return nil, err
	}
	l.SetMaxCASAttemptsLimit(1 << 30) // otherwise it returns errors when callers compete
	return everyone(throttledRemote{l}, closing(client)), nil
}

func (r throttledRemote) decide(key string) (bool, error) {
	limited, _, err := r.RateLimitCtx(context.Background(), key, 1)
	return !limited && err == nil, err
}
