package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// A runner runs contenders through scenarios, each in a separate process.
type runner struct {
	contenders []contender
	scenarios  []scenario
	quick      bool
	seed       uint64
	procs      []int
	pins       cpuPins // for scenarios with a Redis server
	progress   *progress
	results    map[string][]*result // by scenario and contender
	took       time.Duration
	retried    time.Duration // spent in this scenario on disturbed runs
}

func at(scenario, contender string) string { return scenario + "/" + contender }

// run interleaves repetitions, so that a temporary disturbance affects one repetition of all contenders instead of all
// repetitions of one.
func (r *runner) run(ctx context.Context) error {
	total := 0
	for _, s := range r.scenarios {
		for i := range r.contenders {
			if c := &r.contenders[i]; c.runs(s.name) {
				total += s.repeats(c)
			}
		}
	}
	r.results = map[string][]*result{}
	begin, done := time.Now(), 0
	defer r.progress.end()
	for _, s := range r.scenarios {
		r.retried = 0
		for rep := range s.reps {
			for i := range r.contenders {
				c := &r.contenders[i]
				if !c.runs(s.name) || rep >= s.repeats(c) {
					continue
				}
				r.progress.show(done, total, fmt.Sprintf("%s %d/%d: %s", s.name, rep+1, s.reps, c.name))
				j := job{Contender: c.name, Scenario: s.name, Quick: r.quick, Seed: r.seed + uint64(rep), Procs: r.procs}
				if s.pinned() {
					j.RedisCPU = r.pins.server
				}
				res, err := r.undisturbed(ctx, j)
				if err != nil {
					return err
				}
				r.results[at(s.name, c.name)] = append(r.results[at(s.name, c.name)], res)
				done++
			}
		}
	}
	r.took = time.Since(begin)
	return nil
}

const (
	// retries is how often a disturbed run is repeated before its figures are used anyway.
	retries = 2
	// retryTime bounds these repetitions per scenario, because on a busy machine they are useless.
	retryTime = 10 * time.Second
)

// undisturbed runs a job, and again if other processes used the CPUs.
func (r *runner) undisturbed(ctx context.Context, j job) (*result, error) {
	for try := 0; ; try++ {
		begin := time.Now()
		res, err := r.child(ctx, j)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return &result{Invalid: err.Error()}, nil
		}
		calm := !slices.ContainsFunc(res.Phases, func(p phase) bool { return p.Disturbed }) &&
			!slices.ContainsFunc(res.Redis, func(p remotePhase) bool { return p.Disturbed }) &&
			!slices.ContainsFunc(res.Lease, func(p leaseCost) bool { return p.Disturbed }) &&
			!slices.ContainsFunc(res.Service, func(p servicePhase) bool { return p.Disturbed }) &&
			!slices.ContainsFunc(res.Stores, func(c storeCost) bool { return c.Disturbed }) &&
			(res.Overload == nil || !res.Overload.Disturbed) && (res.Simulate == nil || !res.Simulate.Disturbed)
		if calm || r.quick || try == retries || r.retried > retryTime {
			return res, nil
		}
		r.retried += time.Since(begin)
	}
}

// childTime is the timeout of a child process.
const childTime = 3 * time.Minute

func (r *runner) child(ctx context.Context, j job) (*result, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, childTime)
	defer cancel()
	line := []string{self, "-child", string(text)}
	if j.RedisCPU != "" {
		line = append([]string{"taskset", "-c", r.pins.client}, line...)
	}
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	var fault strings.Builder
	cmd.Stderr = &fault
	out, err := cmd.Output()
	if err != nil {
		lines := strings.SplitN(strings.TrimSpace(fault.String()), "\n", 2)
		return nil, fmt.Errorf("%w: %.200s", err, lines[0])
	}
	res := new(result)
	return res, json.Unmarshal(out, res)
}

// runChild does one job and prints its result.
func runChild(text string, stdout io.Writer) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	if j.Server != "" {
		return runClient(j.Server, j.Requests)
	}
	if j.FloorHTTP != "" {
		return serveCrowdFloor(j)
	}
	if j.Floor != "" {
		return serveFloor(j.Floor)
	}
	if j.Proxy != nil {
		return serveProxy(j.Proxy)
	}
	if j.FloorTCP != "" {
		return serveFloorTCP(j.FloorTCP)
	}
	chosen, err := choose(j.Contender)
	if err != nil {
		return err
	}
	picked, err := pick(scenarios(j.Quick, 1), j.Scenario)
	if err != nil {
		return err
	}
	c, s := &chosen[0], &picked[0]
	res, err := c.measured(s, j)
	switch {
	case errors.Is(err, errCheck):
		res = &result{Invalid: err.Error()}
	case err != nil:
		return err
	}
	return json.NewEncoder(stdout).Encode(res)
}

// measured runs the scenario.
func (c *contender) measured(s *scenario, j job) (*result, error) {
	switch {
	case s.timed():
		return measure(c, s, j)
	case s.name == httpServe:
		return measureHTTP(c, s)
	case s.name == ruleMatch:
		return measureRules(s)
	case s.name == redisLoad:
		return measureRedis(remoteNamed(c.name), s, j)
	case s.name == redisMem:
		return weighRedis(remoteNamed(c.name), s, j)
	case s.name == leased:
		return measureLease(leaseNamed(c.name), s, j)
	case s.name == storeRun:
		return measureStore(storeNamed(c.name), s, j)
	case s.name == serviceRun:
		return measureService(serviceNamed(c.name), s, j)
	case s.name == respRun:
		return measureRESP(serviceNamed(c.name), s, j)
	case s.name == gatewayRun:
		return measureGateway(proxyNamed(c.name), s)
	case s.name == serviceMem:
		return weighService(serviceNamed(c.name), s)
	case s.name == simulated:
		return measureSimulate(s, j)
	case s.name == overloaded:
		return measureOverload(crowdNamed(c.name), s, j)
	}
	return weigh(c, s)
}
