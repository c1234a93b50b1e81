package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
)

// The scenario `service` measures a decision of a service: each server is a separate process, and this process is its
// clients. The figure to compare is the server's CPU time per request, as accounted by the kernel, because client and
// server share the machine's CPUs and requests per second depend on both.

// A serviceLoad is one kind of load.
type serviceLoad struct {
	name, title   string
	conns, takes  int // connections; decisions per request
	over          bool
	openLoopAfter bool // also send requests at a fixed rate, to measure the latency that callers see
}

const (
	loadOne  = "one"
	loadWide = "wide"
	loadTen  = "ten"
	loadOver = "over"
)

var serviceLoads = []serviceLoad{
	{name: loadOne, title: "one descriptor, 64 callers on 4 connections", conns: 4, takes: 1, openLoopAfter: true},
	{name: loadWide, title: "one descriptor, 64 callers on 64 connections", conns: 64, takes: 1},
	{name: loadTen, title: "ten descriptors in a request, 64 callers on 4 connections", conns: 4, takes: 10},
	{name: loadOver, title: "one exhausted key, 64 callers on 4 connections", conns: 4, takes: 1, over: true},
}

const (
	serviceCallers = 64
	serviceKeys    = 100_000
	// openRate is well below the maximum of the slowest contender, because it measures latency, not overload.
	openRate = 2000
	// userLimit is never reached, hotLimit at once. Windows are a year long: none ends during a run.
	userLimit = 1_000_000
	hotLimit  = 100
)

// A servicePhase is the result of one load.
type servicePhase struct {
	Load      string
	Requests  int
	PerSecond float64
	CPU       float64 // server CPU time per request, in microseconds
	RedisCPU  float64 // the same of Redis, for servers that use it
	P50, P99  float64 // in milliseconds, with callers that wait for a response before the next request
	OpenP99   float64 // in milliseconds from when a request was due, at openRate
	Disturbed bool    `json:",omitempty"`
}

// measureService runs all loads on one server, each on a new process.
func measureService(sv *service, s *scenario, j job) (*result, error) {
	res := new(result)
	for i := range serviceLoads {
		l := &serviceLoads[i]
		p, err := sv.run(l, s.ops, j.Seed)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.title, err)
		}
		res.Service = append(res.Service, *p)
	}
	return res, nil
}

func (sv *service) run(l *serviceLoad, ops int, seed uint64) (*servicePhase, error) {
	ctx, cancel := context.WithTimeout(context.Background(), childTime)
	defer cancel()
	srv, err := sv.start(ctx, l.over)
	if err != nil {
		return nil, err
	}
	defer srv.stop()
	c, err := srv.connect(ctx, l.conns)
	if err != nil {
		return nil, err
	}
	defer c.close()
	ops /= l.takes
	order, choices := l.order(seed, 2*ops)
	if l.over {
		if err := c.exhaust(ctx, sv.wire); err != nil {
			return nil, err
		}
	}
	requests := l.requests(sv.wire)
	check := sv.wire.check(l.takes, l.over)
	warm := ops / 10
	if _, err := c.closedLoop(ctx, requests, order[:warm], check); err != nil {
		return nil, err
	}
	p := &servicePhase{Load: l.name, Requests: ops}
	before, redis, seen := srv.cpu(), srv.redisCPU(), watch()
	took, err := c.closedLoop(ctx, requests, order[warm:warm+ops], check)
	if err != nil {
		return nil, err
	}
	server, store := srv.cpu()-before, srv.redisCPU()-redis
	p.Disturbed = seen.disturbedBeside(server + store)
	p.PerSecond = float64(ops) / took.elapsed.Seconds()
	p.CPU, p.RedisCPU = micros(server)/float64(ops), micros(store)/float64(ops)
	p.P50, p.P99 = took.percentile(0.5), took.percentile(0.99)
	done := warm + ops
	if l.openLoopAfter {
		n := min(ops/4, 2*openRate)
		took, err := c.openLoop(ctx, requests, order[done:done+n], openRate, check)
		if err != nil {
			return nil, err
		}
		done, p.OpenP99 = done+n, took.percentile(0.99)
	}
	if err := srv.counted(l.takes * distinctOf(order[:done])); err != nil {
		return nil, err
	}
	if sv.role == roleFloor || l.over {
		return p, nil
	}
	return p, c.verify(ctx, sv.wire, l, order[:done], choices)
}

