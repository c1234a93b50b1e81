package step_test

import (
	"math"

	"github.com/sluiceproject/sluice/internal/step"
)

// fixedWindow: consecutive windows, each with its own count.
type fixedWindow struct {
	p          *step.Params
	start, end int64
	total      int64
	exceeded   int64 // when total first exceeded Count
}

func newFixedWindow(p *step.Params) model { return &fixedWindow{p: p} }

// at returns the window at now: the open one, or a new one.
func (w *fixedWindow) at(now int64) fixedWindow {
	if w.total > 0 && now < w.end {
		return *w
	}
	n := fixedWindow{p: w.p, start: now, end: now + w.p.Length} // FirstHit
	switch w.p.Align {
	case step.Epoch:
		n.start = now - now%w.p.Length
		n.end = n.start + w.p.Length
	case step.Calendar:
		n.start, n.end = w.p.Bounds(now)
	}
	return n
}

func (w *fixedWindow) most() int64 { return w.p.Count + w.p.SoftExcess }

func (w *fixedWindow) remaining(now int64) int64 {
	n := w.at(now)
	if n.total > w.p.Count && !n.graceful(now) {
		return 0
	}
	return max(0, w.most()-n.total)
}

func (w *fixedWindow) fits(now, cost, _ int64) (int64, bool) { return 0, cost <= w.remaining(now) }

// graceful reports whether the soft limit may still be exceeded.
func (w *fixedWindow) graceful(now int64) bool {
	// Windows longer than 35 minutes store this time with a coarser resolution, counted back from their end and rounded
	// down.
	grain := w.p.Length>>31 + 1
	until := w.exceeded + w.p.SoftPeriod
	return until >= w.end || now <= w.end-(w.end-until+grain-1)/grain*grain
}

func (w *fixedWindow) book(at, now, cost int64) {
	n := w.at(now)
	before := n.total
	n.total = max(0, min(n.total+cost, 1<<33-1)) // saturates
	if before <= w.p.Count && n.total > w.p.Count {
		n.exceeded = at
	}
	*w = n
}

func (w *fixedWindow) spend(now, cost, _ int64) { w.book(now, now, cost) }

func (w *fixedWindow) charge(now, cost int64) { w.book(now, now, cost) }

func (w *fixedWindow) adjust(now, at, _, delta int64) int64 {
	n := w.at(now)
	if delta <= 0 && (at < n.start || at >= n.end) {
		return 0 // the take was in another window
	}
	w.book(now, now, delta)
	return w.total - n.total
}

// slidingCounter: the count of the current window, plus the fraction of the previous one that the sliding window still
// covers. With n sub-windows: the last n, the current one included, plus the covered fraction of the one before. The
// fraction is rounded up to a multiple of 1/65,536, the sum down or to the nearest.
type slidingCounter struct {
	p      *step.Params
	length int64 // of a sub-window
	n      int64
	counts map[int64]int64 // by index of the sub-window
}

func newSlidingCounter(p *step.Params) model {
	n := max(1, p.Slices)
	return &slidingCounter{p: p, length: p.Length / n, n: n, counts: map[int64]int64{}}
}

func (c *slidingCounter) used(now int64) int64 {
	number, into := now/c.length, now%c.length
	var whole int64
	for i := range c.n {
		whole += c.counts[number-i]
	}
	// Lengths are below 2^45 and counts below 2^32, so that nothing here overflows.
	share := ((c.length-into)*65536 + c.length - 1) / c.length
	part := c.counts[number-c.n] * share
	if c.p.Nearest {
		return whole + (2*part+65536)/(2*65536)
	}
	return whole + part/65536
}

func (c *slidingCounter) most() int64 { return c.p.Count }

func (c *slidingCounter) remaining(now int64) int64 { return max(0, c.p.Count-c.used(now)) }

func (c *slidingCounter) fits(now, cost, _ int64) (int64, bool) {
	return 0, c.used(now)+cost <= c.p.Count
}

func (c *slidingCounter) spend(now, cost, _ int64) { c.counts[now/c.length] += cost }

func (c *slidingCounter) charge(now, cost int64) {
	i := now / c.length
	c.counts[i] = min(c.counts[i]+cost, math.MaxUint32) // saturates
}

func (c *slidingCounter) adjust(now, at, _, delta int64) int64 {
	i := at / c.length
	if delta > 0 {
		i = now / c.length
	}
	if i > now/c.length || i < now/c.length-c.n {
		return 0
	}
	before := c.counts[i]
	c.counts[i] = max(0, min(before+delta, math.MaxUint32))
	return c.counts[i] - before
}

// resetAfter returns the time until all non-empty sub-windows have left.
func (c *slidingCounter) resetAfter(now int64) int64 {
	for i := now / c.length; i >= now/c.length-c.n; i-- {
		if c.counts[i] > 0 {
			return (i+c.n+1)*c.length - now
		}
	}
	return 0
}

// slidingLog: all takes.
type slidingLog struct {
	p     *step.Params
	takes []take
}

// take is a charged cost at a time.
type take struct{ at, cost int64 }

func newSlidingLog(p *step.Params) model { return &slidingLog{p: p} }

// sum returns the cost in the window that ends at now: after now - Length, up to now.
func (l *slidingLog) sum(now int64) int64 {
	var sum int64
	for _, t := range l.takes {
		if t.at > now-l.p.Length {
			sum += t.cost
		}
	}
	return sum
}

func (l *slidingLog) most() int64 { return l.p.Count }

func (l *slidingLog) remaining(now int64) int64 { return max(0, l.p.Count-l.sum(now)) }

func (l *slidingLog) fits(now, cost, _ int64) (int64, bool) { return 0, l.sum(now)+cost <= l.p.Count }

func (l *slidingLog) spend(now, cost, _ int64) { l.takes = append(l.takes, take{now, cost}) }

// A denied request larger than the limit counts as the limit, which is enough to deny all others.
func (l *slidingLog) charge(now, cost int64) {
	l.takes = append(l.takes, take{now, min(cost, l.p.Count)})
}

func (l *slidingLog) adjust(now, at, _, delta int64) int64 {
	if delta >= 0 {
		l.takes = append(l.takes, take{now, delta})
		return delta
	}
	if at <= now-l.p.Length {
		return 0
	}
	var given int64 // takes in the same microsecond are one
	for i := range l.takes {
		if t := &l.takes[i]; t.at == at {
			part := min(t.cost, -delta-given)
			t.cost -= part
			given += part
		}
	}
	return -given
}
