package storetest

import (
	"time"

	"github.com/sluiceproject/sluice"
)

// windowMeter counts in consecutive windows.
type windowMeter struct {
	shape      windowShape // of the limit at the last write
	start, end int64
	count      int64
	grace      int64 // when an exceeded soft limit becomes hard
}

// windowShape contains the parameters that determine the bounds of windows.
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

// bounds returns the window that contains t.
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

// calendar moves to where the date is in another day, week, month or year: in steps of half a day, which cannot skip
// one, and then in quarters of an hour, which all changes of time zones are multiples of.
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

// unitOf identifies the day, week, month or year that contains t.
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

// adopted moves the count to the current window of the new limit.
func (m *windowMeter) adopted(l *sluice.Limit, now int64) meter {
	if m.end <= now || m.shape == shapeOf(l) {
		return m
	}
	w := windowMeter{shape: shapeOf(l)}
	w.start, w.end = bounds(l, now)
	w.add(l, now, m.count)
	return &w
}

// at returns the meter at the time t: the last window if that has not ended, else an empty one.
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

// remaining includes the soft excess of a soft limit, until its grace period ends.
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

// add adds delta to the count. When the limit is exceeded, the grace period of a soft limit starts.
func (m *windowMeter) add(l *sluice.Limit, now, delta int64) {
	const most = 1<<33 - 1
	before := m.count
	m.count = min(max(0, m.count+delta), most)
	if l.SoftExcess > 0 && before <= l.Count && m.count > l.Count {
		// Stores store the end of the grace period as a distance of at most 35 minutes from the window's end. It can be
		// longer only on a clock that is that much behind.
		m.grace = max(now+l.SoftPeriod.Microseconds(), m.end-(1<<31-1))
	}
}

func (m *windowMeter) spend(l *sluice.Limit, now, cost, at int64) int64 {
	*m = m.at(l, now)
	m.add(l, now, cost)
	return at
}

func (m *windowMeter) charge(l *sluice.Limit, now, cost int64) { m.spend(l, now, cost, now) }

// adjust refunds if the take was in this window.
func (m *windowMeter) adjust(l *sluice.Limit, now, at, _, delta int64) int64 {
	w := m.at(l, now)
	if delta < 0 && (m.end <= now || at < w.start || at >= w.end) {
		return 0
	}
	given := -w.count
	w.add(l, now, delta)
	given += w.count
	if w.count == 0 {
		w = windowMeter{} // fully reset
	}
	*m = w
	return given
}

func (m *windowMeter) leaves(gone func(int64) bool) bool { return gone(m.end) }
