package redisstore

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/internal/step"
	"github.com/sluiceproject/sluice/internal/storekit"
)

// maxMade is the maximum number of takes kept for settlement: more than a bucket has marks.
const maxMade = 60

// firstTime is the time of the first random call.
var firstTime = time.Date(2026, time.March, 2, 1, 0, 0, 0, time.UTC).UnixMicro()

// plainTake returns a take for the script's fast path.
func (d *differential) plainTake() sluice.Take {
	for {
		t := d.take()
		t.MinGrant, t.MaxDelay, t.IdempotencyID, t.Receipt, t.Settles, t.Rule = 0, 0, 0, 0, false, d.rules[d.rng.IntN(len(d.rules))]
		var o group.Op
		if err := storekit.SetOp(&o, &t); err == nil && isPlain(&o) {
			return t
		}
	}
}

// advance moves the clock: often not at all, mostly a little, sometimes far, sometimes back.
func (d *differential) advance() {
	window := d.pace
	switch d.rng.IntN(20) {
	case 0, 1, 2, 3:
	case 4:
		d.now++
	case 5:
		d.now += window
	case 6:
		d.now += d.rng.Int64N(3*min(window, int64(time.Hour/time.Microsecond))) + 1
	case 7:
		d.now -= d.rng.Int64N(min(window, int64(time.Hour/time.Microsecond)))
	case 8: // to the start of aligned windows
		d.now += window - d.now%window
	case 9, 10:
		if len(d.aims) > 0 {
			d.now = max(d.now, d.aims[d.rng.IntN(len(d.aims))]+d.rng.Int64N(3)-1)
		}
	default:
		d.now += d.rng.Int64N(window/20 + 2)
	}
	// The store supports times up to the year 2105.
	if d.now < 40*step.Year || d.now > firstTime+70*step.Year {
		d.now = firstTime + d.rng.Int64N(60*step.Year)
	}
}

// elsewhere moves the clock to a distant time, because states count from 2026 and a server's clock may be wrong.
func (d *differential) elsewhere() {
	switch d.rng.IntN(4) {
	case 0:
		d.now = base - d.rng.Int64N(10*step.Year)
	case 1:
		d.now = base - d.rng.Int64N(2*min(d.pace, step.Year)+1)
	default:
		d.now = firstTime + d.rng.Int64N(60*step.Year)
	}
}

func (d *differential) take() sluice.Take {
	if d.marks {
		return d.reserve()
	}
	if len(d.made) > 0 && d.rng.IntN(8) == 0 {
		return d.settlement()
	}
	// New keys are used every few rounds, because negative balances would block all of them. Each mostly stays with one
	// limit.
	key := d.rng.IntN(2 * len(d.limits))
	limit := d.limits[key%len(d.limits)]
	if d.rng.IntN(20) == 0 {
		limit = d.limits[d.rng.IntN(len(d.limits))]
	}
	t := sluice.Take{Rule: d.rules[d.rng.IntN(len(d.rules))], Limit: limit, Key: fmt.Sprint(d.rounds/3, "-", key)}
	if d.restless { // all limit parameters of a rule change repeatedly
		number := d.rounds / 24
		t.Rule, t.Key = d.rules[number%len(d.rules)], fmt.Sprint(number, "-", d.rng.IntN(4))
		if d.rng.IntN(20) > 0 {
			limit = d.current()
		}
		t.Limit = limit
	}
	size := limit.Max()
	switch d.rng.IntN(10) {
	case 0:
		t.DryRun = d.rng.IntN(2) == 0
		return t
	case 1:
		t.Cost = max(1, size-d.rng.Int64N(3))
	case 2:
		t.Cost = min(size+d.rng.Int64N(3), sluice.MaxCost)
	case 3:
		t.Cost = d.rng.Int64N(sluice.MaxCost) + 1
	case 4, 5:
		t.Cost = 1 + d.rng.Int64N(min(size, sluice.MaxCost)+1)/2
	default:
		t.Cost = 1
	}
	t.Cost = max(1, min(t.Cost, sluice.MaxCost))
	if d.rng.IntN(6) == 0 {
		t.MinGrant = 1 + d.rng.Int64N(min(t.Cost, size+2))
	}
	if d.rng.IntN(5) == 0 {
		t.MaxDelay = time.Duration(d.rng.Int64N(2*private.ParamsOf(limit).Length)) * time.Microsecond
	}
	if d.rng.IntN(6) == 0 {
		t.IdempotencyID = 1 + d.rng.Uint64N(8)
	}
	t.Settles = d.rng.IntN(2) == 0
	d.note(t)
	return t
}

// current returns the limit of most takes of a round. It changes every few rounds.
func (d *differential) current() *sluice.Limit { return d.limits[d.rounds/3%len(d.limits)] }

// drawnLimits returns n random limits of the same algorithm, with parameters of all sizes.
func drawnLimits(rng *rand.Rand, like sluice.Limit, n int) (limits []sluice.Limit) {
	size := func(most float64) int64 { return int64(math.Exp(rng.Float64() * math.Log(most))) }
	for len(limits) < n {
		l := like
		l.Count, l.Window = size(1e6), time.Duration(size(366*24*3600*1e3))*time.Millisecond
		switch rng.IntN(3) {
		case 0: // others are simple fractions of these
			l.Count, l.Window = size(30)*10, time.Duration(size(60))*time.Minute
		case 1:
			l.Window += time.Duration(rng.Int64N(1000)) * time.Microsecond
		}
		switch p := private.ParamsOf(&like); {
		case p.Kind <= step.Interval:
			l.Burst = l.Count
			if rng.IntN(2) == 0 {
				l.Burst = size(1e6)
			}
			if rng.IntN(10) == 0 {
				l.Burst = size(3e16)
			}
		case p.Kind == step.Slices:
			l.Window -= l.Window % (time.Duration(l.SubWindows) * time.Millisecond)
		}
		if like.Initial != 0 {
			l = l.WithInitial(rng.Int64N(l.Burst))
		}
		if whole, err := l.Build(); err == nil {
			if l.Burst > 1 && rng.IntN(4) == 0 { // as the share or lease of one instance is
				l.Count, l.Burst = 1+l.Count/3, 1+l.Burst/(2+rng.Int64N(5))
				l.Initial = min(l.Initial, l.Burst-1)
				private.MakePart(&l, whole)
			}
			limits = append(limits, l)
		}
	}
	return limits
}

