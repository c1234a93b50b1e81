package loadgen

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A Plan describes a load test. It ends after Duration or Requests, whichever comes first; 0 means no bound.
type Plan struct {
	Target   Target
	Callers  int // maximum number of concurrent requests, or groups of pipelined requests
	Pipeline int // maximum number of requests per group; 0 means 1
	Keys     Keys

	Rate     float64 // requests per second of an open loop; 0 means a closed loop
	Duration time.Duration
	Requests int64
	Warmup   time.Duration // time with the same load before the measurement
	Timeout  time.Duration // of a request

	// Progress is called about every second with the results so far. Nil means that it is not.
	Progress func(Progress)
}

// Progress is the state of a run.
type Progress struct {
	Warmup                  bool
	Elapsed                 time.Duration
	Allowed, Denied, Failed int64
	PerSecond               float64       // responses per second since the last call
	P99                     time.Duration // 99th percentile of the latency since the last call
}

// lateAfter is the delay after which a request counts as late. Timers are not much more precise on a busy machine.
const lateAfter = 10 * time.Millisecond

// restAfterFailure is the pause of a caller in a closed loop after a failure, so that it does not flood an unavailable server.
const restAfterFailure = 10 * time.Millisecond

const progressInterval = time.Second

// Run runs the plan until it ends. If ctx is done before, it returns the results so far.
func Run(ctx context.Context, p Plan) (*Result, error) {
	p.Callers, p.Pipeline = max(1, p.Callers), max(1, p.Pipeline)
	if p.Duration <= 0 && p.Requests <= 0 {
		return nil, errors.New("neither a duration nor a number of requests is set")
	}
	callers, err := dialAll(ctx, &p)
	defer func() {
		for _, c := range callers {
			_ = c.Close()
		}
	}()
	if err != nil {
		return nil, err
	}
	if p.Warmup > 0 {
		warm := p
		warm.Duration, warm.Requests = p.Warmup, 0
		warm.Keys.Seed++
		(&run{Plan: warm, warmup: true}).do(ctx, callers)
	}
	return (&run{Plan: p}).do(ctx, callers), nil
}

func dialAll(ctx context.Context, p *Plan) ([]Caller, error) {
	ctx, cancel := context.WithTimeout(ctx, max(p.Timeout, 5*time.Second))
	defer cancel()
	var callers []Caller
	for range p.Callers {
		c, err := p.Target.Dial(ctx)
		if err != nil {
			if len(callers) > 0 {
				err = fmt.Errorf("after %d connections: %w", len(callers), err)
			}
			return callers, err
		}
		callers = append(callers, c)
	}
	return callers, nil
}

// A run is one execution of a plan.
type run struct {
	Plan
	warmup bool
	begun  time.Time
	total  int64        // total number of requests; practically unlimited in a closed loop without that bound
	next   atomic.Int64 // number of the next request
	*recorder
}

func (r *run) do(ctx context.Context, callers []Caller) *Result {
	r.begun = time.Now()
	r.recorder = newRecorder(r.begun)
	r.total = 1 << 62
	if r.Requests > 0 {
		r.total = r.Requests
	}
	if r.Rate > 0 && r.Duration > 0 {
		r.total = min(r.total, max(1, int64(r.Rate*r.Duration.Seconds()+1e-6)))
	}
	background, stop := context.WithCancel(context.Background())
	var watching, asking sync.WaitGroup
	watching.Go(func() { r.watch(background) })
	for i, c := range callers {
		asking.Go(func() { r.caller(ctx, i, c) })
	}
	asking.Wait()
	stop()
	watching.Wait()
	out := r.result(time.Now())
	out.Interrupted = ctx.Err() != nil
	if r.Rate > 0 && !out.Interrupted {
		out.Elapsed = max(out.Elapsed, time.Duration(float64(r.total)/r.Rate*float64(time.Second)))
	}
	return out
}

// watch collects points and calls Progress until ctx is done.
func (r *run) watch(ctx context.Context) {
	told := r.begun
	var last Progress
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(r.step()):
		}
		now := time.Now()
		r.collect(now)
		if r.Progress != nil && now.Sub(told) >= progressInterval {
			told = now
			next := r.progress(last, now)
			r.Progress(next)
			last = next
		}
	}
}

