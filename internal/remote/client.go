package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// IsRemote reports whether the store is remote.
func (en *Engine) IsRemote() bool { return len(en.breakers) > 0 }

// Apply decides ops according to the rules' accuracy and, if the store is unavailable, their fail modes.
func (en *Engine) Apply(ctx context.Context, ops []group.Op, out []group.Answer) error {
	if !en.IsRemote() {
		if err := en.Store.Apply(ctx, ops, out); err != nil {
			return en.Fail(ctx, ops, out, err)
		}
		return nil
	}
	for i := range ops {
		if ops[i].By.Accuracy != group.AccuracyExact && !en.work.closed.Load() {
			return en.decideLocal(ctx, ops, out)
		}
	}
	return en.decideRemote(ctx, ops, out, time.Now())
}

// ApplyOrFail applies takes without fail modes, within the timeout. It returns errBreakerOpen while the breaker of
// their shard is open, unless the engine is closed, because then there is no later retry.
func (en *Engine) ApplyOrFail(ctx context.Context, takes []group.Op, out []group.Answer) error {
	if !en.IsRemote() {
		return en.Store.Apply(ctx, takes, out)
	}
	now := time.Now()
	for i := range takes {
		if !en.work.closed.Load() && !en.shardAvailable(ctx, &takes[i], now) {
			return errBreakerOpen
		}
	}
	within, done := en.within(ctx, now)
	defer done()
	return en.Store.Apply(within, takes, out)
}

// decideRemote decides takes at the store, for a caller that has been waiting since now.
func (en *Engine) decideRemote(ctx context.Context, takes []group.Op, out []group.Answer, now time.Time) error {
	if en.denyCache.lookup(takes, out, now) {
		return nil
	}
	if len(en.breakers) > 1 && len(takes) > 1 {
		return en.decideByShard(ctx, takes, out, now)
	}
	if len(takes) > 0 && !en.shardAvailable(ctx, &takes[0], now) {
		return en.Fail(ctx, takes, out, errBreakerOpen)
	}
	return en.callOrFallback(ctx, takes, out, now)
}

// errBreakerOpen is the error of calls that a breaker stops.
var errBreakerOpen = fmt.Errorf("%w: circuit breaker open", group.ErrUnavailable)

// decideByShard decides only the takes on unavailable shards by their fail modes. If one of them is denied, it calls
// the store only for takes of ChargeDenied rules.
func (en *Engine) decideByShard(ctx context.Context, takes []group.Op, out []group.Answer, now time.Time) error {
	var rest, degraded takeSubset
	for i := range takes {
		if en.shardAvailable(ctx, &takes[i], now) {
			rest.add(takes, i)
		} else {
			degraded.add(takes, i)
		}
	}
	if len(degraded.takes) == 0 {
		return en.callOrFallback(ctx, takes, out, now)
	}
	degraded.out = make([]group.Answer, len(degraded.takes))
	if err := en.Fail(ctx, degraded.takes, degraded.out, errBreakerOpen); err != nil {
		return err
	}
	if degraded.put(out) {
		all := rest
		rest = takeSubset{}
		for j, i := range all.indexes {
			if all.takes[j].By.ChargeDenied {
				rest.add(takes, i)
			} else { // the store would not have charged it either
				out[i] = group.Answer{Allowed: true, Source: group.SourceDenyCache, Limit: takes[i].Params.Limit()}
			}
		}
	}
	if len(rest.takes) == 0 {
		return nil
	}
	rest.out = make([]group.Answer, len(rest.takes))
	err := en.callOrFallback(ctx, rest.takes, rest.out, now)
	rest.put(out)
	return err
}

// takeSubset is a subset of the takes of a call.
type takeSubset struct {
	takes   []group.Op
	indexes []int // indexes in the call
	out     []group.Answer
}

func (p *takeSubset) add(takes []group.Op, i int) {
	p.takes, p.indexes = append(p.takes, takes[i]), append(p.indexes, i)
}

// put copies the subset's decisions to out and reports whether one of them denies the call.
func (p *takeSubset) put(out []group.Answer) (denied bool) {
	for j, i := range p.indexes {
		out[i] = p.out[j]
		denied = denied || !out[i].Allowed && !p.takes[j].By.Shadow && p.takes[j].Request.Cost != 0
	}
	return denied
}

func (en *Engine) breakerOf(t *group.Op) *breaker {
	if len(en.breakers) == 1 { // calling Shard of a third-party store would take longer than the rest
		return &en.breakers[0]
	}
	return &en.breakers[uint(en.Store.Shard(t))%uint(len(en.breakers))]
}

// shardAvailable reports whether the take's shard may be called. If a probe is due, it starts one in the background.
func (en *Engine) shardAvailable(ctx context.Context, t *group.Op, now time.Time) bool {
	b := en.breakerOf(t)
	ok, due := b.allow(now)
	if due {
		ctx, peek := context.WithoutCancel(ctx), t.By.Op(t.Params, probeKey, t.HashTag, 0) // the caller may reuse the memory of its key
		if probe := func() { en.probe(ctx, b, &peek) }; !en.work.start(probe) {
			probe() // after Close no goroutine can be started
		}
	}
	return ok
}

// probe peeks at a key of a shard, which changes nothing. It ends within the timeout.
func (en *Engine) probe(ctx context.Context, b *breaker, peek *group.Op) {
	within, done := en.within(ctx, time.Now())
	defer done()
	err := en.Store.Apply(within, []group.Op{*peek}, make([]group.Answer, 1))
	if !b.recordProbe(time.Now(), err == nil) {
		return
	}
	if en.Events.OnShardRecovered != nil {
		en.Events.OnShardRecovered(ctx, en.Store.Shard(peek))
	}
	en.reportAll(ctx) // before other instances use the quota
}

