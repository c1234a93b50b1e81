package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// The scenarios, by their names for -only.
const (
	hot     = "hot"
	uniform = "uniform"
	fresh   = "fresh"
	zipf    = "zipf"
	denied  = "denied"
	mem1m   = "mem1m"
	mem5m   = "mem5m"

	httpServe = "http"
	ruleMatch = "rules"

	redisLoad = "redis"
	redisMem  = "redismem"
	leased    = "lease"
	storeRun  = "stores"

	serviceRun = "service"
	serviceMem = "servicemem"
	respRun    = "resp"
	gatewayRun = "gateway"
)

// A scenario is one measurement of every contender that runs it.
type scenario struct {
	name  string
	title string
	keys  int // number of keys
	ops   int // timed decisions in each phase, or requests, or milliseconds; 0 for memory scenarios
	reps  int
	once  bool // peers are measured only once: they take long, and their precision matters little
}

// repeats returns how often a contender runs the scenario.
func (s *scenario) repeats(c *contender) int {
	if s.once && c.role == rolePeer {
		return 1
	}
	return s.reps
}

// timed reports whether the scenario is a loop of decisions by a limiter in this process.
func (s *scenario) timed() bool {
	return slices.Contains([]string{hot, uniform, fresh, zipf, denied}, s.name)
}

// pinned reports whether its client and server are pinned to different CPUs.
func (s *scenario) pinned() bool { return s.name == redisLoad || s.name == redisMem }

// scenarios returns all scenarios in their full or quick size. The number of operations is fixed and the same for all
// contenders, regardless of their speed. Scenarios without a target are repeated less, and so are memory scenarios,
// which vary little.
func scenarios(quick bool, reps int) []scenario {
	if reps == 0 {
		reps = 5
		if quick {
			reps = 1
		}
	}
	less := (reps + 1) / 2
	all := []scenario{
		{hot, "one hot key", 1, 2_000_000, reps, false},
		{uniform, "1M keys, uniform", 1_000_000, 1_000_000, reps, false},
		{fresh, "1M keys, uniform, each hit with a new copy of its key in the CPU cache", 1_000_000, 1_000_000, less, false},
		{zipf, "1M keys, Zipf 1.1", 1_000_000, 1_000_000, less, false},
		{denied, "1M exhausted keys, uniform, every decision a denial", 1_000_000, 1_000_000, less, false},
		{mem1m, "memory with 1M keys", 1_000_000, 0, less, true},
		{mem5m, "memory and garbage collection with 5M keys", 5_000_000, 0, less, true},
		{httpServe, "HTTP middleware", 1, 300_000, reps, false},
		{ruleMatch, "matching the rules of a request", 1, 1_100_000, less, false},
		{redisLoad, "decisions in Redis", 10_000, 200_000, reps, false},
		{redisMem, "memory in Redis with 100k keys", 100_000, 0, 1, false},
		{leased, "leases from Redis", 1, 4_000_000, reps, false},
		{serviceRun, "services", serviceKeys, 60_000, reps, false},
		{serviceMem, "memory of services with 1M keys", 1_000_000, 0, 1, false},
		{respRun, "services over RESP", serviceKeys, 60_000, reps, false},
		{gatewayRun, "gateways", 1, 64_000, reps, false},
	}
	if quick {
		all[0].ops = 1_000_000
		all[1].ops = 500_000
		all[2].ops = 500_000
		all[3].keys, all[3].ops, all[3].title = 200_000, 200_000, "200k keys, Zipf 1.1"
		all[4].keys, all[4].ops, all[4].title = 200_000, 200_000, "200k exhausted keys, uniform, every decision a denial"
		all[7].ops = 100_000
		all[8].ops = 220_000
		all[9].ops = 20_000
		all[10].keys, all[10].title = 20_000, "memory in Redis with 20k keys"
		all[11].ops = 1_000_000
		all[12].ops = 10_000
		all[13].keys, all[13].title = 100_000, "memory of services with 100k keys"
		all[14].ops = 10_000
		all[15].ops = 12_800
		all = slices.DeleteFunc(all, func(s scenario) bool { return s.name == mem5m || s.name == fresh })
	}
	all = append(all, overloadScenario(quick, reps), storeScenario(quick, less), simulateScenario(quick, less))
	return all
}

// pick returns the scenarios whose names are in the comma-separated list, or all of them.
func pick(all []scenario, list string) ([]scenario, error) {
	if list == "" {
		return all, nil
	}
	var names []string
	for _, s := range all {
		names = append(names, s.name)
	}
	var picked []scenario
	for name := range strings.SplitSeq(list, ",") {
		i := slices.Index(names, name)
		if i < 0 {
			return nil, fmt.Errorf("no scenario %q: choose from %s", name, strings.Join(names, ", "))
		}
		picked = append(picked, all[i])
	}
	return picked, nil
}

// spare is the remaining quota of the busiest key after a run in which everything is allowed. Using it up proves that
// the contender counted all hits.
const spare = 1000

// A plan is a prepared scenario: all hits of a run are determined before the clock starts.
type plan struct {
	spec     spec
	fill     int        // hits on every key before the timed part
	phases   [][]uint32 // the keys of each timed phase, by number
	distinct []int      // number of different keys in each phase
	fresh    bool       // each hit has its own copy of its key
	allow    bool       // the timed hits must be allowed, otherwise denied
	hits     []uint32   // hits of the whole run, by key
}

func (s *scenario) plan(seed uint64, phases int) *plan {
	r := rand.New(rand.NewPCG(seed, 0))
	p := &plan{
		fill: 1, allow: true,
		spec: spec{every: 10 * time.Minute, slide: longWindow, keys: s.keys},
	}
	var popularity []uint32
	for range phases {
		switch s.name {
		case hot:
			p.phases = append(p.phases, make([]uint32, s.ops))
		case zipf:
			if popularity == nil {
				popularity = shuffled(r, s.keys, s.keys)
			}
			p.phases = append(p.phases, zipfian(r, popularity, s.ops))
		default:
			p.phases = append(p.phases, shuffled(r, s.keys, s.ops))
		}
	}
	switch s.name {
	case hot:
		p.fill = 100_000      // warms up code and branch predictors
		p.spec.every /= 10    // a bucket of millions must refill within a lifetime
		p.spec.slide = window // see spec.slide
	case uniform, fresh:
		p.spec.slide, p.fresh = window, s.name == fresh
	case denied:
		p.fill, p.allow, p.spec.burst = 2, false, 2
	}
	p.hits = make([]uint32, s.keys)
	for i := range p.hits {
		p.hits[i] = uint32(p.fill)
	}
	for _, order := range p.phases {
		n, seen := 0, make([]bool, s.keys)
		for _, k := range order {
			p.hits[k]++
			if !seen[k] {
				seen[k] = true
				n++
			}
		}
		p.distinct = append(p.distinct, n)
	}
	if p.allow {
		p.spec.burst = int64(slices.Max(p.hits)) + spare
	}
	return p
}

// window is the window of the sliding counter where it is timed: long enough for a run, short enough to wait for its
// end.
const window = 3 * time.Second

// samples returns the keys whose counts are checked after a run: the busiest, and some others.
func (p *plan) samples() []int {
	busiest := 0
	for k, n := range p.hits {
		if n > p.hits[busiest] {
			busiest = k
		}
	}
	list := []int{busiest, 0, len(p.hits) / 2, len(p.hits) - 1}
	slices.Sort(list)
	return slices.Compact(list)
}
