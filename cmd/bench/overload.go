package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/loadgen"
)

// The scenario `overload` measures a service under overload. First it finds the number of callers with the most
// responses per second. Then 20 times as many callers send requests, each of which waits for a response before the next
// request. A response after more than one second is useless to its caller and does not count.
//
// Callers over HTTP and the Redis protocol have one connection each; those over gRPC share some, as Envoy's do. A
// connection has a cost in any server, so each protocol has a floor: a minimal server of the protocol.

const overloaded = "overload"

// overloadScenario returns the scenario, whose ops are the duration of the overload in milliseconds.
func overloadScenario(quick bool, reps int) scenario {
	s := scenario{overloaded, "services under overload", serviceKeys, 6_000, reps, false}
	if quick {
		s.ops = 2_000
	}
	return s
}

const (
	crowdFactor  = 20
	crowdPatient = time.Second // timeout of a caller
	crowdConns   = 4           // shared by all callers over gRPC
	crowdDepth   = 16          // pipelined requests over the Redis protocol
)

// peakCallers are the numbers of callers that are tried to find the peak.
var peakCallers = []int{16, 32, 64}

// An overloadRun is the result of one repetition. Memory is resident, in megabytes.
type overloadRun struct {
	Callers     int // at the peak
	Peak, Crowd crowdPhase
	Idle, After float64 // memory before and after everything
	AtPeak      float64 // maximum memory at the peak
	Begin, End  float64 // maximum memory in the second and in the last quarter of the overload
	Disturbed   bool    `json:",omitempty"`
}

type crowdPhase struct {
	PerSecond float64 // responses in time
	CPU       float64 // server CPU time per response in time, in microseconds
	CallerCPU float64 // the same of the callers
	Late      float64 // share of requests without a response in time
	P99       float64 // in milliseconds
}

// Kept returns the share of the peak's responses per second that remains under overload. KeptCPU is the same per second
// of the server's CPU time, as if the callers had their own CPUs.
func (o *overloadRun) Kept() float64    { return o.Crowd.PerSecond / o.Peak.PerSecond }
func (o *overloadRun) KeptCPU() float64 { return o.Peak.CPU / o.Crowd.CPU }

// Grew returns the memory at the end of the overload over that at its start.
func (o *overloadRun) Grew() float64 { return o.End / o.Begin }

// A crowd is a service under overload.
type crowd struct {
	service
	floor  string // the name of its floor
	target func(ctx context.Context, at place, callers int) (loadgen.Target, error)
}

// crowds returns the service with each protocol, and a floor for each.
func crowds() (all []crowd) {
	for _, p := range []struct {
		name, floor, about, least string
		target                    func(ctx context.Context, at place, callers int) (loadgen.Target, error)
	}{
		{"overload-grpc", "floor-grpc", "Envoy's protocol over gRPC", "grpc-go with a constant response", crowdGRPC},
		{"overload-http", "floor-http", "POST /v1/check", "net/http with a constant response", crowdHTTP},
		{"overload-resp", "floor-resp", "CL.THROTTLE, 16 requests at a time", "a loop that reads and writes", crowdRESP},
	} {
		in := []string{overloaded}
		all = append(all,
			crowd{
				service: service{
					contender: contender{name: p.floor, role: roleFloor, clock: "none", scenarios: in, about: p.least},
					command:   runCrowdFloor,
				},
				target: p.target,
			},
			crowd{
				service: service{
					contender: contender{name: p.name, role: roleOurs, clock: oursClock, scenarios: in, about: "sluice serve, " + p.about},
					module:    repository, target: "./cmd/sluice", command: runCrowdServe,
				},
				floor: p.floor, target: p.target,
			})
	}
	return all
}

func crowdNamed(name string) *crowd {
	for _, c := range crowds() {
		if c.name == name {
			return &c
		}
	}
	return nil
}

// runCrowdServe runs sluice serve with all its protocols.
func runCrowdServe(at place) (*exec.Cmd, error) {
	if err := writeServiceRules(at); err != nil {
		return nil, err
	}
	file := filepath.Join(at.dir, "sluice.yaml")
	text := fmt.Sprintf("listeners:\n  grpc: {address: %q}\n  http: {address: %q}\n  resp: {address: %q}\n  admin: {address: 'off'}\n"+
		"rules:\n  paths: [config]\n", at.grpc, at.http, at.third)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return nil, err
	}
	return exec.Command(binary("sluice"), "serve", "--config", file), nil
}

func runCrowdFloor(at place) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(job{Floor: at.grpc, FloorHTTP: at.http, FloorRESP: at.third})
	if err != nil {
		return nil, err
	}
	return exec.Command(self, "-child", string(text)), nil
}

// crowdKey returns the key pattern of requests, in all protocols.
func crowdKey(p *loadgen.Patterns, text string) loadgen.Pattern {
	out, err := p.Parse(text)
	if err != nil {
		panic(err) // the patterns are constants
	}
	return out
}

func crowdURL(scheme, addr, path string) *url.URL {
	return &url.URL{Scheme: scheme, Host: addr, Path: path}
}

func crowdGRPC(ctx context.Context, at place, _ int) (loadgen.Target, error) {
	p := loadgen.Patterns{Keys: serviceKeys}
	return loadgen.NewRLS(ctx, loadgen.RLS{
		URL: crowdURL("rls", at.grpc, ""), Connections: crowdConns, Domain: serviceDomain,
		Descriptors: [][]loadgen.Entry{{{Key: crowdKey(&p, "user"), Value: crowdKey(&p, "user-{key}")}}},
	})
}