// reserve returns a take on one of a few keys that have many open reservations, most of which are settled later.
func (d *differential) reserve() sluice.Take {
	const every = 12 // rounds
	number := d.rounds / every
	if len(d.made) > 0 && d.rng.IntN(10) < 2+2*(number/len(d.limits)%2) {
		i := d.rng.IntN(len(d.made))
		t := d.made[i]
		if d.rng.IntN(10) > 0 {
			d.made = slices.Delete(d.made, i, i+1)
		}
		switch d.rng.IntN(8) {
		case 0:
			t.Cost = 0
		case 1, 2:
			t.Cost = 1 + d.rng.Int64N(t.Charged)/5
		case 3:
			t.Cost = -t.Charged
		default:
			t.Cost = -1 - d.rng.Int64N(t.Charged)
		}
		if d.rng.IntN(500) == 0 { // the limit has changed since
			t.Limit = d.limits[d.rng.IntN(len(d.limits))]
		}
		return t
	}
	limit := d.limits[number%len(d.limits)]
	if d.rng.IntN(2000) == 0 {
		limit = d.limits[d.rng.IntN(len(d.limits))]
	}
	size := min(limit.Max(), sluice.MaxCost)
	t := sluice.Take{
		Rule: d.rules[number/len(d.limits)%4], Limit: limit, Key: fmt.Sprint(number, "-", d.rng.IntN(2)),
		Cost: 1 + d.rng.Int64N(size/80+1), Settles: d.rng.IntN(5) > 0,
	}
	switch d.rng.IntN(60) {
	case 0:
		t.Cost = 1 + d.rng.Int64N(size)
	case 1, 2:
		t.MaxDelay = time.Duration(d.rng.Int64N(private.ParamsOf(limit).Length)) * time.Microsecond
	case 3:
		t.MinGrant = 1 + d.rng.Int64N(t.Cost)
	case 4:
		t.IdempotencyID = 1 + d.rng.Uint64N(20)
	}
	return t
}

// note records the take, if it is granted at once, for a later settlement, and the times at which a decision about it
// changes.
func (d *differential) note(t sluice.Take) {
	p := private.ParamsOf(t.Limit)
	moments := []int64{p.SoftPeriod, p.Length, group.IdempotencyTTL, p.Length - d.now%p.Length}
	if p.Kind == step.Bucket {
		moments = append(moments, p.Drips().UnitQ, p.Drips().UnitQ)
	}
	far := 2 * d.pace
	if p.HasInitial {
		moments = append(moments, p.Drips().NewQ, p.Drips().FillQ)
		if d.rng.IntN(20) == 0 { // when the bucket has expired
			far = max(far, 4*keptFull)
			moments = append(moments, keptFull, keptFull+p.Drips().NewQ, keptFull+p.Drips().FillQ)
		}
	}
	for _, after := range moments {
		if after > 0 && after < far { // later times would be too far to come back from
			d.aims = append(d.aims, d.now+after)
		}
	}
	t.Receipt = d.now
	d.made = append(d.made, t)
	d.made = d.made[max(0, len(d.made)-maxMade):]
	d.aims = d.aims[max(0, len(d.aims)-20):]
}

// settlement returns a refund or an additional charge of an earlier take, sometimes under other limit parameters or
// with a wrong time.
func (d *differential) settlement() sluice.Take {
	t := d.made[d.rng.IntN(len(d.made))]
	t.MinGrant, t.MaxDelay, t.IdempotencyID = 0, 0, 0
	t.Cost = max(1, t.Cost)
	if t.Charged == 0 && d.rng.IntN(4) > 0 {
		t.Charged = t.Cost
	}
	switch d.rng.IntN(20) {
	case 0:
		t.ChargedOf = 0
	case 1:
		t.ChargedOf = 1 + d.rng.Int64N(2*t.Limit.Max()+1)
	case 2:
		t.Limit = d.limits[d.rng.IntN(len(d.limits))]
	case 3:
		t.Settles = !t.Settles
	case 4:
		t.Charged = d.rng.Int64N(2*t.Cost) % sluice.MaxCost
	}
	switch d.rng.IntN(7) {
	case 6:
		if t.Settles { // at the reserved cost
			t.Cost = 0
			return t
		}
		t.Cost = -t.Cost
	case 0:
		t.Cost = min(1+d.rng.Int64N(2*t.Cost), sluice.MaxCost)
	case 1:
		if d.rng.IntN(10) == 0 {
			t.Cost = d.rng.Int64N(sluice.MaxCost) + 1
		}
		if d.rng.IntN(4) == 0 { // the maximum cost of a log entry
			t.Cost = max(1, 16_383-t.Cost)
		}
	case 2:
		t.Cost = -(1 + d.rng.Int64N(t.Cost))
	case 3:
		t.Receipt += d.rng.Int64N(5) - 2
		fallthrough
	default:
		t.Cost = -t.Cost
	}
	if d.rng.IntN(8) == 0 {
		t.IdempotencyID = 1 + d.rng.Uint64N(8)
	}
	return t
}