func (r *run) progress(last Progress, now time.Time) Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := Progress{
		Warmup: r.warmup, Elapsed: now.Sub(r.begun), Allowed: r.sum.Allowed, Denied: r.sum.Denied, Failed: r.sum.Failed,
	}
	more := p.Allowed + p.Denied - last.Allowed - last.Denied
	p.PerSecond = float64(more) / (p.Elapsed - last.Elapsed).Seconds()
	var late Histogram
	for i := len(r.points) - 1; i >= 0 && r.points[i].At > last.Elapsed; i-- {
		late.Add(&r.points[i].Latency)
	}
	p.P99 = late.Percentile(99)
	return p
}

// A group is requests that are sent together, and the start of the latency of each.
type group struct {
	keys []int64
	from []time.Time
}

// caller sends requests until the plan ends.
func (r *run) caller(ctx context.Context, number int, c Caller) {
	seen, choose := r.of(number), r.Keys.chooser(number)
	var g group
	for ctx.Err() == nil {
		if !r.take(ctx, &g, seen) {
			return
		}
		g.keys = g.keys[:0]
		for range g.from {
			g.keys = append(g.keys, choose())
		}
		if len(g.keys) > 0 && !r.ask(ctx, c, &g, seen) && r.Rate == 0 {
			rest(ctx, restAfterFailure)
		}
	}
}

// ask sends a group and reports whether all requests got a response.
func (r *run) ask(ctx context.Context, c Caller, g *group, seen *recorderPart) bool {
	within, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	answers := 0
	err := c.Ask(within, g.keys, func(a Answer) {
		if answers < len(g.from) { // a caller that reports more has a bug, which the sums show
			seen.answered(a, g.from[answers], time.Now())
		}
		answers++
	})
	if answers >= len(g.from) {
		return true
	}
	if ctx.Err() != nil {
		seen.cutOff(int64(len(g.from) - answers))
		return false
	}
	if err == nil {
		err = errors.New("fewer responses than requests")
	}
	now := time.Now()
	for _, from := range g.from[answers:] {
		seen.failed(err, from, now)
	}
	return false
}

// take assigns the next requests to g and waits until they are due. It reports whether there were any left.
func (r *run) take(ctx context.Context, g *group, seen *recorderPart) bool {
	g.from = g.from[:0]
	if r.Rate == 0 {
		return r.takeClosed(g)
	}
	return r.takeDue(ctx, g, seen)
}

func (r *run) takeClosed(g *group) bool {
	now := time.Now()
	if r.Duration > 0 && now.Sub(r.begun) >= r.Duration {
		return false
	}
	first := r.next.Add(int64(r.Pipeline)) - int64(r.Pipeline)
	for i := first; i < min(first+int64(r.Pipeline), r.total); i++ {
		g.from = append(g.from, now)
	}
	return len(g.from) > 0
}

// takeDue assigns one request to g, waits until it is due, and adds further requests that are due by then. It reports whether
// there were any left.
func (r *run) takeDue(ctx context.Context, g *group, seen *recorderPart) bool {
	i := r.next.Add(1) - 1
	if i >= r.total {
		return false
	}
	due := r.due(i)
	if !rest(ctx, time.Until(due)) {
		return false
	}
	now := time.Now()
	if r.Duration > 0 && now.Sub(r.begun) > r.Duration+r.Timeout {
		seen.miss(due, now)
		return true
	}
	g.from = append(g.from, due)
	if by := now.Sub(due); by > lateAfter {
		seen.wasLate(1, by)
	}
	for len(g.from) < r.Pipeline {
		i := r.next.Load()
		due := r.due(i)
		if i >= r.total || due.After(now) {
			break
		}
		if r.next.CompareAndSwap(i, i+1) {
			g.from = append(g.from, due)
			if by := now.Sub(due); by > lateAfter {
				seen.wasLate(1, by)
			}
		}
	}
	return true
}

func (r *run) due(i int64) time.Time {
	return r.begun.Add(time.Duration(float64(i) / r.Rate * float64(time.Second)))
}

// rest waits for d and reports whether ctx is not done.
func rest(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
