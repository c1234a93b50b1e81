package sluice

import (
	"hash/fnv"
	"sync/atomic"
	"time"
)

const day = 24 * time.Hour

// nominal returns the length of the unit without changes of the clock, as reported to callers: a month has 31 days, a
// year 366.
func (u CalendarUnit) nominal() time.Duration {
	switch u {
	case CalendarDay:
		return day
	case CalendarWeek:
		return 7 * day
	case CalendarMonth:
		return 31 * day
	case CalendarYear:
		return 366 * day
	}
	return 0
}

// longest returns an upper bound of the unit's length, changes of the clock included.
func (u CalendarUnit) longest() time.Duration { return u.nominal() + 2*time.Hour }

// start returns the start of the unit that contains t, and of the next unit. Both are computed from the calendar date,
// never by adding hours, so that days on which the clocks change have their true length.
func (u CalendarUnit) start(t time.Time) (this, next time.Time) {
	y, m, d := t.Date()
	zone := t.Location()
	switch u {
	case CalendarDay:
		return midnight(y, m, d, zone), midnight(y, m, d+1, zone)
	case CalendarWeek:
		d -= (int(t.Weekday()) + 6) % 7
		return midnight(y, m, d, zone), midnight(y, m, d+7, zone)
	case CalendarYear:
		return midnight(y, time.January, 1, zone), midnight(y+1, time.January, 1, zone)
	default:
		return midnight(y, m, 1, zone), midnight(y, m+1, 1, zone)
	}
}

// midnight returns the first instant of a date. Where the clocks change at midnight it may be 01:00, or the earlier of
// two midnights. For a date that the zone skipped, such as Samoa's 30 December 2011, it is the first instant of the
// next date.
func midnight(y int, m time.Month, d int, zone *time.Location) time.Time {
	want := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	reached := func(t time.Time) bool {
		y, m, d := t.Date()
		return !time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Before(want)
	}
	t := time.Date(y, m, d, 0, 0, 0, 0, zone)
	for !reached(t) { // midnight does not exist, and time.Date returned a time on the previous day
		t = t.Add(15 * time.Minute)
	}
	for earlier := t.Add(-15 * time.Minute); reached(earlier); earlier = earlier.Add(-15 * time.Minute) {
		t = earlier
	}
	return t
}

type calendarWindow struct{ start, end int64 }

// calendarBounds returns the window function of a calendar, which caches the last window, and an ID that distinguishes
// calendars.
func calendarBounds(u CalendarUnit, zone *time.Location) (bounds func(now int64) (start, end int64), id uint64) {
	var last atomic.Pointer[calendarWindow]
	h := fnv.New64a()
	h.Write([]byte{byte(u)})
	h.Write([]byte(zone.String()))
	return func(now int64) (start, end int64) {
		w := last.Load()
		if w == nil || now < w.start || now >= w.end {
			this, next := u.start(time.UnixMicro(now).In(zone))
			w = &calendarWindow{this.UnixMicro(), next.UnixMicro()}
			last.Store(w)
		}
		return w.start, w.end
	}, h.Sum64()
}
