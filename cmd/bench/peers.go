package main

import (
	"context"
	"sync"
	"time"

	"github.com/didip/tollbooth/v8"
	tollboothlimiter "github.com/didip/tollbooth/v8/limiter"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/go-chi/httprate"
	golimiter "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	throttledstore "github.com/throttled/throttled/v2/store/memstore"
	ululelimiter "github.com/ulule/limiter/v3"
	ululestore "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"
)

var keyed = []string{hot, uniform, fresh, zipf, denied, mem1m, mem5m}

// peers are called in the cheapest way that their public API offers.
var peers = []contender{
	{
		name: "go-limiter", role: rolePeer, clock: "time.now (wall clock, by linkname)", scenarios: keyed,
		about: "sethvargo/go-limiter v0.7.1, fixed interval, memorystore.Take", open: openGoLimiter,
	},
	{
		name: "throttled", role: rolePeer, clock: "time.Now", scenarios: keyed,
		about: "throttled/throttled v2.15.0, GCRA, memstore without a key limit", open: openThrottled,
	},
	{
		name: "x/time-mutex", role: rolePeer, clock: "time.Now", scenarios: keyed,
		about: "golang.org/x/time/rate v0.16.0, token bucket, in a map with a mutex; never evicts a key", open: openMutexMap,
	},
	{
		name: "x/time-syncmap", role: rolePeer, clock: "time.Now", scenarios: keyed,
		about: "golang.org/x/time/rate v0.16.0, token bucket, in a sync.Map; never evicts a key", open: openSyncMap,
	},
	{
		name: "httprate", role: rolePeer, clock: "time.Now, twice", scenarios: keyed,
		about: "go-chi/httprate v0.16.1, sliding counter; its counter under its mutex, without its HTTP headers", open: openHTTPRate,
	},
	{
		name: "ulule", role: rolePeer, clock: "time.Now, three times", scenarios: keyed,
		about: "ulule/limiter v3.11.2, fixed window, memory store", open: openUlule,
	},
	{
		name: "tollbooth", role: rolePeer, clock: "time.Now, three times", scenarios: keyed,
		about: "didip/tollbooth v8.0.1, token bucket, LimitReached", open: openTollbooth,
	},
	{
		name: "failsafe", role: rolePeer, clock: "time.Since", scenarios: []string{hot},
		about: "failsafe-go v0.9.8, bursty rate limiter; it does not support keys, so it is measured on the hot key only", open: openFailsafe,
	},
}

type goLimiter struct{ store golimiter.Store }

func openGoLimiter(s spec) (limiter, error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(s.burst), Interval: longWindow})
	return goLimiter{store}, err
}

func (l goLimiter) allow(key string) bool {
	_, _, _, ok, err := l.store.Take(context.Background(), key)
	return ok && err == nil
}

type throttledLimiter struct{ *throttled.GCRARateLimiterCtx }

func openThrottled(s spec) (limiter, error) {
	store, err := throttledstore.NewCtx(0)
	if err != nil {
		return nil, err
	}
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate: throttled.PerDuration(bucketCount, bucketCount*s.every), MaxBurst: int(s.burst) - 1,
	})
	if err != nil {
		return nil, err
	}
	// With its default of 10 attempts it returns errors for a contended hot key. This measures decisions, not errors.
	l.SetMaxCASAttemptsLimit(1 << 30)
	return throttledLimiter{l}, nil
}

func (l throttledLimiter) allow(key string) bool {
	limited, _, err := l.RateLimitCtx(context.Background(), key, 1)
	return !limited && err == nil
}

func newRate(s spec) *rate.Limiter { return rate.NewLimiter(rate.Every(s.every), int(s.burst)) }

type mutexMap struct {
	spec spec
	mu   sync.Mutex // guards m
	m    map[string]*rate.Limiter
}

func openMutexMap(s spec) (limiter, error) {
	return &mutexMap{spec: s, m: map[string]*rate.Limiter{}}, nil
}

func (l *mutexMap) allow(key string) bool {
	l.mu.Lock()
	r := l.m[key]
	if r == nil {
		r = newRate(l.spec)
		l.m[key] = r
	}
	l.mu.Unlock()
	return r.Allow()
}

func (l *mutexMap) live() int { return len(l.m) }

type syncMap struct {
	spec spec
	m    sync.Map
}

func openSyncMap(s spec) (limiter, error) { return &syncMap{spec: s}, nil }

func (l *syncMap) allow(key string) bool {
	r, ok := l.m.Load(key)
	if !ok {
		r, _ = l.m.LoadOrStore(key, newRate(l.spec))
	}
	return r.(*rate.Limiter).Allow()
}

// httpRate does the same as httprate's OnLimit, except for the headers.
type httpRate struct {
	mu      sync.Mutex // makes the read and the count atomic, as OnLimit's own mutex does
	limiter *httprate.RateLimiter
	limit   float64
}

func openHTTPRate(s spec) (limiter, error) {
	return &httpRate{
		limit: float64(s.burst),
		limiter: httprate.NewRateLimiter(int(s.burst), longWindow,
			httprate.WithLimitCounter(httprate.NewLocalLimitCounter(longWindow))),
	}, nil
}

func (l *httpRate) allow(key string) bool {
	window := time.Now().UTC().Truncate(longWindow)
	l.mu.Lock()
	defer l.mu.Unlock()
	_, spent, err := l.limiter.Status(key)
	if err != nil || spent+1 > l.limit {
		return false
	}
	return l.limiter.Counter().Increment(key, window) == nil
}

type ulule struct{ *ululelimiter.Limiter }

func openUlule(s spec) (limiter, error) {
	return ulule{ululelimiter.New(ululestore.NewStore(), ululelimiter.Rate{Period: longWindow, Limit: s.burst})}, nil
}

func (l ulule) allow(key string) bool {
	c, err := l.Get(context.Background(), key)
	return !c.Reached && err == nil
}

type tollboothLimiter struct{ *tollboothlimiter.Limiter }

func openTollbooth(s spec) (limiter, error) {
	perSecond := 1 / s.every.Seconds()
	return tollboothLimiter{tollbooth.NewLimiter(perSecond, nil).SetBurst(int(s.burst))}, nil
}

func (l tollboothLimiter) allow(key string) bool { return !l.LimitReached(key) }

type failsafe struct{ ratelimiter.RateLimiter[any] }

func openFailsafe(s spec) (limiter, error) {
	return failsafe{ratelimiter.NewBursty[any](uint(s.burst), longWindow)}, nil
}

func (l failsafe) allow(string) bool { return l.TryAcquirePermit() }
