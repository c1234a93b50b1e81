package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A limiter is the common interface of all contenders: take one unit of a key, and report whether that was allowed.
// Calling it through the interface costs each of them, the floor included, the same two nanoseconds.
type limiter interface {
	allow(key string) bool
}

// A spec is the limit of a scenario, in terms that both buckets and windows support.
type spec struct {
	burst int64 // quota of a key for the whole run: a bucket's size, a window's count
	// every is how long a bucket takes to refill one unit. It is much longer than a run: a bucket that is full again
	// between two hits may be evicted and re-created, and a benchmark that evicts its own state looks very good.
	every time.Duration
	// slide is the window of Sluice's sliding counter. It is short where the counter is timed: an estimate with an
	// empty previous window is a special case, so the run fills one window and is timed in the next.
	slide time.Duration
	keys  int // number of keys; used only by the floor, which cannot grow
}

// bucketCount is the refill of a bucket per bucketCount*every. It is not 1, so that no contender is measured in a
// special case.
const bucketCount = 100

// longWindow is the window of contenders that count in windows. Like spec.every it is longer than any run.
const longWindow = 90 * 24 * time.Hour

// A role is the purpose of a contender in the tables.
type role string

const (
	roleFloor role = "floor"
	roleOurs  role = "sluice"
	rolePeer  role = "peer"
	roleEmpty role = "empty" // a process without a limiter, for the minimum cost of a garbage collection
)

// A contender is an implementation to measure.
type contender struct {
	name      string
	role      role
	about     string // algorithm, and how it is called
	clock     string
	scenarios []string
	slides    bool // uses windows of spec.slide
	open      func(spec) (limiter, error)
	wrap      wrapper // instead of open, for middleware
}

func (c *contender) runs(scenario string) bool { return slices.Contains(c.scenarios, scenario) }

// left is a peer that is not measured, with the reason.
type left struct{ name, why string }

var leftOut = []left{
	{"mennanov/limiters v1.11.0", "would link the AWS, etcd, Consul, ZooKeeper and Redis clients into the benchmark"},
}

// contenders returns all contenders, in the order of the tables.
func contenders() []contender {
	all := slices.Concat([]contender{floorContender, emptyContender}, ours, peers, httpContenders, []contender{rulesContender, simulateContender})
	for _, c := range remoteContenders() {
		all = append(all, c.contender)
	}
	for _, c := range leaseContenders {
		all = append(all, c.contender)
	}
	for _, c := range storeContenders {
		all = append(all, c.contender)
	}
	for _, s := range allServices() {
		all = append(all, s.contender)
	}
	for _, p := range proxies() {
		all = append(all, p.contender)
	}
	for _, c := range crowds() {
		all = append(all, c.contender)
	}
	return all
}

var emptyContender = contender{
	name: "empty", role: roleEmpty, about: "a process without a limiter", clock: "none",
	scenarios: []string{mem5m},
	open:      func(spec) (limiter, error) { return nothing{}, nil },
}

type nothing struct{}

func (nothing) allow(string) bool { return true }

// choose returns the contenders whose names are in the comma-separated list, or all of them.
func choose(list string) ([]contender, error) {
	all := contenders()
	if list == "" {
		return all, nil
	}
	var names []string
	for _, c := range all {
		names = append(names, c.name)
	}
	var chosen []contender
	for name := range strings.SplitSeq(list, ",") {
		i := slices.Index(names, name)
		if i < 0 {
			return nil, fmt.Errorf("no contender %q: choose from %s", name, strings.Join(names, ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}
