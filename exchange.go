package sluice

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/step"
)

const (
	exchangeEvery  = 100 * time.Millisecond
	exchangeJitter = 0.15 // of it, up or down, so that processes do not keep step
	exchangeKeys   = 64   // in a call
	exchangeCalls  = 4    // at a time
)

// Staleness is how long it takes at most until a process knows what another has spent under a rule with [Eventual]
// accuracy: until the one has told the store and the other has asked it, each within the budget; see [WithBudget].
// All processes together admit at most the limit and what is offered in that time.
func Staleness(budget time.Duration) time.Duration {
	return 2 * (exchangeEvery + time.Duration(exchangeJitter*float64(exchangeEvery)) + budget)
}

// exchanges has the exchange run while something is believed of some key.
func (l *Limiter) exchanges() {
	s := l.leases
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() || l.views.runs {
		return
	}
	l.views.runs = true
	s.work.Go(func() {
		began := time.Now()
		for {
			wait := time.Duration((1 + exchangeJitter*(2*rand.Float64()-1)) * float64(exchangeEvery))
			select {
			case <-time.After(time.Until(began.Add(wait))):
			case <-s.closing:
				return
			}
			began = time.Now()
			if due := l.views.due(began); len(due) > 0 {
				l.exchange(context.Background(), due)
			} else if l.rest() {
				return
			}
		}
	})
}

// rest ends the exchange if nothing is believed any more.
func (l *Limiter) rest() bool {
	l.leases.mu.Lock()
	defer l.leases.mu.Unlock()
	if l.views.held.each(nil, "", func(*view) bool { return true }) {
		return false
	}
	l.views.runs = false
	return true
}

// due lists the keys that were asked for since the last exchange or of which the store has not heard all, and forgets
// the others.
func (v *views) due(now time.Time) []*view {
	var due []*view
	v.held.each(nil, "", func(e *view) bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.limit == nil { // the first answer, with which it is made, is about to be written down
			return true
		}
		if e.gone = e.idle(now); !e.gone {
			due = append(due, e)
		}
		return !e.gone
	})
	return due
}

// idle tells that nobody asks for the key, and that there is nothing to report that still counts.
func (e *view) idle(now time.Time) bool {
	if e.asked {
		return false
	}
	at := e.clock(now)
	e.roll(at)
	return e.own == 0 && e.sent.cost == 0 || e.state.FreshAt <= at
}

// exchange tells the store what was spent here and learns what all have spent, several keys at a time.
func (l *Limiter) exchange(ctx context.Context, due []*view) {
	byServer := make(map[int][]*view)
	for _, e := range due {
		peek := e.peek()
		n := l.guard.store.Server(&peek)
		byServer[n] = append(byServer[n], e)
	}
	var calls sync.WaitGroup
	free := make(chan struct{}, exchangeCalls)
	for _, of := range byServer {
		for some := range slices.Chunk(of, exchangeKeys) {
			free <- struct{}{}
			calls.Go(func() {
				l.exchangeSome(ctx, some)
				<-free
			})
		}
	}
	calls.Wait()
}

// exchangeSome makes one call. Of each key it peeks, which tells the store's time, and settles what was spent here as a
// take of now, which is charged whatever the limit says. A peek is answered before anything is charged.
//
// What a call has told the store that failed is told again, because it may not have arrived, and then with an ID: it is
// charged at most twice, and never lost.
func (l *Limiter) exchangeSome(ctx context.Context, of []*view) {
	now := time.Now()
	takes := make([]Take, 0, 2*len(of))
	for _, e := range of {
		takes = e.report(takes, now)
	}
	out := make([]Decision, len(takes))
	err := errOpen
	if l.passes(ctx, &takes[0], now) {
		_, err = l.call(ctx, takes, out, now)
	}
	answered := time.Now()
	i := 0
	for _, e := range of {
		told := i+1 < len(takes) && takes[i+1].At != 0
		if err == nil {
			d := out[i]
			if told { // what is left after all was charged
				d.Remaining, d.ResetAfter = out[i+1].Remaining, out[i+1].ResetAfter
			}
			e.exchanged(&d, takes[i].Limit, answered)
			takes[i].Cost = 1 // whatever was spent
			l.warm(takes[i:i+1], []Decision{d}, now)
		} else {
			e.failed()
		}
		if i++; told {
			i++
		}
	}
}

