package storetest

import (
	"time"

	"github.com/sluiceproject/sluice"
)

// windowMeter counts in windows one after the other.
type windowMeter struct {
	shape      windowShape // of the limit it was written under
	start, end int64
	count      int64
	grace      int64 // when a soft limit that has been exceeded becomes hard
}

// windowShape is what gives windows their bounds.
type windowShape struct {
	window time.Duration
	align  sluice.Align
	unit   sluice.CalendarUnit
	zone   string
}

func shapeOf(l *sluice.Limit) windowShape {
	s := windowShape{l.Window, l.Align, l.Calendar, ""}
	if l.Zone != nil {
		s.zone = l.Zone.String()
	}
	return s
}

// bounds is the window that t falls into.
func bounds(l *sluice.Limit, t int64) (start, end int64) {
	length := l.Window.Microseconds()
	switch l.Align {
	case sluice.AlignFirstRequest:
		return t, t + length
	case sluice.AlignCalendar:
		return calendar(l.Calendar, time.UnixMicro(t).In(l.Zone))
	}
	start = floorDiv(t, length) * length
	return start, start + length
}

// calendar walks to where the date belongs to another day, week, month or year: in half days, which can step over none, and
// then in quarters of an hour, which every time zone's changes fall on.
func calendar(unit sluice.CalendarUnit, t time.Time) (start, end int64) {
	same := unitOf(unit, t)
	first := t.Truncate(15 * time.Minute)
	last := first
	for _, step := range []time.Duration{12 * time.Hour, 15 * time.Minute} {
		for unitOf(unit, first.Add(-step)) == same {
			first = first.Add(-step)
		}
		for unitOf(unit, last.Add(step)) == same {
			last = last.Add(step)
		}
	}
	return first.UnixMicro(), last.Add(15 * time.Minute).UnixMicro()
}

// unitOf names the day, week, month or year that t falls into.
func unitOf(unit sluice.CalendarUnit, t time.Time) [3]int {
	switch unit {
	case sluice.CalendarDay:
		return [3]int{t.Year(), int(t.Month()), t.Day()}
	case sluice.CalendarWeek:
		year, week := t.ISOWeek()
		return [3]int{year, week}
	case sluice.CalendarYear:
		return [3]int{t.Year()}
	}
	return [3]int{t.Year(), int(t.Month())}
}

// adopted counts on in the window that now falls into under the new limit.
func (m *windowMeter) adopted(l *sluice.Limit, now int64) meter {
	if m.end <= now || m.shape == shapeOf(l) {
		return m
	}
	w := windowMeter{shape: shapeOf(l)}
	w.start, w.end = bounds(l, now)
	w.add(l, now, m.count)
	return &w
}

// at is the meter as it is at t: the window it last counted in if that has not ended, else an empty one.
func (m *windowMeter) at(l *sluice.Limit, t int64) windowMeter {
	if m.end > t {
		return *m
	}
	w := windowMeter{shape: shapeOf(l)}
	w.start, w.end = bounds(l, t)
	return w
}

func (m *windowMeter) fits(l *sluice.Limit, t, cost int64) bool {
	return cost <= m.remaining(l, t)
}

// remaining counts what a soft limit may be exceeded by, until its grace ends.
func (m *windowMeter) remaining(l *sluice.Limit, t int64) int64 {
	w := m.at(l, t)
	most := l.Count + l.SoftExcess
	if w.count > l.Count && w.grace != 0 && t > w.grace {
		most = l.Count
	}
	return max(0, most-w.count)
}

func (m *windowMeter) expiresAt(_ *sluice.Limit, t int64) int64 {
	if m.count == 0 {
		return t
	}
	return max(t, m.end)
}

func (m *windowMeter) hasExpired() int64 { return m.end }

// add counts delta; the moment at which the limit is exceeded begins the grace of a soft one.
func (m *windowMeter) add(l *sluice.Limit, now, delta int64) {
	const most = 1<<33 - 1
	before := m.count
	m.count = min(max(0, m.count+delta), most)
	if l.SoftExcess > 0 && before <= l.Count && m.count > l.Count {
		// Stores note the end of the grace as a distance from the window's, of at most 35 minutes. It can be longer only
		// by a clock that is that much behind.
		m.grace = max(now+l.SoftPeriod.Microseconds(), m.end-(1<<31-1))
	}
}

func (m *windowMeter) spend(l *sluice.Limit, now, cost, at int64) int64 {
	*m = m.at(l, now)
	m.add(l, now, cost)
	return at
}

func (m *windowMeter) charge(l *sluice.Limit, now, cost int64) { m.spend(l, now, cost, now) }

// adjust gives back if the take was in this window.
func (m *windowMeter) adjust(l *sluice.Limit, now, at, _, delta int64) int64 {
	w := m.at(l, now)
	if delta < 0 && (m.end <= now || at < w.start || at >= w.end) {
		return 0
	}
	given := -w.count
	w.add(l, now, delta)
	given += w.count
	if w.count == 0 {
		w = windowMeter{} // as if never seen
	}
	*m = w
	return given
}

func (m *windowMeter) leaves(gone func(int64) bool) bool { return gone(m.end) }
