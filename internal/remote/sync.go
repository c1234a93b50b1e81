package remote

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

const (
	syncInterval    = 100 * time.Millisecond
	syncJitter      = 0.15 // relative to syncInterval, ±, so that instances do not sync at the same time
	syncBatchKeys   = 64   // per call
	syncConcurrency = 4    // concurrent calls
)

// Staleness returns the maximum age of other instances' usage in a local estimate: one instance reports it and another
// reads it, each after an interval with jitter and within the timeout. All instances together admit at most limit +
// offered rate × Staleness.
func Staleness(timeout time.Duration) time.Duration {
	return 2 * (syncInterval + time.Duration(syncJitter*float64(syncInterval)) + timeout)
}

// startSync starts syncing unless it is running. It runs while there are estimates.
func (en *Engine) startSync() {
	en.estimates.mu.Lock()
	defer en.estimates.mu.Unlock()
	if en.estimates.runs {
		return
	}
	en.estimates.runs = en.work.start(func() {
		began := time.Now()
		for {
			wait := time.Duration((1 + syncJitter*(2*rand.Float64()-1)) * float64(syncInterval))
			if !en.work.sleep(time.Until(began.Add(wait))) {
				return
			}
			began = time.Now()
			if due := en.estimates.due(began); len(due) > 0 {
				en.sync(context.Background(), due)
			} else if en.stopSyncIfIdle() {
				return
			}
		}
	})
}

// stopSyncIfIdle stops syncing if there are no estimates, and reports whether it did.
func (en *Engine) stopSyncIfIdle() bool {
	en.estimates.mu.Lock()
	defer en.estimates.mu.Unlock()
	if en.estimates.keys.each(nil, "", func(*estimate) bool { return true }) {
		return false
	}
	en.estimates.runs = false
	return true
}

// due returns the estimates with takes since the last sync or with unreported usage, and deletes the others.
func (v *estimates) due(now time.Time) []*estimate {
	var due []*estimate
	v.keys.each(nil, "", func(e *estimate) bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.limit == nil { // just created, the first decision is not stored yet
			return true
		}
		if e.removed = e.idle(now); !e.removed {
			due = append(due, e)
		}
		return !e.removed
	})
	return due
}

// idle reports whether the key had no takes since the last sync and has no unreported usage that still counts.
func (e *estimate) idle(now time.Time) bool {
	if e.usedSinceSync {
		return false
	}
	at := e.clock(now)
	e.dropExpiredWindow(at)
	return e.unreported == 0 && e.inFlight.cost == 0 || e.state.ExpiresAt <= at
}

// sync reports local usage to the store and reads back the total, in batches of keys.
func (en *Engine) sync(ctx context.Context, due []*estimate) {
	byServer := make(map[int][]*estimate)
	for _, e := range due {
		peek := e.peek()
		n := en.Store.Shard(&peek)
		byServer[n] = append(byServer[n], e)
	}
	var calls sync.WaitGroup
	free := make(chan struct{}, syncConcurrency)
	for _, of := range byServer {
		for some := range slices.Chunk(of, syncBatchKeys) {
			free <- struct{}{}
			calls.Go(func() {
				en.syncBatch(ctx, some)
				<-free
			})
		}
	}
	calls.Wait()
}

// syncBatch makes one call. For each key it peeks, which returns the store clock, and settles the local usage as a take
// at that time, which is charged regardless of the limit. Peeks are decided before anything is charged.
//
// A report whose call failed is sent again, with an ID, because it may not have arrived: it is charged at most twice,
// and never lost.
func (en *Engine) syncBatch(ctx context.Context, of []*estimate) {
	now := time.Now()
	takes := make([]group.Op, 0, 2*len(of))
	for _, e := range of {
		takes = e.report(takes, now)
	}
	out := make([]group.Answer, len(takes))
	err := errBreakerOpen
	if en.shardAvailable(ctx, &takes[0], now) {
		_, err = en.call(ctx, takes, out, now)
	}
	answered := time.Now()
	i := 0
	for _, e := range of {
		told := i+1 < len(takes) && takes[i+1].At != 0
		if err == nil {
			d := out[i]
			if told { // the remaining quota after the charge
				d.Remaining, d.ResetAfter = out[i+1].Remaining, out[i+1].ResetAfter
			}
			e.applySync(&d, takes[i].Params, answered)
			takes[i].Request.Cost = 1 // any cost, since updateFallback ignores peeks
			en.updateFallback(takes[i:i+1], []group.Answer{d}, now)
		} else {
			e.syncFailed()
		}
		if i++; told {
			i++
		}
	}
}

