package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"
)

// The Redis scenarios ask what decisions cost when the counts are in Redis: how many there are in a second, what the
// server's processor spends on each, and how many requests that takes. Every run has a server of its own; client and
// server are kept on different processors where there are enough of them.

// A remote decides over the network, where more can go wrong than a denial.
type remote interface {
	decide(key string) (bool, error)
}

// A remoteContender opens what callers decide with. Each caller has its own remote, which may be the same one.
type remoteContender struct {
	contender
	phases   []string // that it runs; nil is all
	requests []string // the commands that it sends, as INFO calls them
	connect  func(s *redisServer, sp spec, callers int) (*remotes, error)
	raw      int // send the requests ready made, so many at a time
}

type remotes struct {
	of    func(caller int) remote
	close func()
}

func remoteContenders() []remoteContender {
	return slices.Concat(remoteFloors, remoteOurs, remotePeers)
}

func remoteNamed(name string) *remoteContender {
	all := remoteContenders()
	return &all[slices.IndexFunc(all, func(c remoteContender) bool { return c.name == name })]
}

func everyone(r remote, closer func()) *remotes {
	return &remotes{of: func(int) remote { return r }, close: closer}
}

// A load is one timed part of the Redis scenario.
type load struct {
	name, title   string
	callers, keys int
	ops           int
	deny          bool
}

// The names of loads.
const (
	spread64  = "64"
	spread256 = "256"
	alone     = "1"
	hot64     = "hot"
	denied64  = "denied"
)

// loads are in the order of the tables.
func (s *scenario) loads() []load {
	few := fmt.Sprintf("%d keys", s.keys/10)
	many := fmt.Sprintf("%d keys", s.keys)
	return []load{
		{spread64, many + ", 64 callers", 64, s.keys, s.ops, false},
		{spread256, many + ", 256 callers", 256, s.keys, s.ops, false},
		{alone, few + ", one caller", 1, s.keys / 10, s.ops / 10, false},
		{hot64, "one hot key, 64 callers", 64, 1, s.ops / 2, false},
		{denied64, "one exhausted key, 64 callers, every decision a denial", 64, 1, s.ops / 2, true},
	}
}

// A remotePhase is what was found under one load.
type remotePhase struct {
	Load      string
	PerSecond float64
	CPU       float64 // microseconds of the server's processor for a decision
	Requests  float64 // for a decision
	P50, P99  float64 // microseconds until the answer
	Allocs    float64 // in the client, for a decision
	Disturbed bool    `json:",omitempty"`
}

// redisEvery is how long a bucket takes to win back one: one in a second is an everyday limit, and little is won back
// during a run.
const redisEvery = time.Second

func measureRedis(c *remoteContender, s *scenario, j job) (*result, error) {
	ctx := context.Background()
	server, err := startRedis(ctx, j.RedisCPU)
	if err != nil {
		return nil, err
	}
	defer server.stop()
	res := new(result)
	for _, l := range s.loads() {
		if c.phases != nil && !slices.Contains(c.phases, l.name) {
			continue
		}
		ph, err := c.measureLoad(server, l, j.Seed)
		if err != nil {
			return nil, fmt.Errorf("load %s: %w", l.name, err)
		}
		res.Redis = append(res.Redis, ph)
		if _, err := server.do("FLUSHALL"); err != nil {
			return nil, err
		}
	}
	return res, nil
}

// measureLoad fills the keys, times the load, and checks what it left behind.
func (c *remoteContender) measureLoad(server *redisServer, l load, seed uint64) (ph remotePhase, err error) {
	fills := 5 // so that no state wears off before it is timed
	if l.deny {
		fills = 2
	}
	hits := fills + l.ops/l.keys // of every key
	sp := spec{burst: int64(hits) + remoteSpare, every: redisEvery, slide: longWindow, keys: l.keys}
	if l.deny {
		sp.burst, sp.every = 2, 10*time.Minute
	}
	rs, err := c.connect(server, sp, l.callers)
	if err != nil {
		return ph, err
	}
	defer rs.close()
	keys, err := makeKeys(l.keys)
	if err != nil {
		return ph, err
	}
	begin := time.Now()
	for range fills {
		if allowed, _, err := drive(rs, keys, l.callers, false); err != nil || allowed != l.keys {
			return ph, failf("%d of %d keys were allowed at first: %v", allowed, l.keys, err)
		}
	}
	order := make([]string, l.ops)
	for i, k := range shuffled(rand.New(rand.NewPCG(seed, 0)), l.keys, l.ops) {
		order[i] = keys[k]
	}
	run := func() (int, []time.Duration, error) { return drive(rs, order, l.callers, true) }
	if c.raw > 0 {
		raw, err := newRawLoad(server, sp, order, l.callers, c.raw)
		if err != nil {
			return ph, err
		}
		run = func() (int, []time.Duration, error) { // that all were allowed shows in what the keys have left
			took, err := raw.run()
			return len(order), took, err
		}
	}
	if ph, err = c.timeLoad(server, l, run); err != nil {
		return ph, err
	}
	if err := server.holds(l.keys); err != nil {
		return ph, err
	}
	return ph, checkRemote(rs, keys, sp, hits, begin)
}

