package insight

import (
	"math"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/internal/step"
)

// A rung is an alternative limit with so much room that it denies nothing. The room that a key has used at its busiest is
// the smallest burst that would have denied it nothing. Rungs decide with package step, like the limiter.
type rung struct {
	params *step.Params // nil: the limit cannot be written
	room   int64
}

// multiples are the rates of the first rungs, in halves of the limit's rate. All are token buckets.
var multiples = [...]int64{2, 3, 4, 8, 16}

const (
	sameRate  = 0              // the rung with the limit's own rate
	windowed  = len(multiples) // the rung that counts windows as the limit does; nil for buckets
	rungs     = len(multiples) + 1
	roomOf    = 1000 // room of a rung, in limits
	pauseTime = 4    // a pause is as many windows (or fill times) without requests
)

// ladder is what the keys under one limit are measured with.
type ladder struct {
	limit  *sluice.Limit
	rungs  [rungs]rung
	max    int64   // cost that is allowed at once
	rate   float64 // cost per microsecond; 0: unknown
	length int64   // microseconds: the window, or the time in which a bucket fills if that is longer
	window int64   // of a fixed window, in microseconds; otherwise 0
}

func newLadder(l *sluice.Limit) *ladder {
	a := &ladder{limit: l, max: max(l.Max(), 1), length: max(l.Window.Microseconds(), 1)}
	if l.Algorithm == sluice.Concurrency || l.Count <= 0 {
		return a
	}
	a.rate = float64(l.Count) / float64(a.length)
	if l.Algorithm == sluice.FixedWindow {
		a.window = a.length
	}
	a.length = max(a.length, int64(float64(a.max)/a.rate))
	room := a.max * roomOf
	if a.max > sluice.MaxCost/roomOf {
		room = sluice.MaxCost
	}
	for i, halves := range multiples {
		alt := sluice.Limit{Count: l.Count * halves / 2, Window: l.Window, Burst: room}
		if l.Count*halves%2 != 0 {
			alt.Count, alt.Window = l.Count*halves, 2*l.Window
		}
		a.rungs[i] = newRung(alt, room)
	}
	switch l.Algorithm {
	case sluice.FixedWindow:
		alt := sluice.Limit{Count: min(room, step.MaxWindowCount), Window: l.Window, Algorithm: l.Algorithm, Align: l.Align, Calendar: l.Calendar, Zone: l.Zone}
		if l.Align == sluice.AlignCalendar {
			alt.Window = 0
		}
		a.rungs[windowed] = newRung(alt, alt.Count)
	case sluice.SlidingWindowLog, sluice.SlidingWindowCounter:
		alt := sluice.Limit{Count: min(room, step.MaxWindowCount), Window: l.Window, Algorithm: sluice.SlidingWindowCounter}
		a.rungs[windowed] = newRung(alt, alt.Count)
	}
	return a
}

func newRung(l sluice.Limit, room int64) rung {
	built, err := l.Build()
	if err != nil { // such as a rate of more than 10 million per second
		return rung{}
	}
	return rung{private.ParamsOf(built), room}
}

// counter is the state of a rung for one key.
type counter struct {
	fresh int64
	value uint64
}

// take charges cost and returns how much of the room is used.
func (r *rung) take(c *counter, now, cost int64) int64 {
	p := r.params
	fresh, value, retry, remaining := p.Fast(c.fresh, c.value, p.Shape(), now, cost)
	if retry == step.Undecided {
		s, a := p.Take(step.State{ExpiresAt: c.fresh, Value: c.value, Shape: p.Shape()}, nil, now, step.Request{Cost: cost})
		fresh, value, retry, remaining = s.ExpiresAt, s.Value, a.RetryAfter, a.Remaining
		if a.Never {
			retry = 1
		}
	}
	if retry > 0 {
		return r.room
	}
	c.fresh, c.value = fresh, value
	return r.room - remaining
}

// spent starts a bucket rung for a key that has used up its limit.
func (r *rung) spent(now, used int64) counter {
	if r.params.Kind != step.Bucket {
		return counter{}
	}
	s := r.params.Spent(now, used)
	return counter{s.ExpiresAt, s.Value}
}

// load returns the cost per time relative to the limit's rate.
func (a *ladder) load(cost, micros int64) float64 {
	if a.rate == 0 {
		return math.NaN()
	}
	return float64(cost) / (a.rate * float64(max(micros, pauseTime*a.length)))
}

// duration returns microseconds as a duration.
func duration(micros int64) time.Duration { return time.Duration(micros) * time.Microsecond }