func (e *estimate) peek() group.Op {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rule.Op(e.limit, e.name.key, e.hashTag, 0)
}

// report appends the peek and the report of this key to takes.
func (e *estimate) report(takes []group.Op, now time.Time) []group.Op {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := e.clock(now)
	e.dropExpiredWindow(at)
	e.usedSinceSync = false
	peek := e.rule.Op(e.limit, e.name.key, e.hashTag, 0)
	takes = append(takes, peek)
	if e.inFlight.cost == 0 && e.unreported != 0 {
		e.inFlight = report{cost: min(e.unreported, group.MaxCost), at: at}
		if e.unreported < 0 {
			e.inFlight.at = e.refunded
		}
		e.unreported -= e.inFlight.cost
	}
	if e.inFlight.cost != 0 {
		settle := peek
		settle.Request.Cost, settle.At, settle.ID = e.inFlight.cost, e.inFlight.at, e.inFlight.id
		takes = append(takes, settle)
	}
	return takes
}

// syncFailed records that the report may be lost.
func (e *estimate) syncFailed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.inFlight.id == 0 {
		e.inFlight.id = rand.Uint64() | 1
	}
	if e.inFlight.cost < 0 {
		e.inFlight = report{} // a lost refund is better than a double refund
	}
}

// applySync updates the estimate from a decision of the store. Usage beyond the expected is that of other instances.
func (e *estimate) applySync(d *group.Answer, limit *step.Params, answered time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.limit != limit {
		return // the limit has changed, and the store was called for it
	}
	p, at := limit, d.At
	expected, sent, ended := e.storeState, e.inFlight, e.storeState.ExpiresAt
	if sent.cost != 0 {
		expected, _ = p.Adjust(e.storeState, nil, at, step.Settlement{At: sent.at, Delta: sent.cost})
	}
	e.inFlight = report{}
	e.storeState = p.StateFromAnswer(expected, at, d.Remaining, d.ResetAfter.Microseconds())
	passed, young := at-e.at, false
	if limit.Kind == step.Window {
		if ended <= at {
			passed = min(passed, at-ended)
		}
		young = ended <= at || e.at-(ended-p.Length) < syncInterval.Microseconds()
	}
	if passed > 0 {
		all := p.Used(e.storeState, at)
		// Other instances report the usage of a whole interval, so that is the minimum duration of newly seen usage.
		rate := float64(max(0, all-p.Used(expected, at))) / float64(max(passed, syncInterval.Microseconds()))
		hidden := young || limit.Kind == step.Window && all >= limit.Count
		e.observe(rate, passed, hidden)
	}
	e.rebase(at, ended, answered)
	e.block(d.Allowed || sent.cost < 0, d.RetryAfter.Microseconds())
}

// observe updates the moving average of other instances' usage. In a used-up window only the admitted part is visible,
// and in a young one only the part already reported: if hidden, their rate is assumed to be about what it was before.
func (e *estimate) observe(rate float64, passed int64, hidden bool) {
	switch {
	case !hidden:
		e.othersRate += (rate - e.othersRate) * min(1, float64(passed)/float64(2*syncInterval.Microseconds()))
	case rate > e.othersRate:
		e.othersRate = rate
	case rate > 0:
		e.othersRate += (rate - e.othersRate) / 32
	}
}

// flushEstimates reports all unreported usage and deletes all estimates.
func (en *Engine) flushEstimates(ctx context.Context) {
	now := time.Now()
	var last []*estimate
	en.estimates.keys.each(nil, "", func(e *estimate) bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.removed = true
		if e.limit != nil {
			if e.dropExpiredWindow(e.clock(now)); e.unreported != 0 || e.inFlight.cost != 0 {
				last = append(last, e)
			}
		}
		return false
	})
	if len(last) > 0 {
		en.sync(ctx, last)
	}
}