// order returns the indexes of the prepared requests to send, and the number of prepared requests.
func (l *serviceLoad) order(seed uint64, n int) (order []uint32, choices int) {
	r := rand.New(rand.NewPCG(seed, 3))
	choices = serviceKeys / l.takes
	if l.over {
		choices = 1
	}
	order = make([]uint32, n)
	for i := range order {
		order[i] = uint32(r.IntN(choices))
	}
	return order, choices
}

func distinctOf(order []uint32) int {
	seen := map[uint32]bool{}
	for _, r := range order {
		seen[r] = true
	}
	return len(seen)
}

// requests returns all prepared requests of a load. Request i has its own keys.
func (l *serviceLoad) requests(w wire) [][]byte {
	if l.over {
		return [][]byte{w.encode([]string{hotKey})}
	}
	all := make([][]byte, serviceKeys/l.takes)
	for i := range all {
		all[i] = w.encode(l.keys(i))
	}
	return all
}

func (l *serviceLoad) keys(request int) (keys []string) {
	for k := range l.takes {
		keys = append(keys, userKey(request*l.takes+k))
	}
	return keys
}

func userKey(i int) string { return fmt.Sprintf("user-%07d", i) }

// hotKey is the exhausted key.
const hotKey = "hot"

// exhaust uses up the hot key's limit, and checks that the server denies from then on.
func (c *serviceClient) exhaust(ctx context.Context, w wire) error {
	request := w.encode([]string{hotKey})
	for i := range hotLimit + 1 {
		reply, err := c.call(ctx, request)
		if err != nil {
			return err
		}
		if w.floor {
			continue
		}
		if err := w.check(1, i == hotLimit)(reply); err != nil {
			return failf("hit %d with a limit of %d: %v", i+1, hotLimit, err)
		}
	}
	return nil
}

// verify takes one more unit of some keys: the remaining quota proves that the server counted every hit.
func (c *serviceClient) verify(ctx context.Context, w wire, l *serviceLoad, sent []uint32, choices int) error {
	for _, request := range []uint32{0, uint32(choices / 2), uint32(choices - 1), sent[len(sent)-1]} {
		hits := int64(1)
		for _, r := range sent {
			if r == request {
				hits++
			}
		}
		reply, err := c.call(ctx, w.encode(l.keys(int(request))))
		if err != nil {
			return err
		}
		remaining, err := w.remaining(reply)
		if err != nil {
			return err
		}
		for _, got := range remaining {
			if want := userLimit - hits; got != want {
				return failf("after %d hits Remaining is %d of %d, want %d", hits, got, userLimit, want)
			}
		}
		if len(remaining) != l.takes {
			return failf("%d decisions for %d keys", len(remaining), l.takes)
		}
		sent = append(sent, request)
	}
	return nil
}

// A serviceWeight is the memory of a server, in megabytes.
type serviceWeight struct {
	Idle, Full float64 // at the start, and with all keys
	Keys       int
	Redis      float64 // growth of Redis
}

// fillTakes is the number of keys per request.
const fillTakes = 20

// weighService fills a server with keys and measures its memory.
func weighService(sv *service, s *scenario) (*result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), childTime)
	defer cancel()
	srv, err := sv.start(ctx, false)
	if err != nil {
		return nil, err
	}
	defer srv.stop()
	c, err := srv.connect(ctx, 4)
	if err != nil {
		return nil, err
	}
	defer c.close()
	l := &serviceLoad{takes: fillTakes}
	if _, err := c.call(ctx, sv.wire.encode([]string{"before"})); err != nil {
		return nil, err
	}
	w := &serviceWeight{Idle: srv.resident(), Keys: s.keys}
	redis := srv.redisResident()
	requests := make([][]byte, s.keys/fillTakes)
	order := make([]uint32, len(requests))
	for i := range requests {
		requests[i], order[i] = sv.wire.encode(l.keys(i)), uint32(i)
	}
	if _, err := c.closedLoop(ctx, requests, order, sv.wire.check(fillTakes, false)); err != nil {
		return nil, err
	}
	w.Full, w.Redis = srv.resident(), srv.redisResident()-redis
	if w.Idle == 0 {
		return nil, errors.New("memory is read from /proc, which does not exist")
	}
	if err := srv.counted(s.keys); err != nil {
		return nil, err
	}
	if sv.role != roleFloor {
		err = c.verify(ctx, sv.wire, l, order, len(requests))
	}
	return &result{ServiceMemory: w}, err
}