func crowdHTTP(ctx context.Context, at place, callers int) (loadgen.Target, error) {
	p := loadgen.Patterns{Keys: serviceKeys}
	u := crowdURL("http", at.http, "/v1/check")
	return loadgen.NewHTTP(ctx, loadgen.HTTP{
		URL: u, Full: crowdKey(&p, u.String()), Callers: callers, Method: "POST",
		Headers: []loadgen.Header{{Name: "Content-Type", Value: crowdKey(&p, "application/json")}},
		Body:    crowdKey(&p, `{"domain":"`+serviceDomain+`","descriptors":[[{"key":"user","value":"user-{key}"}]]}`),
	})
}

func crowdRESP(ctx context.Context, at place, _ int) (loadgen.Target, error) {
	p := loadgen.Patterns{Keys: serviceKeys}
	return loadgen.NewRESP(ctx, loadgen.RESP{
		URL: crowdURL("redis", at.third, ""), Key: crowdKey(&p, "user-{key}"), Burst: userLimit, Count: userLimit, Period: 3600,
	})
}

// measureOverload runs one repetition, on a new process.
func measureOverload(c *crowd, s *scenario, j job) (*result, error) {
	debug.SetGCPercent(400) // the callers' garbage is not measured
	ctx, cancel := context.WithTimeout(context.Background(), childTime)
	defer cancel()
	srv, err := c.start(ctx, false)
	if err != nil {
		return nil, err
	}
	defer srv.stop()
	for _, addr := range []string{srv.at.http, srv.at.third} {
		if err := reachable(ctx, addr); err != nil {
			return nil, err
		}
	}
	long := time.Duration(s.ops) * time.Millisecond
	o, ask := new(overloadRun), asker{ctx, c, srv, j.Seed}
	if _, err := ask.phase(peakCallers[len(peakCallers)-1], long/4, nil); err != nil { // warm-up
		return nil, err
	}
	o.Idle = srv.resident()
	seen, before := watch(), srv.cpu()
	watched := sampled{of: srv}
	for _, n := range peakCallers {
		p, err := ask.phase(n, long/4, &watched)
		if err != nil {
			return nil, err
		}
		if p.PerSecond > o.Peak.PerSecond {
			o.Peak, o.Callers = *p, n
		}
	}
	o.AtPeak = watched.most(0, 1)
	watched = sampled{of: srv}
	p, err := ask.phase(crowdFactor*o.Callers, long, &watched)
	if err != nil {
		return nil, err
	}
	o.Crowd = *p
	o.Begin, o.End = watched.most(0.25, 0.5), watched.most(0.75, 1)
	o.Disturbed = seen.disturbedBeside(srv.cpu() - before)
	if p, err := ask.phase(o.Callers, long/4, nil); err != nil || p.PerSecond == 0 {
		return nil, failf("it does not serve after the overload: %v", err)
	}
	o.After = srv.resident()
	return &result{Overload: o}, nil
}

// An asker sends requests to a server.
type asker struct {
	ctx  context.Context
	of   *crowd
	srv  *serviceProcess
	seed uint64
}

// phase runs this many callers for a while.
func (a *asker) phase(callers int, long time.Duration, watched *sampled) (*crowdPhase, error) {
	to, err := a.of.target(a.ctx, a.srv.at, callers)
	if err != nil {
		return nil, err
	}
	defer to.Close()
	plan := loadgen.Plan{
		Target: to, Callers: callers, Duration: long, Timeout: crowdPatient, Warmup: long / 8,
		Keys: loadgen.Keys{Count: serviceKeys, Seed: a.seed},
	}
	if a.of.name == "overload-resp" || a.of.name == "floor-resp" {
		plan.Pipeline = crowdDepth
	}
	// The warm-up is a separate run, so that it is not part of the server's CPU time.
	warm := plan
	warm.Warmup, warm.Duration = 0, plan.Warmup
	plan.Warmup = 0
	if _, err := loadgen.Run(a.ctx, warm); err != nil {
		return nil, err
	}
	defer watched.start()()
	before, own := a.srv.cpu(), selfTime()
	r, err := loadgen.Run(a.ctx, plan)
	if err != nil {
		return nil, err
	}
	used := a.srv.cpu() - before
	own = selfTime() - own
	if r.Sum.Denied > 0 || r.Sum.Allowed == 0 {
		return nil, failf("%d callers: %d were denied and %d allowed, %v %v", callers, r.Sum.Denied, r.Sum.Allowed, r.Codes, r.Reasons)
	}
	inTime := r.Sum.Latency.Below(crowdPatient) - (r.Sum.Failed - noAnswers(r))
	return &crowdPhase{
		PerSecond: float64(inTime) / max(long, r.Elapsed).Seconds(), CPU: micros(used) / float64(max(1, inTime)), CallerCPU: micros(own) / float64(max(1, inTime)),
		Late: 1 - float64(inTime)/float64(r.Requests()), P99: micros(r.Sum.Latency.Percentile(99)) / 1000,
	}, nil
}

// noAnswers returns how many requests failed without a response.
func noAnswers(r *loadgen.Result) (n int64) {
	for _, count := range r.Reasons {
		n += count
	}
	return n
}

// sampled is a server's memory over time.
type sampled struct {
	of     *serviceProcess
	values []float64
}

// start samples until the returned function is called. Samples must not be read before.
func (s *sampled) start() (stop func()) {
	if s == nil {
		return func() {}
	}
	end := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for {
			s.values = append(s.values, s.of.resident())
			select {
			case <-end:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	return func() {
		close(end)
		done.Wait()
	}
}

// most returns the maximum between two fractions of the time.
func (s *sampled) most(from, to float64) float64 {
	n := float64(len(s.values))
	highest := 0.0
	for _, v := range s.values[int(from*n):max(int(from*n), int(to*n))] {
		highest = max(highest, v)
	}
	return highest
}
