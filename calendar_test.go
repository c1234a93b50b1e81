package sluice_test

import (
	"math/rand/v2"
	"testing"
	"time"
	_ "time/tzdata" // zones must not depend on the system

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/private"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// bounds returns the window function of a calendar limit.
func bounds(t *testing.T, unit sluice.CalendarUnit, z *time.Location) func(at time.Time) (start, end time.Time) {
	t.Helper()
	l, err := sluice.PerCalendar(1, unit, z).Build()
	if err != nil {
		t.Fatal(err)
	}
	return func(at time.Time) (start, end time.Time) {
		s, e := private.ParamsOf(l).Bounds(at.UnixMicro())
		return time.UnixMicro(s).In(z), time.UnixMicro(e).In(z)
	}
}

func TestCalendarWindows(t *testing.T) {
	const form = "2006-01-02 15:04 -0700"
	for _, c := range []struct {
		zone       string
		unit       sluice.CalendarUnit
		at         string // UTC
		start, end string // local
		length     time.Duration
		why        string
	}{
		{"UTC", sluice.CalendarDay, "2024-02-29 12:00", "2024-02-29 00:00 +0000", "2024-03-01 00:00 +0000", 24 * time.Hour, "a leap day"},
		{"UTC", sluice.CalendarMonth, "2024-02-10 12:00", "2024-02-01 00:00 +0000", "2024-03-01 00:00 +0000", 29 * 24 * time.Hour, "February of a leap year"},
		{"UTC", sluice.CalendarMonth, "2023-02-28 23:59", "2023-02-01 00:00 +0000", "2023-03-01 00:00 +0000", 28 * 24 * time.Hour, "February of another"},
		{"UTC", sluice.CalendarMonth, "2100-02-28 23:59", "2100-02-01 00:00 +0000", "2100-03-01 00:00 +0000", 28 * 24 * time.Hour, "2100 is no leap year"},
		{"UTC", sluice.CalendarYear, "2024-02-29 12:00", "2024-01-01 00:00 +0000", "2025-01-01 00:00 +0000", 366 * 24 * time.Hour, "a leap year"},
		{"Asia/Seoul", sluice.CalendarYear, "2025-12-31 14:59", "2025-01-01 00:00 +0900", "2026-01-01 00:00 +0900", 365 * 24 * time.Hour, "a year"},
		{"UTC", sluice.CalendarMonth, "2023-12-31 23:59", "2023-12-01 00:00 +0000", "2024-01-01 00:00 +0000", 31 * 24 * time.Hour, "December"},
		{"UTC", sluice.CalendarWeek, "2024-01-01 00:00", "2024-01-01 00:00 +0000", "2024-01-08 00:00 +0000", 7 * 24 * time.Hour, "a Monday"},
		{"UTC", sluice.CalendarWeek, "2023-12-31 23:59", "2023-12-25 00:00 +0000", "2024-01-01 00:00 +0000", 7 * 24 * time.Hour, "a Sunday"},
		{"UTC", sluice.CalendarWeek, "2024-03-02 12:00", "2024-02-26 00:00 +0000", "2024-03-04 00:00 +0000", 7 * 24 * time.Hour, "a week over a leap day"},

		{"Europe/Berlin", sluice.CalendarDay, "2024-03-31 12:00", "2024-03-31 00:00 +0100", "2024-04-01 00:00 +0200", 23 * time.Hour, "clocks go forward"},
		{"Europe/Berlin", sluice.CalendarDay, "2024-10-27 00:30", "2024-10-27 00:00 +0200", "2024-10-28 00:00 +0100", 25 * time.Hour, "clocks go back"},
		{"Europe/Berlin", sluice.CalendarDay, "2024-03-30 23:00", "2024-03-31 00:00 +0100", "2024-04-01 00:00 +0200", 23 * time.Hour, "its first moment"},
		{"Europe/Berlin", sluice.CalendarDay, "2024-03-30 22:59", "2024-03-30 00:00 +0100", "2024-03-31 00:00 +0100", 24 * time.Hour, "the moment before"},
		{"Europe/Berlin", sluice.CalendarWeek, "2024-10-27 12:00", "2024-10-21 00:00 +0200", "2024-10-28 00:00 +0100", 7*24*time.Hour + time.Hour, "a week of 169 hours"},
		{"Europe/Berlin", sluice.CalendarMonth, "2024-03-01 00:00", "2024-03-01 00:00 +0100", "2024-04-01 00:00 +0200", 31*24*time.Hour - time.Hour, "March"},
		{"America/New_York", sluice.CalendarDay, "2024-03-10 12:00", "2024-03-10 00:00 -0500", "2024-03-11 00:00 -0400", 23 * time.Hour, "clocks go forward"},
		{"America/New_York", sluice.CalendarDay, "2024-11-03 12:00", "2024-11-03 00:00 -0400", "2024-11-04 00:00 -0500", 25 * time.Hour, "clocks go back"},

		{"America/Sao_Paulo", sluice.CalendarDay, "2018-11-04 12:00", "2018-11-04 01:00 -0200", "2018-11-05 00:00 -0200", 23 * time.Hour, "there is no midnight"},
		{"America/Sao_Paulo", sluice.CalendarDay, "2018-11-04 02:59", "2018-11-03 00:00 -0300", "2018-11-04 01:00 -0200", 24 * time.Hour, "the day before that"},
		{"America/Sao_Paulo", sluice.CalendarDay, "2018-02-17 12:00", "2018-02-17 00:00 -0200", "2018-02-18 00:00 -0300", 25 * time.Hour, "clocks go back at midnight"},
		{"Asia/Beirut", sluice.CalendarDay, "2024-03-31 12:00", "2024-03-31 01:00 +0300", "2024-04-01 00:00 +0300", 23 * time.Hour, "there is no midnight"},
		{"Asia/Beirut", sluice.CalendarDay, "2024-10-26 12:00", "2024-10-26 00:00 +0300", "2024-10-27 00:00 +0200", 25 * time.Hour, "clocks go back at midnight"},
		{"America/Havana", sluice.CalendarDay, "2024-11-03 12:00", "2024-11-03 00:00 -0400", "2024-11-04 00:00 -0500", 25 * time.Hour, "midnight comes twice"},
		{"America/Havana", sluice.CalendarDay, "2024-03-10 12:00", "2024-03-10 01:00 -0400", "2024-03-11 00:00 -0400", 23 * time.Hour, "there is no midnight"},
		{"Australia/Lord_Howe", sluice.CalendarDay, "2024-04-07 00:00", "2024-04-07 00:00 +1100", "2024-04-08 00:00 +1030", 24*time.Hour + 30*time.Minute, "clocks change by half an hour"},
		{"Asia/Kathmandu", sluice.CalendarDay, "2024-01-01 18:15", "2024-01-02 00:00 +0545", "2024-01-03 00:00 +0545", 24 * time.Hour, "a quarter past the hour"},
		{"Pacific/Apia", sluice.CalendarDay, "2011-12-30 00:00", "2011-12-29 00:00 -1000", "2011-12-31 00:00 +1400", 24 * time.Hour, "the next day was left out"},
		{"Pacific/Apia", sluice.CalendarDay, "2011-12-30 12:00", "2011-12-31 00:00 +1400", "2012-01-01 00:00 +1400", 24 * time.Hour, "the day after it"},
		{"Pacific/Apia", sluice.CalendarWeek, "2011-12-30 12:00", "2011-12-26 00:00 -1000", "2012-01-02 00:00 +1400", 6 * 24 * time.Hour, "a week without Friday"},
	} {
		at, err := time.Parse("2006-01-02 15:04", c.at)
		if err != nil {
			t.Fatal(err)
		}
		start, end := bounds(t, c.unit, zone(t, c.zone))(at)
		if start.Format(form) != c.start || end.Format(form) != c.end || end.Sub(start) != c.length {
			t.Errorf("%s, %s: %v to %v (%v)\nwant %s to %s (%v)", c.zone, c.why, start, end, end.Sub(start), c.start, c.end, c.length)
		}
	}
}

// Over twelve years, windows follow each other without gap or overlap, and contain the hours of exactly one date, week,
// month or year.
func TestCalendarWindowsTile(t *testing.T) {
	from, to := time.Date(2016, 12, 28, 0, 0, 0, 0, time.UTC), time.Date(2029, 1, 3, 0, 0, 0, 0, time.UTC)
	for _, name := range []string{
		"UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Asia/Beirut", "America/Havana", "Africa/Casablanca",
		"Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Chatham", "Antarctica/Troll", "America/Asuncion",
	} {
		z := zone(t, name)
		for _, unit := range []sluice.CalendarUnit{sluice.CalendarDay, sluice.CalendarWeek, sluice.CalendarMonth, sluice.CalendarYear} {
			window := bounds(t, unit, z)
			start, end := window(from)
			for at := from; at.Before(to); at = at.Add(time.Hour) {
				gotStart, gotEnd := window(at)
				if !at.Before(end) { // the next window begins where this one ended
					start, end = end, gotEnd
					checkCalendarWindow(t, name, unit, start, end)
				}
				if !gotStart.Equal(start) || !gotEnd.Equal(end) || !at.Before(end) {
					t.Fatalf("%s: at %v the window is %v to %v, want %v to %v", name, at.In(z), gotStart, gotEnd, start, end)
				}
			}
		}
	}
}

func checkCalendarWindow(t *testing.T, name string, unit sluice.CalendarUnit, start, end time.Time) {
	t.Helper()
	last := end.Add(-time.Microsecond)
	before := start.Add(-time.Microsecond)
	days := map[sluice.CalendarUnit][2]int{
		sluice.CalendarDay: {1, 1}, sluice.CalendarWeek: {7, 7}, sluice.CalendarMonth: {28, 31}, sluice.CalendarYear: {365, 366},
	}[unit]
	// The days of the calendar, in UTC, where clocks never change.
	date := func(at time.Time) time.Time {
		y, m, d := at.Date()
		return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	}
	n := int(date(last).Sub(date(start))/(24*time.Hour)) + 1
	if n < days[0] || n > days[1] || date(before).Equal(date(start)) || date(end).Equal(date(last)) {
		t.Fatalf("%s: %v to %v holds %d dates", name, start, end, n)
	}
	if unit == sluice.CalendarWeek && start.Weekday() != time.Monday || unit == sluice.CalendarMonth && start.Day() != 1 ||
		unit == sluice.CalendarYear && start.YearDay() != 1 {
		t.Fatalf("%s: a window begins at %v", name, start)
	}
}

// A window function caches its last window, which must not change its results.
func TestCalendarBoundsArePure(t *testing.T) {
	z := zone(t, "America/Sao_Paulo")
	shared := bounds(t, sluice.CalendarDay, z)
	rnd := rand.New(rand.NewPCG(1, 1))
	base := time.Date(2018, 11, 1, 0, 0, 0, 0, time.UTC)
	for range 2000 {
		at := base.Add(time.Duration(rnd.Int64N(int64(10 * 24 * time.Hour))))
		s1, e1 := shared(at)
		s2, e2 := bounds(t, sluice.CalendarDay, z)(at)
		if !s1.Equal(s2) || !e1.Equal(e2) || at.Truncate(time.Microsecond).Before(s1) || !at.Before(e1) {
			t.Fatalf("at %v: %v to %v, without the cache %v to %v", at, s1, e1, s2, e2)
		}
	}
}

// Calendars that differ in unit or zone have different IDs, so that a change is noticed.
func TestCalendarsDiffer(t *testing.T) {
	seen := map[uint64]string{}
	for _, name := range []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Beirut"} {
		for unit, word := range map[sluice.CalendarUnit]string{
			sluice.CalendarDay: "day", sluice.CalendarWeek: "week", sluice.CalendarMonth: "month", sluice.CalendarYear: "year",
		} {
			l := sluice.Must(sluice.PerCalendar(1, unit, zone(t, name)).Build())
			id := private.ParamsOf(l).BoundsID
			if other, ok := seen[id]; ok {
				t.Errorf("%s in %s is taken for %s", word, name, other)
			}
			seen[id] = word + " in " + name
		}
	}
}