// timeLoad is the part that is timed.
func (c *remoteContender) timeLoad(server *redisServer, l load, run func() (int, []time.Duration, error)) (ph remotePhase, err error) {
	ph.Load = l.name
	runtime.GC()
	var before, after runtime.MemStats
	used, err := server.usage(c.requests)
	if err != nil {
		return ph, err
	}
	runtime.ReadMemStats(&before)
	seen := watch()
	start := time.Now()
	allowed, took, err := run()
	elapsed := time.Since(start)
	runtime.ReadMemStats(&after)
	now, err2 := server.usage(c.requests)
	if err != nil || err2 != nil {
		return ph, failf("%v %v", err, err2)
	}
	ph.Disturbed = seen.disturbedBeside(now.cpu - used.cpu)
	want := l.ops
	if l.deny {
		want = 0
	}
	if allowed != want {
		return ph, failf("%d of %d decisions were allowed, %d should have been", allowed, l.ops, want)
	}
	n := float64(l.ops)
	ph.PerSecond = n / elapsed.Seconds()
	ph.CPU = float64((now.cpu - used.cpu).Microseconds()) / n
	ph.Requests = (now.calls - used.calls) / n
	ph.Allocs = float64(after.Mallocs-before.Mallocs) / n
	slices.Sort(took)
	ph.P50, ph.P99 = micros(took[len(took)/2]), micros(took[len(took)*99/100])
	return ph, nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// drive has callers decide all keys in their order, each the next when it has an answer.
func drive(rs *remotes, keys []string, callers int, timing bool) (allowed int, took []time.Duration, err error) {
	if timing {
		took = make([]time.Duration, len(keys))
	}
	counts, faults := make([]int, callers), make([]error, callers)
	var done sync.WaitGroup
	for i := range callers {
		r := rs.of(i)
		done.Go(func() {
			for k := i; k < len(keys); k += callers {
				start := time.Now()
				ok, err := r.decide(keys[k])
				if timing {
					took[k] = time.Since(start)
				}
				if err != nil {
					faults[i] = err
					return
				}
				if ok {
					counts[i]++
				}
			}
		})
	}
	done.Wait()
	for i := range callers {
		allowed += counts[i]
		if err == nil {
			err = faults[i]
		}
	}
	return allowed, took, err
}

// holds checks that the server has at least so many keys, each of which it will forget some day.
func (s *redisServer) holds(keys int) error {
	text, err := s.do("INFO", "keyspace")
	if err != nil {
		return err
	}
	var have, expiring int
	if _, err := fmt.Sscanf(text, "# Keyspace\r\ndb0:keys=%d,expires=%d", &have, &expiring); err != nil {
		return failf("the server holds nothing: %q", text)
	}
	if have < keys || expiring < keys {
		return failf("the server holds %d keys, %d of them with a time to live, instead of %d", have, expiring, keys)
	}
	return nil
}

// remoteSpare is what a run leaves of every key, to be spent to the end afterwards.
const remoteSpare = 50

// checkRemote spends what is left of some keys until they are denied, as verify does.
func checkRemote(rs *remotes, keys []string, sp spec, hits int, begin time.Time) error {
	samples := []int{0, len(keys) / 2, len(keys) - 1}
	for _, k := range slices.Compact(samples) {
		least := max(0, sp.burst-int64(hits))
		for n := int64(0); ; n++ {
			ok, err := rs.of(0).decide(keys[k])
			won := int64(time.Since(begin)/sp.every) + slack // since it was first spent on
			switch {
			case err != nil:
				return failf("%s: %v", keys[k], err)
			case ok && n > least+won:
				return failf("%s was not denied after its last %d of %d: the state was lost, or nothing is limited", keys[k], least, sp.burst)
			case ok:
				continue
			case n < least-slack:
				return failf("%s was denied with %d left to spend, instead of at least %d", keys[k], n, least)
			}
			break
		}
	}
	return nil
}