// probeKey is the key of probes. No client has such a key.
const probeKey = "\x00sluice probe"

// callOrFallback calls the store. If the call fails, the fail modes decide.
func (en *Engine) callOrFallback(ctx context.Context, takes []group.Op, out []group.Answer, began time.Time) error {
	if en.beyondPart(takes) {
		within, done := en.within(ctx, began)
		_ = en.reportUsage(within, takes) // for other instances, which wait for it in the same way
		done()
		en.failTakes(takes, out)
		return nil
	}
	reports, err := en.call(ctx, takes, out, began)
	if err != nil {
		return en.Fail(ctx, takes, out, err)
	}
	en.denyCache.put(takes, out, time.Now())
	if reports == en.unreported.reports.Load() { // otherwise the decision may be older than a report, whose state is newer
		en.updateFallback(takes, out, began)
	}
	if len(takes) == 1 && en.unreported.keys.Load() > 0 && en.admittedHere(&takes[0], &out[0]) {
		en.failTakes(takes, out)
	}
	return nil
}

// beyondPart reports whether a shard is half-open and one of the takes exceeds this instance's share of the remaining
// quota: other instances may not yet have reported the usage they admitted.
func (en *Engine) beyondPart(takes []group.Op) bool {
	for i := range takes {
		t := &takes[i]
		if t.By.OnFailure != group.FailLocal || t.Request.Cost <= 0 || t.At != 0 || t.Params.Kind == step.Permits || !en.breakerOf(t).ramping() {
			continue
		}
		n := en.instancesOf(t.Params)
		if n <= 1 || n == manyInstances {
			continue
		}
		part := en.fallback.share(t.Params, n)
		least := t.Request.Cost
		if t.Request.Min > 0 {
			least = t.Request.Min
		}
		if least > part.Limit()-en.spentLocally(t, part, time.Now()) {
			return true
		}
	}
	return false
}

// admittedHere reports whether the store granted a call for quota that this instance admitted by itself while the call
// was in progress. The grant then covers that usage.
func (en *Engine) admittedHere(t *group.Op, d *group.Answer) bool {
	if d.Granted <= 0 || t.By.OnFailure != group.FailLocal || t.At != 0 || d.Remaining >= en.unreported.pending(t, time.Now()) {
		return false
	}
	en.unreported.lower(t, d.Granted)
	return true
}

// call calls the store, within the timeout from began, and records the result in the breaker. reports is the number of
// usage reports before the call.
func (en *Engine) call(ctx context.Context, takes []group.Op, out []group.Answer, began time.Time) (reports int64, err error) {
	within, done := en.within(ctx, began)
	if en.unreported.keys.Load() > 0 {
		err = en.reportUsage(within, takes)
	}
	reports = en.unreported.reports.Load()
	if err == nil {
		err = en.Store.Apply(within, takes, out)
	}
	own := done()
	now := time.Now()
	if errors.Is(err, group.ErrInvalid) || ctx.Err() != nil && err != nil {
		return reports, err // an invalid call or a cancelled caller is not a failure of the server
	}
	slow := now.Sub(began) >= en.Timeout && !own
	var seen *breaker
	for i := range takes {
		if b := en.breakerOf(&takes[i]); b != seen {
			seen = b
			if b.record(now, err != nil, slow) && en.Events.OnShardUnavailable != nil {
				en.Events.OnShardUnavailable(ctx, en.Store.Shard(&takes[i]), err)
			}
		}
	}
	return reports, err
}

// patience is the context of a call to a store with Arrivals. It ends with the caller's context, or when a server has
// not replied in time. An expired timeout is not sufficient, because in a busy process all goroutines waiting for a CPU
// see it expire before they read the reply.
type patience struct {
	context.Context
	end     context.CancelFunc
	store   Arrivals
	began   time.Time
	timeout time.Duration
	up      atomic.Bool // ended by the timeout
	own     atomic.Bool // this process was late

	mu    sync.Mutex // guards the fields below
	timer *time.Timer
	looks int
}

// maxPatience is the multiple of the timeout for which a caller waits for its own process.
const maxPatience = 10

// within returns a context for a store call that began at began. The caller must call the returned function when the
// call has ended; it reports whether this process was late.
func (en *Engine) within(ctx context.Context, began time.Time) (context.Context, func() (own bool)) {
	if en.arrivals == nil {
		within, cancel := context.WithDeadline(ctx, began.Add(en.Timeout))
		return within, func() bool {
			cancel()
			return false
		}
	}
	p := &patience{store: en.arrivals, began: began, timeout: en.Timeout}
	p.Context, p.end = context.WithCancel(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(en.Timeout-time.Since(began), p.look)
	return p, p.done
}

// look ends the call if a server is late, and otherwise schedules the next check.
func (p *patience) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Context.Err() != nil {
		return
	}
	p.looks++
	left, own := p.store.Patience(p.timeout)
	if left == 0 || p.looks >= maxPatience && time.Since(p.began) >= maxPatience*p.timeout {
		p.up.Store(true)
		p.end()
		return
	}
	if own {
		p.own.Store(true)
	}
	p.timer.Reset(left)
}

func (p *patience) done() (own bool) {
	p.end()
	p.timer.Stop()
	return p.own.Load()
}

// Deadline returns the time at which the call ends if this process is not late.
func (p *patience) Deadline() (time.Time, bool) {
	until := p.began.Add(p.timeout)
	if earlier, ok := p.Context.Deadline(); ok && earlier.Before(until) {
		until = earlier
	}
	return until, true
}

func (p *patience) Err() error {
	err := p.Context.Err()
	if err != nil && p.up.Load() {
		return context.DeadlineExceeded
	}
	return err
}
