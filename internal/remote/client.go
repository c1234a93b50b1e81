package remote

import (
	"context"
	"errors"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

func (en *Engine) breakerOf(t *group.Op) *breaker {
	if len(en.breakers) == 1 {
		return &en.breakers[0]
	}
	if len(en.breakers) == 1 { // to ask a store of others which shard it is takes longer than all the rest
		return &en.breakers[0]
	}
	return &en.breakers[uint(en.Store.Shard(t))%uint(len(en.breakers))]
}

// decideRemote decides takes at the store, for a caller who waits since now.
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

// errBreakerOpen is why a server was not asked.
var errBreakerOpen = errors.Join(errors.New("sluice: the server is given a rest after failing too often"), group.ErrUnavailable)

// decideByShard has only those takes degrade whose server is not asked. If one of them is denied, of the others only those
// are asked about that charge refusals.
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
			} else { // not asked: it would not have been charged either
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

// takeSubset is some takes of a call.
type takeSubset struct {
	takes   []group.Op
	indexes []int // where in the call they stand
	out     []group.Answer
}

func (p *takeSubset) add(takes []group.Op, i int) {
	p.takes, p.indexes = append(p.takes, takes[i]), append(p.indexes, i)
}

// put puts the part's decisions where they belong, and tells whether one of them denies the call.
func (p *takeSubset) put(out []group.Answer) (denied bool) {
	for j, i := range p.indexes {
		out[i] = p.out[j]
		denied = denied || !out[i].Allowed && !p.takes[j].By.Shadow && p.takes[j].Request.Cost != 0
	}
	return denied
}

// shardAvailable tells whether the take's server may be asked. If it is time to probe it, that is done beside the caller.
func (en *Engine) shardAvailable(ctx context.Context, t *group.Op, now time.Time) bool {
	b := en.breakerOf(t)
	ok, due := b.allow(now)
	if due {
		ctx, peek := context.WithoutCancel(ctx), t.By.Op(t.Params, probeKey, t.HashTag, 0) // the caller's key may be gone by then
		if probe := func() { en.probe(ctx, b, &peek) }; !en.work.start(probe) {
			probe() // all is closed, and nobody else would
		}
	}
	return ok
}

// probe asks a server what remains of a key, which changes nothing. It ends within the timeout.
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
	en.reportAll(ctx) // before others take it for unused
}

// probeKey is peeked at by probes. No edge makes such a key.
const probeKey = "\x00sluice probe"

// callOrFallback makes a call and has the fail modes answer if it failed.
func (en *Engine) callOrFallback(ctx context.Context, takes []group.Op, out []group.Answer, began time.Time) error {
	if en.beyondPart(takes) {
		within, done := en.within(ctx, began)
		_ = en.reportUsage(within, takes) // for others, who wait for it in the same way
		done()
		en.failTakes(takes, out)
		return nil
	}
	reports, err := en.call(ctx, takes, out, began)
	if err != nil {
		return en.Fail(ctx, takes, out, err)
	}
	en.denyCache.put(takes, out, time.Now())
	if reports == en.unreported.reports.Load() { // else this may be from before a report: who made that knows better
		en.updateFallback(takes, out, began)
	}
	if len(takes) == 1 && en.admittedHere(&takes[0], &out[0]) {
		en.failTakes(takes, out)
	}
	return nil
}

// beyondPart tells that a server has just come back, and that one of the takes asks for more than this process' part of what
// was left: other processes may not have reported yet what they admitted of theirs.
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

// admittedHere reports whether the store has granted, to a call that was on its way, what this process had admitted by
// itself meanwhile. The grant is for that then.
func (en *Engine) admittedHere(t *group.Op, d *group.Answer) bool {
	if d.Granted <= 0 || t.By.OnFailure != group.FailLocal || t.At != 0 || d.Remaining >= en.unreported.pending(t, time.Now()) {
		return false
	}
	en.unreported.lower(t, d.Granted)
	return true
}

// call makes a call within the timeout, which runs since began, and notes how it went. It tells how many reports of
// usage there had been when it was made.
func (en *Engine) call(ctx context.Context, takes []group.Op, out []group.Answer, began time.Time) (reports int64, err error) {
	within, done := en.within(ctx, began)
	err = en.reportUsage(within, takes)
	reports = en.unreported.reports.Load()
	if err == nil {
		err = en.Store.Apply(within, takes, out)
	}
	own := done()
	now := time.Now()
	if errors.Is(err, group.ErrInvalid) || ctx.Err() != nil && err != nil {
		return reports, err // a mistake or a caller who left: neither is the server's fault
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
