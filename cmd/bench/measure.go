package main

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"
)

// A job is the task of a child process.
type job struct {
	Contender string
	Scenario  string
	Quick     bool
	Seed      uint64
	Procs     []int  // GOMAXPROCS of each phase
	RedisCPU  string `json:",omitempty"` // the CPU that a Redis server is pinned to

	FloorHTTP, FloorRESP string `json:",omitempty"` // instead: run a floor for each protocol, at these addresses and at Floor

	Server   string `json:",omitempty"` // instead: send requests to this address
	Requests int    `json:",omitempty"`

	Floor    string `json:",omitempty"` // instead: run the floor of services at this address
	FloorTCP string `json:",omitempty"` // instead: run the floor of any protocol at this address

	Proxy *proxyJob `json:",omitempty"` // instead: run a proxy, or the server behind one
}

// A result is the result of a child process.
type result struct {
	Invalid string     `json:",omitempty"` // why the figures are invalid
	Phases  []phase    `json:",omitempty"`
	Memory  *memory    `json:",omitempty"`
	HTTP    *httpCost  `json:",omitempty"`
	Rules   []ruleCost `json:",omitempty"`

	Redis       []remotePhase `json:",omitempty"`
	RedisMemory *remoteMemory `json:",omitempty"`
	Lease       []leaseCost   `json:",omitempty"`
	Stores      []storeCost   `json:",omitempty"`
	Overload    *overloadRun  `json:",omitempty"`
	Simulate    *simulateRun  `json:",omitempty"`

	Service       []servicePhase `json:",omitempty"`
	ServiceMemory *serviceWeight `json:",omitempty"`
}

// A phase is one timed loop.
type phase struct {
	Procs    int
	Ops      int
	Distinct int     // number of different keys among the ops
	Ns       float64 // wall time per decision
	Allocs   float64 // heap objects per decision
	// Disturbed reports whether other processes used CPU time that this one needed.
	Disturbed bool `json:",omitempty"`
}

// errCheck marks a contender that did not behave as the scenario requires.
var errCheck = errors.New("check failed")

func failf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errCheck}, args...)...)
}

// measure fills the contender, times every phase, and checks that it was measured as the scenario requires.
func measure(c *contender, s *scenario, j job) (*result, error) {
	keys, err := makeKeys(s.keys)
	if err != nil {
		return nil, err
	}
	p := s.plan(j.Seed, len(j.Procs))
	l, err := c.open(p.spec)
	if err != nil {
		return nil, err
	}
	if err := fill(l, keys, p); err != nil {
		return nil, err
	}
	var hits [][]string
	for _, order := range p.phases {
		hits = append(hits, p.strings(keys, order))
	}
	aged := c.slides && p.spec.slide == window
	if aged {
		nextWindow()
	}
	start := time.Now()
	res := new(result)
	for i, procs := range j.Procs {
		ph, err := timed(l, hits[i], procs, p.allow)
		if err != nil {
			return nil, fmt.Errorf("at GOMAXPROCS %d: %w", procs, err)
		}
		if ph.Distinct != p.distinct[i] {
			return nil, failf("%d distinct keys were used, want %d", ph.Distinct, p.distinct[i])
		}
		res.Phases = append(res.Phases, ph)
	}
	old := 0
	if aged {
		if took := time.Since(start); took > window {
			return nil, failf("took %v, longer than the sliding counter's window of %v: the machine is too busy", took, window)
		}
		old = p.fill
	}
	if err := census(l, s.keys); err != nil {
		return nil, err
	}
	return res, p.verify(l, keys, old)
}

// strings returns the keys to use, in order.
func (p *plan) strings(keys []string, order []uint32) []string {
	hits := make([]string, len(order))
	for i, k := range order {
		hits[i] = keys[k]
		if p.fresh {
			hits[i] = strings.Clone(keys[k])
		}
	}
	return hits
}

// fill uses every key, in order.
func fill(l limiter, keys []string, p *plan) error {
	for _, key := range keys {
		for range p.fill {
			if !l.allow(key) {
				return failf("%s was denied within its first %d hits, limit %d", key, p.fill, p.spec.burst)
			}
		}
	}
	return nil
}

// nextWindow waits for the sliding counter's next window, which starts at a multiple of its length since the epoch.
func nextWindow() {
	now := time.Now().UnixNano()
	time.Sleep(window - time.Duration(now)%window + time.Millisecond)
}

func timed(l limiter, hits []string, procs int, allow bool) (phase, error) {
	ph := phase{Procs: procs, Ops: len(hits)}
	var err error
	if ph.Distinct, err = distinct(hits); err != nil {
		return ph, err
	}
	parts := make([][]string, procs)
	for i := range parts {
		parts[i] = hits[i*len(hits)/procs : (i+1)*len(hits)/procs]
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
	runtime.GC() // the loop must not pay for garbage of the fill

	allowed := make([]int, procs)
	ready, begin := make(chan bool), make(chan bool)
	var done sync.WaitGroup
	for i := range parts {
		done.Go(func() {
			ready <- true
			<-begin
			allowed[i] = loop(l, parts[i])
		})
	}
	for range parts {
		<-ready
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	seen := watch()
	start := time.Now()
	close(begin)
	done.Wait()
	elapsed := time.Since(start)
	ph.Disturbed = seen.disturbed(procs)
	runtime.ReadMemStats(&after)

	ph.Ns = float64(elapsed.Nanoseconds()) / float64(len(hits))
	ph.Allocs = float64(after.Mallocs-before.Mallocs) / float64(len(hits))
	want, got := 0, 0
	if allow {
		want = len(hits)
	}
	for _, n := range allowed {
		got += n
	}
	if got != want {
		return ph, failf("%d of %d decisions were allowed, want %d", got, len(hits), want)
	}
	return ph, nil
}

func loop(l limiter, keys []string) (allowed int) {
	for _, key := range keys {
		if l.allow(key) {
			allowed++
		}
	}
	return allowed
}
