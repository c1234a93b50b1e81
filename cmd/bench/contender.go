package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A limiter is what every contender is reduced to: spend one on a key, and say whether that was allowed. Calling it
// through the interface costs each of them, the floor included, the same two nanoseconds.
type limiter interface {
	allow(key string) bool
}

// A spec is the limit that a scenario asks for, in terms that both buckets and windows can follow.
type spec struct {
	burst int64 // what a key may spend in the whole run: a bucket's size, a window's count
	// every is how long a bucket takes to win back one. It is much longer than a run: a bucket that fills up again
	// between two hits may be forgotten and made anew, and a benchmark that evicts its own state looks wonderful.
	every time.Duration
	// slide is the window of Sluice's sliding counter. Where that is timed it is short: an estimate with nothing in the
	// window before is a special case, so the run fills one window and is timed in the next.
	slide time.Duration
	keys  int // how many keys will come; only the floor, which cannot grow, looks at it
}

// bucketCount is how much a bucket wins back per bucketCount*every. It is not 1, so that nobody is measured in a
// special case.
const bucketCount = 100

// longWindow is the window of contenders that count in windows. Like spec.every it outlasts any run.
const longWindow = 90 * 24 * time.Hour

// A role says what a contender is in the tables for.
type role string

const (
	roleFloor role = "floor"
	roleOurs  role = "sluice"
	rolePeer  role = "peer"
	roleEmpty role = "empty" // a process without a limiter, for what a collection costs at the least
)

// A contender is one implementation to measure.
type contender struct {
	name      string
	role      role
	about     string // algorithm and how it is called
	clock     string
	scenarios []string
	slides    bool // counts in windows of spec.slide
	open      func(spec) (limiter, error)
	wrap      wrapper // instead of open, for middleware
}

func (c *contender) runs(scenario string) bool { return slices.Contains(c.scenarios, scenario) }

// left is a peer that is not measured, and why.
type left struct{ name, why string }

var leftOut = []left{
	{"mennanov/limiters v1.11.0", "can be had, but builds the AWS, etcd, Consul, ZooKeeper and Redis clients into the benchmark"},
}

// contenders lists everything that can be measured, in the order of the tables.
func contenders() []contender {
	all := slices.Concat([]contender{floorContender, emptyContender}, ours, peers, httpContenders, []contender{rulesContender})
	for _, c := range remoteContenders() {
		all = append(all, c.contender)
	}
	for _, c := range leaseContenders {
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
	name: "empty", role: roleEmpty, about: "a process with no limiter", clock: "none",
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
