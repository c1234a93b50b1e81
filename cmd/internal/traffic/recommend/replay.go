package recommend

import (
	"container/heap"
	"context"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

// storeBytes is the maximum memory for the states of a replay.
const storeBytes = 512 << 20

// replayed is what a limit did to traffic.
type replayed struct {
	requests []int64 // by key
	denied   []int64 // by key
	busiest  int64   // largest cost that all keys together were allowed in one second
	second   int64
	sum      int64
	maxDelay time.Duration
}

// replay sends the requests for which when returns a time through a limiter and the memory store, at these times.
func (t *Traffic) replay(ctx context.Context, limit sluice.Limit, when func(i uint32) (micros int64, ok bool)) (*replayed, error) {
	now := time.Time{}
	store, err := memstore.Open(memstore.Config{MaxBytes: storeBytes, Now: func() time.Time { return now }})
	if err != nil {
		return nil, err
	}
	limiter, err := sluice.New(store, "recommended", limit)
	if err != nil {
		return nil, err
	}
	defer func() { _ = limiter.Close(ctx) }()
	r := &replayed{requests: make([]int64, len(t.names)), denied: make([]int64, len(t.names))}
	var flight inFlight
	for n := range t.key {
		i := uint32(n)
		if n%(1<<16) == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		micros, ok := when(i)
		if !ok {
			continue
		}
		if err := flight.release(ctx, limiter, micros, &now); err != nil {
			return nil, err
		}
		now = time.UnixMicro(micros)
		k, cost := t.key[i], t.costOf(i)
		if limit.Algorithm == sluice.Concurrency {
			cost = 1
		}
		takes := limiter.Takes(ctx, nil, t.names[k], cost)
		out := make([]sluice.Decision, len(takes))
		allowed, err := limiter.Decide(ctx, takes, out)
		if err != nil {
			return nil, err
		}
		r.requests[k]++
		if !allowed {
			r.denied[k]++
			continue
		}
		r.maxDelay = max(r.maxDelay, out[0].Delay)
		r.allow(micros/1e6, cost)
		if limit.Algorithm == sluice.Concurrency {
			if back, ok := takes[0].Settlement(&out[0], 0); ok {
				heap.Push(&flight, held{micros + t.durationOf(i), back})
			}
		}
	}
	return r, nil
}

// recorded returns the recorded time of a request.
func (t *Traffic) recorded(i uint32) (micros int64, ok bool) { return t.micros[i], true }

func (r *replayed) allow(second, cost int64) {
	if second != r.second {
		r.second, r.sum = second, 0
	}
	r.sum += cost
	r.busiest = max(r.busiest, r.sum)
}

// held is a permit and the time of its release.
type held struct {
	micros int64
	back   sluice.Take
}

// inFlight is a heap of permits, the first to be released at the top.
type inFlight []held

func (f inFlight) Len() int           { return len(f) }
func (f inFlight) Less(i, j int) bool { return f[i].micros < f[j].micros }
func (f inFlight) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f *inFlight) Push(x any)        { *f = append(*f, x.(held)) }

func (f *inFlight) Pop() any {
	last := len(*f) - 1
	h := (*f)[last]
	*f = (*f)[:last]
	return h
}

// release releases the permits of requests that have ended.
func (f *inFlight) release(ctx context.Context, l *sluice.Limiter, micros int64, now *time.Time) error {
	for len(*f) > 0 && (*f)[0].micros <= micros {
		h := heap.Pop(f).(held)
		*now = time.UnixMicro(h.micros)
		if err := l.Settle(ctx, []sluice.Take{h.back}); err != nil {
			return err
		}
	}
	return nil
}
