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

// The Redis scenarios measure decisions with state in Redis: decisions per second, server CPU time per decision, and
// requests per decision. Every run has its own server; client and server are pinned to different CPUs if there are
// enough of them.

// A remote decides over the network, so that it can also fail.
type remote interface {
	decide(key string) (bool, error)
}

// A remoteContender opens the remotes of callers. Each caller has its own remote, or all share one.
type remoteContender struct {
	contender
	phases   []string // the loads that it runs; nil: all
	requests []string // the commands that it sends, as in INFO
	connect  func(s *redisServer, sp spec, callers int) (*remotes, error)
	raw      int // send captured requests, this many at a time
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

// Names of loads.
const (
	spread64  = "64"
	spread256 = "256"
	alone     = "1"
	hot64     = "hot"
	denied64  = "denied"
)

// loads returns the loads in the order of the tables.
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

// A remotePhase is the result of one load.
type remotePhase struct {
	Load      string
	PerSecond float64
	CPU       float64 // server CPU time per decision, in microseconds
	Requests  float64 // per decision
	P50, P99  float64 // latency in microseconds
	Allocs    float64 // in the client, per decision
	Disturbed bool    `json:",omitempty"`
}

// redisEvery is how long a bucket takes to refill one unit: one per second is a common limit, and little is refilled
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

// measureLoad fills the keys, times the load, and checks the resulting state.
func (c *remoteContender) measureLoad(server *redisServer, l load, seed uint64) (ph remotePhase, err error) {
	fills := 5 // so that no state expires before it is timed
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
			return ph, failf("%d of %d keys were allowed in the first fill: %v", allowed, l.keys, err)
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
		run = func() (int, []time.Duration, error) { // the remaining quota of the keys shows that all were allowed
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

// timeLoad runs the timed part.
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
		return ph, failf("%d of %d decisions were allowed, want %d", allowed, l.ops, want)
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

// drive lets callers decide all keys in order, each the next one when it has a decision.
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

// holds checks that the server has at least this many keys, all with a TTL.
func (s *redisServer) holds(keys int) error {
	text, err := s.do("INFO", "keyspace")
	if err != nil {
		return err
	}
	var have, expiring int
	if _, err := fmt.Sscanf(text, "# Keyspace\r\ndb0:keys=%d,expires=%d", &have, &expiring); err != nil {
		return failf("the server has no keys: %q", text)
	}
	if have < keys || expiring < keys {
		return failf("the server has %d keys, %d of them with a TTL, want %d", have, expiring, keys)
	}
	return nil
}

// remoteSpare is the quota that a run leaves of every key, which is used up afterwards.
const remoteSpare = 50

// checkRemote uses up the remaining quota of some keys until they are denied, like verify.
func checkRemote(rs *remotes, keys []string, sp spec, hits int, begin time.Time) error {
	samples := []int{0, len(keys) / 2, len(keys) - 1}
	for _, k := range slices.Compact(samples) {
		least := max(0, sp.burst-int64(hits))
		for n := int64(0); ; n++ {
			ok, err := rs.of(0).decide(keys[k])
			won := int64(time.Since(begin)/sp.every) + slack // refilled since its first use
			switch {
			case err != nil:
				return failf("%s: %v", keys[k], err)
			case ok && n > least+won:
				return failf("%s was not denied after its last %d of %d: the state was lost, or there is no limit", keys[k], least, sp.burst)
			case ok:
				continue
			case n < least-slack:
				return failf("%s was denied after %d more hits, want at least %d", keys[k], n, least)
			}
			break
		}
	}
	return nil
}
