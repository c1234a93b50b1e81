package insight

import (
	"math"
	"time"

	"github.com/sluiceproject/sluice"
)

// spared is the share of the well-behaved denied keys that a looser limit is to deny nothing, and maxLooser how many times
// the cost at once it may allow.
const (
	spared    = 0.95
	maxLooser = 20
)

// limitWindow returns the window of the limit, or the nominal length of a calendar window.
func (a *ladder) limitWindow() time.Duration { return max(a.limit.Window, time.Millisecond) }

// moreRate returns a limit of the same algorithm that would have denied nothing to most well-behaved keys, and the share of
// the denied keys that it would still deny.
func (f *facts) moreRate(well []*record) (*sluice.Limit, float64) {
	if f.ladder.rate == 0 {
		return nil, 1
	}
	if f.limit.Algorithm != sluice.TokenBucket && f.limit.Algorithm != sluice.LeakyBucket && f.limit.Algorithm != sluice.LeakyQueue {
		need := f.need(well, windowed)
		l := *f.limit
		l.Count = niceUp(float64(need))
		return f.alternative(l, well, windowed, l.Count)
	}
	for i, halves := range multiples {
		need := f.need(well, i)
		if i == sameRate || need > 2*f.ladder.max && i < len(multiples)-1 {
			continue
		}
		l := *f.limit
		l.Count, l.Burst, l.Initial = niceUp(float64(l.Count*halves)/2), max(f.ladder.max, niceUp(float64(need))), 0
		return f.alternative(l, well, i, l.Burst)
	}
	return nil, 1
}

// moreBurst returns a bucket with the limit's own rate that would have denied nothing to most well-behaved keys.
func (f *facts) moreBurst(well []*record) (*sluice.Limit, float64) {
	if f.ladder.rate == 0 {
		return nil, 1
	}
	l := sluice.Limit{Count: f.limit.Count, Window: f.ladder.limitWindow(), Burst: max(f.ladder.max, niceUp(float64(f.need(well, sameRate))))}
	if f.limit.Algorithm == sluice.LeakyBucket || f.limit.Algorithm == sluice.LeakyQueue {
		l.Algorithm = f.limit.Algorithm
	}
	return f.alternative(l, well, sameRate, l.Burst)
}

// need returns the room that suffices for most of the keys, but at most maxLooser times that of the limit.
func (f *facts) need(of []*record, rung int) int64 {
	var all []float64
	for _, k := range of {
		// The limits of tiers differ: the need is scaled to the rule's own limit.
		n, _ := k.needs(rung)
		all = append(all, float64(n)*float64(f.ladder.max)/float64(k.ladder.max))
	}
	return int64(math.Ceil(min(quantile(all, spared), maxLooser*float64(f.ladder.max))))
}

// alternative builds l, which gives a rung this room.
func (f *facts) alternative(l sluice.Limit, of []*record, rung int, room int64) (*sluice.Limit, float64) {
	built, err := l.Build()
	if err != nil {
		return nil, 1
	}
	left := 0
	for _, k := range of {
		if n, _ := k.needs(rung); float64(n)*float64(f.ladder.max) > float64(room)*float64(k.ladder.max) {
			left++
		}
	}
	return built, float64(left) / float64(max(1, len(of)))
}

// scaled returns the limit times a part, or nil if that is not lower.
func (f *facts) scaled(part float64) *sluice.Limit {
	l := *f.limit
	count := niceUp(part * float64(l.Count))
	if count < 1 || count >= l.Count {
		return nil
	}
	if l.Burst > 0 {
		l.Burst = max(1, niceUp(part*float64(l.Burst)))
	}
	l.Count, l.Initial = count, 0
	built, err := l.Build()
	if err != nil {
		return nil
	}
	return built
}

// niceUp rounds up to a whole number of at most 20, or to one with a simple first part: 1, 1.2, 1.5, 2, 2.5, 3 … 9 × 10ⁿ.
func niceUp(x float64) int64 {
	if x <= 20 {
		return int64(math.Ceil(x))
	}
	if x > 1<<52 {
		return 1 << 52
	}
	unit := int64(1)
	for float64(unit)*100 < x {
		unit *= 10
	}
	for _, tenths := range [...]int64{10, 12, 15, 20, 25, 30, 40, 50, 60, 70, 80, 90} {
		if float64(tenths*unit) >= x {
			return tenths * unit
		}
	}
	return 100 * unit
}