func (e *view) peek() Take {
	e.mu.Lock()
	defer e.mu.Unlock()
	return Take{Rule: e.rule, Limit: e.limit, Key: e.name.key, Slot: e.slot}
}

// report adds the takes that tell the store about this key.
func (e *view) report(takes []Take, now time.Time) []Take {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := e.clock(now)
	e.roll(at)
	e.asked = false
	peek := Take{Rule: e.rule, Limit: e.limit, Key: e.name.key, Slot: e.slot}
	takes = append(takes, peek)
	if e.sent.cost == 0 && e.own != 0 {
		e.sent = report{cost: min(e.own, MaxCost), at: at}
		if e.own < 0 {
			e.sent.at = e.refunded
		}
		e.own -= e.sent.cost
	}
	if e.sent.cost != 0 {
		settle := peek
		settle.Cost, settle.At, settle.ID = e.sent.cost, e.sent.at, e.sent.id
		takes = append(takes, settle)
	}
	return takes
}

// failed notes that what was sent may be lost.
func (e *view) failed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sent.id == 0 {
		e.sent.id = rand.Uint64() | 1
	}
	if e.sent.cost < 0 {
		e.sent = report{} // better to have given back too little than twice
	}
}

// exchanged learns from an answer. What it does not explain was spent by others.
func (e *view) exchanged(d *Decision, limit *Limit, answered time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.limit != limit {
		return // it has changed meanwhile, and the store was asked
	}
	p, at := limit.params, d.At
	expected, sent, ended := e.base, e.sent, e.base.FreshAt
	if sent.cost != 0 {
		expected, _ = p.Adjust(e.base, nil, at, step.Settlement{At: sent.at, Delta: sent.cost})
	}
	e.sent = report{}
	e.base = p.Learn(expected, at, d.Remaining, d.ResetAfter.Microseconds())
	passed, young := at-e.at, false
	if limit.Algorithm == FixedWindow {
		if ended <= at {
			passed = min(passed, at-ended)
		}
		young = ended <= at || e.at-(ended-p.Length) < exchangeEvery.Microseconds()
	}
	if passed > 0 {
		all := p.Spent(e.base, at)
		// Others report what they spent in a whole interval, so that is the shortest time for what has become known.
		rate := float64(max(0, all-p.Spent(expected, at))) / float64(max(passed, exchangeEvery.Microseconds()))
		hidden := young || limit.Algorithm == FixedWindow && all >= limit.Count
		e.observe(rate, passed, hidden)
	}
	e.know(at, ended, answered)
	e.block(d.Allowed || sent.cost < 0, d.RetryAfter.Microseconds())
}

// observe takes the mean of what others spent lately and before. Of a spent window it shows only what they got, and of a
// young one only what they reported already: part is hidden, and they are believed to take as much as when there was room.
func (e *view) observe(rate float64, passed int64, hidden bool) {
	switch {
	case !hidden:
		e.others += (rate - e.others) * min(1, float64(passed)/float64(2*exchangeEvery.Microseconds()))
	case rate > e.others:
		e.others = rate
	case rate > 0:
		e.others += (rate - e.others) / 32
	}
}

// tellAll reports what the store has not heard of and believes nothing any more.
func (l *Limiter) tellAll(ctx context.Context) {
	now := time.Now()
	var last []*view
	l.views.held.each(nil, "", func(e *view) bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.gone = true
		if e.limit != nil {
			if e.roll(e.clock(now)); e.own != 0 || e.sent.cost != 0 {
				last = append(last, e)
			}
		}
		return false
	})
	if len(last) > 0 {
		l.exchange(ctx, last)
	}
}
