package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/redisstore"
)

const serverClock = "the server's TIME"

// oneRequest lists the commands of a contender that runs a script.
var oneRequest = []string{"evalsha", "eval"}

func ourRemote(name, about string, connect func(*redisServer, spec, int) (*remotes, error), phases ...string) remoteContender {
	return remoteContender{
		contender: contender{name: name, role: roleOurs, about: about, clock: serverClock, scenarios: []string{redisLoad}},
		phases:    phases, requests: oneRequest, connect: connect,
	}
}

// weighed adds the memory scenario to a contender.
func weighed(c remoteContender) remoteContender {
	c.scenarios = append(c.scenarios, redisMem)
	return c
}

// weighedOnly limits a contender to the memory scenario.
func weighedOnly(c remoteContender) remoteContender {
	c.scenarios = []string{redisMem}
	return c
}

// remoteOurs are Sluice's store on Redis.
var remoteOurs = []remoteContender{
	weighed(ourRemote("redis-sluice", "token bucket on redisstore; waiting callers share a run of the script",
		connectStore(1, bucketLimit))),
	ourRemote("redis-sluice-1", "the same, one decision per call: a store per caller, so that calls are not batched",
		connectStores(bucketLimit), spread64, spread256, alone, hot64),
	ourRemote("redis-sluice-5", "five token buckets in one decision, one decision per call", connectFive, spread64, alone),
	weighed(ourRemote("redis-sluice-window", "fixed window on redisstore", connectStore(1, windowLimit), spread64, spread256)),
	weighed(ourRemote("redis-sluice-counter", "sliding counter on redisstore", connectStore(1, counterLimit), spread64, spread256)),
	weighedOnly(ourRemote("redis-sluice-fraction", "token bucket with a rate that needs a long fraction", connectStore(1, fractionLimit))),
	ourRemote("redis-sluice-limiter", "Limiter.Allow on redisstore, with its deny cache", connectLimiter, spread64, alone, denied64),
}

// storeRemote decides with a store, without a limiter's store timeout and deny cache.
type storeRemote struct {
	store *redisstore.Store
	rules []*sluice.Rule
}

func (r storeRemote) decide(key string) (bool, error) {
	var room [8]sluice.Take
	var answers [8]sluice.Decision
	takes, out := room[:len(r.rules)], answers[:len(r.rules)]
	for i, rule := range r.rules {
		takes[i] = sluice.Take{Rule: rule, Key: key, Cost: 1}
	}
	if err := r.store.Apply(context.Background(), takes, out); err != nil {
		return false, err
	}
	for i := range out {
		if !out[i].Allowed {
			return false, nil
		}
	}
	return true, nil
}

func benchRules(limit sluice.Limit, n int) (rules []*sluice.Rule, err error) {
	for i := range n {
		rule, err := sluice.NewRule(sluice.Rule{Name: fmt.Sprintf("bench-%d", i), Limit: limit})
		if err != nil {
			return nil, err
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// connectStore lets all callers share one store, as in one process.
func connectStore(limits int, limit func(spec) sluice.Limit) func(*redisServer, spec, int) (*remotes, error) {
	return func(s *redisServer, sp spec, _ int) (*remotes, error) {
		rules, err := benchRules(limit(sp), limits)
		if err != nil {
			return nil, err
		}
		store, err := redisstore.Open(redisstore.Config{URL: "redis://" + s.addr})
		if err != nil {
			return nil, err
		}
		return everyone(storeRemote{store, rules}, store.Close), nil
	}
}

// connectStores gives every caller its own store, on one client with the same settings as redisstore's own client.
func connectStores(limit func(spec) sluice.Limit) func(*redisServer, spec, int) (*remotes, error) {
	return func(s *redisServer, sp spec, callers int) (*remotes, error) {
		return separate(s, limit(sp), callers, 1)
	}
}

// connectFive does not batch either: it measures five limits instead of one.
func connectFive(s *redisServer, sp spec, callers int) (*remotes, error) {
	return separate(s, bucketLimit(sp), callers, 5)
}

func separate(s *redisServer, limit sluice.Limit, callers, limits int) (*remotes, error) {
	rules, err := benchRules(limit, limits)
	if err != nil {
		return nil, err
	}
	client, err := s.client(batched)
	if err != nil {
		return nil, err
	}
	stores := make([]storeRemote, callers)
	for i := range stores {
		store, err := redisstore.Open(redisstore.Config{Client: client})
		if err != nil {
			return nil, err
		}
		stores[i] = storeRemote{store, rules}
	}
	return &remotes{of: func(i int) remote { return stores[i] }, close: client.Close}, nil
}

// batched lets a client write the requests of many callers at once, like redisstore's own client.
func batched(o *rueidis.ClientOption) {
	o.DisableRetry, o.MaxFlushDelay = true, 20*time.Microsecond
}

type limiterRemote struct{ *sluice.Limiter }

func (r limiterRemote) decide(key string) (bool, error) {
	d, err := r.Allow(context.Background(), key)
	if err == nil && d.Source != sluice.SourceStore && d.Source != sluice.SourceDenyCache {
		err = fmt.Errorf("the decision is not from the store but from %v", d.Source)
	}
	return d.Allowed, err
}

func connectLimiter(s *redisServer, sp spec, _ int) (*remotes, error) {
	store, err := redisstore.Open(redisstore.Config{URL: "redis://" + s.addr})
	if err != nil {
		return nil, err
	}
	// The store timeout exceeds any wait: this measures the store, not the local fallback on a busy machine.
	l, err := sluice.New(store, "bench", bucketLimit(sp), sluice.WithStoreTimeout(5*time.Second))
	return everyone(limiterRemote{l}, store.Close), err
}
