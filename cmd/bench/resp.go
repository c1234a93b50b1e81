package main

import (
	"context"
	"fmt"
	"net"
	"os/exec"
)

// The scenario `resp` measures a decision over the Redis protocol, compared with the floor of gRPC and with that of any
// protocol: 32 bytes in each direction. It measures like the scenario `service`.

const (
	loadPipelined = "pipelined"
	loadApart     = "apart"
	loadCallers   = "callers"
)

// respLoads are the loads. The floor of gRPC is called by its own client, whose 64 callers always share the
// connections.
var respLoads = []serviceLoad{
	{name: loadPipelined, title: "64 callers on 4 connections, pipelined: 16 commands at a time", conns: 4, takes: 1},
	{name: loadApart, title: "64 callers on 64 connections, one command at a time", conns: 64, takes: 1},
	{name: loadCallers, title: "64 callers of a Redis client (rueidis) on 4 connections, each waiting for its reply", conns: 4, takes: 1},
}

// respMore is the multiplier of requests compared with gRPC, which takes much longer for each.
const respMore = 20

var inRESP = []string{respRun}

func respServices() []service {
	return []service{
		{
			contender: contender{
				name: "tcp-floor", role: roleFloor, clock: "none", scenarios: inRESP,
				about: "32 bytes in each direction over TCP; decides nothing",
			},
			command: runFloorAs(func(at place) job { return job{FloorTCP: at.grpc} }),
		},
		{
			contender: contender{
				name: "serve-resp", role: roleOurs, clock: oursClock, scenarios: inRESP,
				about: "sluice serve over RESP, counts in memory, CL.THROTTLE",
			},
			module: repository, target: "./cmd/sluice", command: runServeRESP("memory"),
		},
		{
			contender: contender{
				name: "serve-resp-redis", role: roleOurs, clock: "Redis'", scenarios: inRESP,
				about: "sluice serve over RESP, counts in Redis, exact, CL.THROTTLE",
			},
			module: repository, target: "./cmd/sluice", redis: true, command: runServeRESP("redis"),
		},
	}
}

// runServeRESP runs the service with a RESP listener on the address that other contenders use for gRPC.
func runServeRESP(store string) func(place) (*exec.Cmd, error) {
	return func(at place) (*exec.Cmd, error) {
		return serveWith(at, store, fmt.Sprintf("  grpc: {address: off}\n  resp: {address: %q}\n", at.grpc))
	}
}

// measureRESP runs all loads on one server, each on a new process.
func measureRESP(sv *service, s *scenario, j job) (*result, error) {
	res := new(result)
	for i := range respLoads {
		l := &respLoads[i]
		var p *servicePhase
		var err error
		switch {
		case sv.name == "service-floor":
			p, err = sv.run(l, s.ops, j.Seed)
		case sv.role == roleFloor && l.name == loadCallers:
			continue // there is no client for it
		default:
			p, err = sv.runRESP(l, s.ops, j.Seed)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.title, err)
		}
		res.Service = append(res.Service, *p)
	}
	return res, nil
}

func (sv *service) runRESP(l *serviceLoad, ops int, seed uint64) (*servicePhase, error) {
	ctx, cancel := context.WithTimeout(context.Background(), childTime)
	defer cancel()
	srv, err := sv.start(ctx, false)
	if err != nil {
		return nil, err
	}
	defer srv.stop()
	c := &respClient{addr: srv.addr, floor: sv.role == roleFloor}
	if !c.floor {
		if err := c.exhaust(); err != nil {
			return nil, err
		}
	}
	switch {
	case l.name == loadCallers, sv.redis:
		ops *= respMore / 5
	default:
		ops *= respMore
	}
	loop := c.pipelined
	if l.name == loadCallers {
		loop = c.callers
	}
	order := respOrder(seed, ops+ops/10)
	warm := ops / 10
	if _, err := loop(ctx, l, order[:warm]); err != nil {
		return nil, err
	}
	p := &servicePhase{Load: l.name, Requests: ops}
	before, redis, seen := srv.cpu(), srv.redisCPU(), watch()
	took, err := loop(ctx, l, order[warm:])
	if err != nil {
		return nil, err
	}
	server, store := srv.cpu()-before, srv.redisCPU()-redis
	p.Disturbed = seen.disturbedBeside(server + store)
	p.PerSecond = float64(ops) / took.elapsed.Seconds()
	p.CPU, p.RedisCPU = micros(server)/float64(ops), micros(store)/float64(ops)
	p.P50, p.P99 = took.percentile(0.5), took.percentile(0.99)
	if c.floor {
		return p, nil
	}
	if err := srv.counted(distinctOf(order)); err != nil {
		return nil, err
	}
	return p, c.verify(order)
}

// floorFrame is the size of requests and replies of the floor.
const floorFrame = 32

// serveFloorTCP replies to each frame with one frame, to as many at a time as have arrived.
func serveFloorTCP(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			b, end := make([]byte, 8<<10), 0
			for {
				n, err := conn.Read(b[end:])
				if err != nil {
					return
				}
				end += n
				whole := end - end%floorFrame
				if _, err := conn.Write(b[:whole]); err != nil {
					return
				}
				end = copy(b, b[whole:end])
			}
		}()
	}
}

// respBars returns the targets of the RESP listener.
func (r *report) respBars() (bars []bar) {
	for i := range r.RESP {
		switch t := &r.RESP[i]; t.Load {
		case loadPipelined:
			bars = append(bars, t.faster("RESP in memory, 64 callers pipelined", "serve-resp", "service-floor", 4))
		case loadCallers:
			bars = append(bars, t.faster("RESP in memory, 64 callers of a Redis client", "serve-resp", "service-floor", 4))
		}
	}
	return bars
}
