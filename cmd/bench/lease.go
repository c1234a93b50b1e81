package main

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/redisstore"
)

// The lease scenario compares decisions from leases in memory with decisions of a store in memory, and counts decisions
// per request to Redis. The server is not pinned to its own CPU, because it has little to do.

// A leaseContender is a limiter on Redis, or in memory.
type leaseContender struct {
	contender
	limit  func() sluice.Limit
	memory bool
}

func leaseOf(name, about string, role role, memory bool, limit func() sluice.Limit) leaseContender {
	return leaseContender{
		contender: contender{name: name, role: role, about: about, clock: oursClock, scenarios: []string{leased}},
		limit:     limit, memory: memory,
	}
}

var leaseContenders = []leaseContender{
	leaseOf("lease-memstore", "token bucket on memstore, no leases", roleFloor, true, leaseBucket),
	leaseOf("lease-bucket", "token bucket, leases from redisstore, one of two instances", roleOurs, false, leaseBucket),
	leaseOf("lease-window", "fixed window, leases from redisstore, one of two instances", roleOurs, false, leaseWindow),
}

func leaseNamed(name string) *leaseContender {
	return &leaseContenders[slices.IndexFunc(leaseContenders, func(c leaseContender) bool { return c.name == name })]
}

// Both limits exceed the usage of a run.
func leaseBucket() sluice.Limit { return sluice.PerSecond(10_000_000).WithBurst(1 << 30) }

func leaseWindow() sluice.Limit { return sluice.PerHour(1<<32 - 1).WithAlgorithm(sluice.FixedWindow) }

// A leaseCost is the result for some number of keys.
type leaseCost struct {
	Keys       int
	Ns         float64 // per decision, all CPUs together
	Allocs     float64
	PerRequest float64 // decisions per request to the server; 0 without a server
	Disturbed  bool    `json:",omitempty"`
}

// leaseKeys are the numbers of keys to measure. A limiter has at most 10,000 leases at a time.
var leaseKeys = []int{1, 1000}

func measureLease(c *leaseContender, s *scenario, j job) (*result, error) {
	res := new(result)
	for _, keys := range leaseKeys {
		cost, err := c.measure(keys, s.ops, j)
		if err != nil {
			return nil, err
		}
		res.Lease = append(res.Lease, cost)
	}
	return res, nil
}

// open returns a limiter, and the server if there is one.
func (c *leaseContender) open(limit sluice.Limit) (*sluice.Limiter, *redisServer, func(), error) {
	accuracy := sluice.AccuracyLease
	if c.memory {
		accuracy = sluice.AccuracyExact
	}
	rule, err := sluice.NewRule(sluice.Rule{Name: "bench", Limit: limit, Accuracy: accuracy})
	if err != nil {
		return nil, nil, nil, err
	}
	if c.memory {
		l, err := sluice.NewWithRules(memstore.New(), []*sluice.Rule{rule})
		return l, nil, func() {}, err
	}
	server, err := startRedis(context.Background(), "")
	if err != nil {
		return nil, nil, nil, err
	}
	store, err := redisstore.Open(redisstore.Config{URL: "redis://" + server.addr})
	if err != nil {
		server.stop()
		return nil, nil, nil, err
	}
	// The store timeout exceeds any wait: this measures leases, not the local fallback on a busy machine.
	l, err := sluice.NewWithRules(store, []*sluice.Rule{rule},
		sluice.WithInstances(func() int { return 2 }), sluice.WithStoreTimeout(5*time.Second))
	return l, server, func() {
		_ = l.Close(context.Background())
		store.Close()
		server.stop()
	}, err
}

func (c *leaseContender) measure(keys, ops int, j job) (cost leaseCost, err error) {
	l, server, done, err := c.open(c.limit())
	if err != nil {
		return cost, err
	}
	defer done()
	names, err := makeKeys(keys)
	if err != nil {
		return cost, err
	}
	hits := make([]string, ops)
	for i, k := range shuffled(rand.New(rand.NewPCG(j.Seed, 0)), keys, ops) {
		hits[i] = names[k]
	}
	cost.Keys = keys
	// A lease grows with the demand, so it is small at first. Only leases under load are timed.
	if allowed := loop(oursLimiter{Limiter: l}, hits[:ops/4]); allowed != ops/4 {
		return cost, failf("%d of %d decisions of the warm-up were allowed", allowed, ops/4)
	}
	var before, after usage
	if server != nil {
		if before, err = server.usage(oneRequest); err != nil {
			return cost, err
		}
	}
	ph, err := timed(oursLimiter{Limiter: l}, hits, runtime.NumCPU(), true)
	if err != nil {
		return cost, err
	}
	cost.Ns, cost.Allocs, cost.Disturbed = ph.Ns, ph.Allocs, ph.Disturbed
	if server == nil {
		return cost, nil
	}
	if after, err = server.usage(oneRequest); err != nil {
		return cost, err
	}
	requests := after.calls - before.calls
	if requests == 0 {
		return cost, failf("the server was never called")
	}
	cost.PerRequest = float64(ops) / requests
	return cost, c.holds()
}

// holds checks that leases respect a limit: no more can be used, and a good part of it can. Not all of it can be used
// at once, because the limiter pauses before it calls the store again for a drained bucket.
func (c *leaseContender) holds() error {
	const most = 5000
	limit := sluice.Per(most, longWindow).WithAlgorithm(c.limit().Algorithm)
	l, _, done, err := c.open(limit)
	if err != nil {
		return err
	}
	defer done()
	allowed := loop(oursLimiter{Limiter: l}, make([]string, 4*most))
	if allowed > most+1 || allowed < most/10 {
		return failf("admitted %d, limit %d", allowed, most)
	}
	return nil
}
