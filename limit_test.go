package sluice_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/internal/step"
)

// faults returns the LimitErrors of Build.
func faults(t *testing.T, l sluice.Limit) (all []*sluice.LimitError) {
	t.Helper()
	built, err := l.Build()
	if err == nil {
		return nil
	}
	if built != nil {
		t.Errorf("%v: a limit and the error %v", l, err)
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%v: %v does not list its faults", l, err)
	}
	for _, e := range joined.Unwrap() {
		var fault *sluice.LimitError
		if !errors.As(e, &fault) {
			t.Fatalf("%v: %v does not name a field", l, e)
		}
		all = append(all, fault)
	}
	return all
}

// Each invalid value returns an error that names its field and a valid value.
func TestLimitRefuses(t *testing.T) {
	second := time.Second
	berlin := zone(t, "Europe/Berlin")
	window := sluice.PerMinute(10).WithAlgorithm(sluice.FixedWindow)
	counter := sluice.PerMinute(10).WithAlgorithm(sluice.SlidingWindowCounter)
	change := func(l sluice.Limit, f func(*sluice.Limit)) sluice.Limit { f(&l); return l }
	for name, c := range map[string]struct {
		limit      sluice.Limit
		field, msg string
	}{
		"no window":         {sluice.Per(5, 0), "Window", "is zero: write how long the limit is for, such as PerMinute(5) or Per(5, 10*time.Second)"},
		"negative window":   {sluice.Per(5, -second), "Window", "-1s is not between 1ms and 366 days"},
		"short window":      {sluice.Per(5, 999*time.Microsecond), "Window", "999µs is not between 1ms and 366 days"},
		"long window":       {sluice.Per(5, 366*24*time.Hour+second), "Window", "8784h0m1s is not between 1ms and 366 days"},
		"fractional window": {sluice.Per(5, second+time.Nanosecond), "Window", "1.000000001s is not a whole number of microseconds: use 1s"},

		"no count":              {sluice.PerSecond(0), "Count", "is zero: use a count of at least 1, or WithAlgorithm(FixedWindow) to deny everything"},
		"negative count":        {sluice.PerSecond(-3), "Count", "-3 is negative: use a count of at least 1"},
		"negative window count": {sluice.PerSecond(-3).WithAlgorithm(sluice.FixedWindow), "Count", "-3 is negative: use a count of at least 1"},
		"too fast":              {sluice.PerSecond(10_000_010), "Count", "10000010 per 1s is more than 10 million a second"},
		"large log":             {sluice.PerDay(10_001).WithAlgorithm(sluice.SlidingWindowLog), "Count", "a sliding log stores every request and holds at most 10000: use WithAlgorithm(SlidingWindowCounter) for 10001"},
		"large window":          {sluice.PerDay(1 << 32).WithAlgorithm(sluice.FixedWindow), "Count", "4294967296 is more than the 4294967295 a window can count: use a shorter window at the same rate, or a token bucket"},
		"large counter":         {sluice.PerDay(1 << 32).WithAlgorithm(sluice.SlidingWindowCounter), "Count", "4294967296 is more than the 4294967295 a window can count: use a shorter window at the same rate, or a token bucket"},

		"negative burst":  {sluice.PerSecond(5).WithBurst(-1), "Burst", "-1 is negative: use at least 1, or leave it out for a burst of Count"},
		"burst of window": {window.WithBurst(5), "Burst", "a fixed_window has no burst: leave it out, or use TokenBucket"},
		"endless burst":   {sluice.PerDay(1).WithBurst(40_000), "Burst", "a burst of 40000 at 1 per 24h0m0s takes more than 100 years to refill: use a smaller one"},
		"absurd burst":    {sluice.PerSecond(1).WithBurst(math.MaxInt64), "Burst", "a burst of 9223372036854775807 at 1 per 1s takes more than 100 years to refill: use a smaller one"},

		"too much at first":  {sluice.PerSecond(5).WithInitial(6), "Initial", "6 is more than a burst of 5 holds: use at most that"},
		"negative at first":  {sluice.PerSecond(5).WithInitial(-2), "Initial", "-2 is negative: use at least 0"},
		"initial of window":  {window.WithInitial(5), "Initial", "is for TokenBucket only: leave it out, a fixed_window always starts unused"},
		"initial of meter":   {sluice.PerSecond(5).WithAlgorithm(sluice.LeakyBucket).WithInitial(5), "Initial", "is for TokenBucket only: leave it out, a leaky_bucket always starts unused"},
		"initial of queue":   {sluice.PerSecond(5).WithAlgorithm(sluice.LeakyQueue).WithInitial(0), "Initial", "is for TokenBucket only: leave it out, a leaky_queue always starts unused"},
		"initial in flight":  {sluice.Concurrent(5).WithInitial(1), "Initial", "is for TokenBucket only: leave it out, a concurrency always starts unused"},
		"initial of refills": {change(sluice.PerSecond(5).WithInitial(1), func(l *sluice.Limit) { l.Refill = sluice.RefillInterval }), "Initial", "a bucket with RefillInterval always starts full: leave one of them out"},

		"unknown algorithm": {sluice.PerSecond(1).WithAlgorithm(99), "Algorithm", "unknown algorithm(99): use TokenBucket, LeakyBucket, LeakyQueue, FixedWindow, SlidingWindowLog, SlidingWindowCounter or Concurrency"},
		"unknown refill":    {change(sluice.PerSecond(1), func(l *sluice.Limit) { l.Refill = 9 }), "Refill", "RefillInterval is for TokenBucket only"},
		"refill of queue":   {change(sluice.PerSecond(1).WithAlgorithm(sluice.LeakyQueue), func(l *sluice.Limit) { l.Refill = sluice.RefillInterval }), "Refill", "RefillInterval is for TokenBucket only"},

		"unknown align":   {window.WithAlign(9), "Align", "unknown alignment: use AlignEpoch, AlignFirstRequest or AlignCalendar"},
		"align of bucket": {sluice.PerSecond(1).WithAlign(sluice.AlignFirstRequest), "Align", "AlignFirstRequest is for FixedWindow and for TokenBucket with RefillInterval; a token_bucket has no windows to align"},
		"calendar bucket": {sluice.PerCalendar(1, sluice.CalendarDay, nil).WithAlgorithm(sluice.TokenBucket), "Align", "calendar windows differ in length, so only FixedWindow can be aligned to them"},

		"no calendar unit":     {window.WithAlign(sluice.AlignCalendar), "Calendar", "AlignCalendar needs CalendarDay, CalendarWeek, CalendarMonth or CalendarYear: use PerCalendar(10, CalendarDay, zone)"},
		"unknown unit":         {sluice.PerCalendar(10, 9, nil), "Calendar", "AlignCalendar needs CalendarDay, CalendarWeek, CalendarMonth or CalendarYear: use PerCalendar(10, CalendarDay, zone)"},
		"unit without align":   {change(window, func(l *sluice.Limit) { l.Calendar = sluice.CalendarDay }), "Calendar", "only with AlignCalendar: use PerCalendar(10, unit, zone)"},
		"zone without align":   {change(window, func(l *sluice.Limit) { l.Zone = berlin }), "Zone", "only with AlignCalendar: use PerCalendar(10, CalendarDay, zone)"},
		"window with calendar": {change(sluice.PerCalendar(10, sluice.CalendarDay, nil), func(l *sluice.Limit) { l.Window = time.Hour }), "Window", "is set by Calendar: leave it out"},

		"rounding of window":      {change(window, func(l *sluice.Limit) { l.Rounding = sluice.RoundNearest }), "Rounding", "is for SlidingWindowCounter only, RoundDown or RoundNearest"},
		"unknown rounding":        {change(counter, func(l *sluice.Limit) { l.Rounding = 9 }), "Rounding", "is for SlidingWindowCounter only, RoundDown or RoundNearest"},
		"sub-windows of window":   {change(window, func(l *sluice.Limit) { l.SubWindows = 6 }), "SubWindows", "are for SlidingWindowCounter only"},
		"negative sub-windows":    {change(counter, func(l *sluice.Limit) { l.SubWindows = -1 }), "SubWindows", "-1 is not between 1 and 60"},
		"many sub-windows":        {change(counter, func(l *sluice.Limit) { l.SubWindows = 61 }), "SubWindows", "61 is not between 1 and 60"},
		"uneven sub-windows":      {change(counter, func(l *sluice.Limit) { l.SubWindows = 7 }), "SubWindows", "7 does not divide a window of 1m0s into whole microseconds: use another number"},
		"sub-windows too short":   {change(counter, func(l *sluice.Limit) { l.Window, l.SubWindows = 10*time.Millisecond, 20 }), "SubWindows", "20 sub-windows of 10ms are shorter than 1 ms: use fewer"},
		"too many in flight":      {sluice.Concurrent(10_001), "Count", "at most 10000 can be in flight under one key: use a smaller count than 10001"},
		"nothing in flight":       {sluice.Concurrent(0), "Count", "is zero: use a count of at least 1, or WithAlgorithm(FixedWindow) to deny everything"},
		"permit TTL of a rate":    {sluice.PerMinute(5).WithPermitTTL(second), "Window", "WithPermitTTL is for Concurrency only: use Concurrent(5), or Per(5, window) for another window"},
		"long lease":              {sluice.Concurrent(1).WithPermitTTL(25 * time.Hour), "Window", "a TTL of 25h0m0s is not between 1ms and 24h0m0s: 30 s suits most"},
		"burst in flight":         {sluice.Concurrent(1).WithBurst(2), "Burst", "a concurrency has no burst: leave it out, or use TokenBucket"},
		"soft bucket":             {sluice.PerMinute(10).WithSoftExcess(2, 10*second), "SoftExcess", "soft limits are for FixedWindow; give a token bucket a larger Burst instead"},
		"soft without a time":     {window.WithSoftExcess(2, 0), "SoftExcess", "a soft limit needs both SoftExcess (how much more) and SoftPeriod (how long), such as WithSoftExcess(2, 10*time.Second)"},
		"soft without an amount":  {window.WithSoftExcess(0, second), "SoftExcess", "a soft limit needs both SoftExcess (how much more) and SoftPeriod (how long), such as WithSoftExcess(2, 10*time.Second)"},
		"soft by less":            {window.WithSoftExcess(-1, second), "SoftExcess", "a soft limit needs both SoftExcess (how much more) and SoftPeriod (how long), such as WithSoftExcess(2, 10*time.Second)"},
		"soft by too much":        {window.WithSoftExcess(1<<32, second), "SoftExcess", "4294967296 is more than a window can count"},
		"soft for a part of a µs": {window.WithSoftExcess(1, time.Nanosecond), "SoftPeriod", "1ns is not a whole number of microseconds"},
	} {
		all := faults(t, c.limit)
		if len(all) != 1 || all[0].Field != c.field || all[0].Msg != c.msg {
			t.Errorf("%s: want %s: %s", name, c.field, c.msg)
			for _, f := range all {
				t.Errorf("\tgot %s: %s", f.Field, f.Msg)
			}
			continue
		}
		if want := "sluice: limit: " + c.field + ": " + c.msg; all[0].Error() != want {
			t.Errorf("%s: %q, want %q", name, all[0].Error(), want)
		}
	}
}

