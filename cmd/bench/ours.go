package main

import (
	"context"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

// oursClock is the clock that memstore reads once per call; it reads the wall clock once per second.
const oursClock = "time.Since"

// ours are Sluice as its users call it: Limiter.Allow on a memstore with the default configuration.
var ours = []contender{
	{
		name: "sluice", role: roleOurs, clock: oursClock, scenarios: keyed,
		about: "token bucket", open: openOurs(bucketLimit),
	},
	{
		name: "sluice-window", role: roleOurs, clock: oursClock, scenarios: []string{hot, uniform, fresh, mem1m, mem5m},
		about: "fixed window", open: openOurs(windowLimit),
	},
	{
		name: "sluice-counter", role: roleOurs, clock: oursClock, scenarios: []string{hot, uniform, fresh, denied, mem1m, mem5m},
		about: "sliding counter; allowed decisions are timed with hits in the previous window", slides: true,
		open: openOurs(counterLimit),
	},
	{
		name: "sluice-log", role: roleOurs, clock: oursClock, scenarios: []string{uniform, denied},
		about: "sliding log", open: openOurs(logLimit),
	},
	{
		name: "sluice-3", role: roleOurs, clock: oursClock, scenarios: []string{hot, uniform},
		about: "three token buckets in one call", open: openThree,
	},
}

type oursLimiter struct {
	*sluice.Limiter
	store *memstore.Store // nil: another store
}

func (l oursLimiter) live() int { return l.store.Len() / len(l.Rules()) }

func (l oursLimiter) allow(key string) bool {
	d, err := l.Allow(context.Background(), key)
	return d.Allowed && err == nil
}

func bucketLimit(s spec) sluice.Limit {
	return sluice.Per(bucketCount, bucketCount*s.every).WithBurst(s.burst)
}

func windowLimit(s spec) sluice.Limit {
	return sluice.Per(s.burst, longWindow).WithAlgorithm(sluice.FixedWindow)
}

func counterLimit(s spec) sluice.Limit {
	return sluice.Per(s.burst, s.slide).WithAlgorithm(sluice.SlidingWindowCounter)
}

func logLimit(s spec) sluice.Limit {
	return sluice.Per(s.burst, longWindow).WithAlgorithm(sluice.SlidingWindowLog)
}

func openOurs(limit func(spec) sluice.Limit) func(spec) (limiter, error) {
	return func(s spec) (limiter, error) {
		store := memstore.New()
		l, err := sluice.New(store, "bench", limit(s))
		return oursLimiter{l, store}, err
	}
}

// openThree gives each key three buckets. The second and third are larger, so that the first decides.
func openThree(s spec) (limiter, error) {
	var rules []*sluice.Rule
	for i, name := range []string{"first", "second", "third"} {
		limit := bucketLimit(s)
		limit.Burst += int64(i) * 10
		limit.Count += int64(i) * 7
		rule, err := sluice.NewRule(sluice.Rule{Name: name, Limit: limit})
		if err != nil {
			return nil, err
		}
		rules = append(rules, rule)
	}
	store := memstore.New()
	l, err := sluice.NewWithRules(store, rules)
	return oursLimiter{l, store}, err
}