func TestLimitReportsAllFaults(t *testing.T) {
	l := sluice.Limit{
		Count: -1, Burst: -2, Refill: 9, Align: 9, Rounding: sluice.RoundNearest, SubWindows: 3, SoftExcess: 1, SoftPeriod: time.Second,
	}
	_, err := l.Build()
	for _, field := range []string{"Count", "Burst", "Window", "Refill", "Align", "Rounding", "SubWindows", "SoftExcess"} {
		if err == nil || !strings.Contains(err.Error(), "sluice: limit: "+field+": ") {
			t.Errorf("%s is not among the faults:\n%v", field, err)
		}
	}
	// A rule adds its own errors.
	_, err = sluice.NewRule(sluice.Rule{Limit: sluice.PerSecond(0), OnFailure: 9})
	for _, want := range []string{"Name is empty", "OnFailure", "Count"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not among the faults:\n%v", want, err)
		}
	}
}

// Values at the bounds are valid, and work.
func TestLimitAccepts(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for name, l := range map[string]sluice.Limit{
		"slowest":         sluice.Per(1, 366*24*time.Hour),
		"fastest":         sluice.PerSecond(10_000_000),
		"shortest":        sluice.Per(1, time.Millisecond),
		"one at first":    sluice.PerSecond(5).WithInitial(1),
		"full at first":   sluice.PerSecond(5).WithInitial(5),
		"largest burst":   sluice.Per(1, year).WithBurst(100),
		"largest window":  sluice.PerSecond(math.MaxUint32).WithAlgorithm(sluice.FixedWindow),
		"largest counter": sluice.PerSecond(math.MaxUint32).WithAlgorithm(sluice.SlidingWindowCounter),
		"largest log":     sluice.PerDay(10_000).WithAlgorithm(sluice.SlidingWindowLog),
		"deny everything": sluice.PerDay(0).WithAlgorithm(sluice.FixedWindow),
		"most slices":     {Count: 5, Window: 60 * time.Millisecond, Algorithm: sluice.SlidingWindowCounter, SubWindows: 60},
		"one slice":       {Count: 5, Window: time.Second, Algorithm: sluice.SlidingWindowCounter, SubWindows: 1},
		"interval":        {Count: 5, Window: time.Second, Refill: sluice.RefillInterval, Align: sluice.AlignFirstRequest},
		"softest":         sluice.PerDay(math.MaxUint32).WithAlgorithm(sluice.FixedWindow).WithSoftExcess(math.MaxUint32, 100*year),
		"calendar":        sluice.PerCalendar(5, sluice.CalendarMonth, nil),
	} {
		built, err := l.Build()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		p := private.ParamsOf(built)
		words := make([]uint64, p.Words(step.State{}, nil, 1e15, false))
		_, a := p.Take(step.State{}, words, 1e15, step.Request{Cost: 1})
		if a.Allowed != (l.Count > 0) || a.Never != (l.Count == 0) {
			t.Errorf("%s: the first take: %+v", name, a)
		}
		// Building a built limit changes nothing.
		if again, err := built.Build(); err != nil || again.String() != built.String() {
			t.Errorf("%s: built twice: %v, %v", name, again, err)
		}
	}
}
