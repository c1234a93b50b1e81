package sluice_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
)

func TestParseLimit(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]sluice.Limit{
		"10/s":            sluice.PerSecond(10),
		"10/sec":          sluice.PerSecond(10),
		"10/second":       sluice.PerSecond(10),
		"10/seconds":      sluice.PerSecond(10),
		"300/3h":          sluice.Per(300, 3*time.Hour),
		"300/3hours":      sluice.Per(300, 3*time.Hour),
		"5/week":          sluice.PerWeek(5),
		"5/w":             sluice.PerWeek(5),
		"10k/min":         sluice.PerMinute(10_000),
		"10k/m":           sluice.PerMinute(10_000),
		"2M/day":          sluice.PerDay(2_000_000),
		"1/500ms":         sluice.Every(500 * time.Millisecond),
		"1/500 ms":        sluice.Every(500 * time.Millisecond),
		"1/millisecond":   sluice.Every(time.Millisecond),
		"10_000/s":        sluice.PerSecond(10_000),
		"1/month":         sluice.Per(1, 30*day),
		"3/2months":       sluice.Per(3, 60*day),
		"1/y":             sluice.Per(1, 365*day),
		"1/366d":          sluice.Per(1, 366*day),
		" 10 / 2 Minutes": sluice.Per(10, 2*time.Minute),
		"0/s":             sluice.PerSecond(0), // invalid when built
		"007/s":           sluice.PerSecond(7),

		"5 concurrent":           sluice.Concurrent(5),
		" 1k  concurrent ":       sluice.Concurrent(1000),
		"5 concurrent ttl 10s":   sluice.Concurrent(5).WithPermitTTL(10 * time.Second),
		"5 concurrent ttl 2min":  sluice.Concurrent(5).WithPermitTTL(2 * time.Minute),
		"5 concurrent ttl 500ms": sluice.Concurrent(5).WithPermitTTL(500 * time.Millisecond),
	} {
		got, err := sluice.ParseLimit(text)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestParseLimitErrors(t *testing.T) {
	const (
		hint  = `: write COUNT/UNIT, such as "10/s", "300/3h" or "5/week"`
		units = ` is not a unit (ms, s, m or min, h, d or day, w or week, month, y or year)`
	)
	for text, want := range map[string]string{
		"":                         `"": there is no slash`,
		"10":                       `"10": there is no slash`,
		"10 per second":            `"10 per second": there is no slash`,
		"/s":                       `"/s": "" is not a count`,
		"ten/s":                    `"ten/s": "ten" is not a count`,
		"-1/s":                     `"-1/s": "-1" is not a count`,
		"+1/s":                     `"+1/s": "+1" is not a count`,
		"1.5/s":                    `"1.5/s": "1.5" is not a count`,
		"1e3/s":                    `"1e3/s": "1e3" is not a count`,
		"k/s":                      `"k/s": "k" is not a count`,
		"10K/s":                    `"10K/s": "10K" is not a count`,
		"10m/s":                    `"10m/s": "10m" is not a count`,
		"_/s":                      `"_/s": "_" is not a count`,
		"99999999999999999/s":      ``, // parses, and is invalid when built
		"99999999999999999999/s":   `"99999999999999999999/s": "99999999999999999999" is not a count`,
		"9223372036854775807k/s":   `"9223372036854775807k/s": "9223372036854775807k" is not a count`,
		"10/":                      `"10/": ""` + units,
		"10/fortnight":             `"10/fortnight": "fortnight"` + units,
		"10/3":                     `"10/3": ""` + units,
		"10/s/s":                   `"10/s/s": "s/s"` + units,
		"10/-1s":                   `"10/-1s": "-1s"` + units,
		"10/1.5h":                  `"10/1.5h": ".5h"` + units,
		"10/h30m":                  `"10/h30m": "h30m"` + units,
		"10/0s":                    `"10/0s": 0 s is not between 1 ms and 366 days`,
		"10/400d":                  `"10/400d": 400 d is not between 1 ms and 366 days`,
		"10/2years":                ``, // parses, and is invalid when built
		"10/3years":                `"10/3years": 3 years is not between 1 ms and 366 days`,
		"10/99999999999999999999s": `"10/99999999999999999999s": "99999999999999999999" is not a number`,
	} {
		got, err := sluice.ParseLimit(text)
		if want == "" {
			if err != nil {
				t.Errorf("%q: %v", text, err)
			} else if _, err := got.Build(); err == nil {
				t.Errorf("%q was built", text)
			}
			continue
		}
		if want = "sluice: limit " + want + hint; err == nil || err.Error() != want {
			t.Errorf("%q\n got %v\nwant %s", text, err, want)
		}
		if got != (sluice.Limit{}) {
			t.Errorf("%q: %v and an error", text, got)
		}
	}
}

func TestLimitString(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	for _, c := range []struct {
		limit sluice.Limit
		want  string
	}{
		{sluice.PerSecond(10), "10/s"},
		{sluice.PerMinute(100).WithBurst(20), "100/min burst 20"},
		{sluice.PerMinute(100).WithBurst(20).WithInitial(10), "100/min burst 20 initial 10"},
		{sluice.PerMinute(100).WithInitial(0), "100/min initial 0"},
		{sluice.PerMinute(100).WithBurst(100), "100/min"},
		{sluice.Per(300, 3*time.Hour), "300/3h"},
		{sluice.Per(1, 90*time.Minute), "1/90min"},
		{sluice.Per(1, 14*24*time.Hour), "1/2week"},
		{sluice.Per(1, 1500*time.Microsecond), "1/1.5ms"},
		{sluice.PerDay(5).WithAlgorithm(sluice.SlidingWindowLog), "5/day sliding_window_log"},
		{sluice.PerMinute(10).WithAlgorithm(sluice.FixedWindow).WithSoftExcess(2, 10*time.Second), "10/min fixed_window soft +2 for 10s"},
		{sluice.PerCalendar(5, sluice.CalendarYear, nil), "5/calendar year fixed_window"},
		{sluice.PerCalendar(5, sluice.CalendarMonth, berlin), "5/calendar month in Europe/Berlin fixed_window"},
		{sluice.PerCalendar(5, sluice.CalendarDay, nil), "5/calendar day fixed_window"},
		{sluice.Concurrent(5), "5 concurrent"},
		{sluice.Concurrent(5).WithPermitTTL(time.Second), "5 concurrent ttl 1s"},
		{sluice.Concurrent(5).WithPermitTTL(90 * time.Minute), "5 concurrent ttl 90min"},
		{sluice.Limit{}, "0/0s"},
	} {
		if got := c.limit.String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// String of a parsed and built limit parses to the same limit.
func FuzzParseLimit(f *testing.F) {
	for _, s := range []string{
		"10/s", "300/3h", "5/week", "10k/min", "1/500ms", "10_000/s", "2M/day", "1/366d", "0/s", "1/8784h", "7/52weeks",
		"", "/", "10", "10/", "/s", "k/s", "9223372036854775807/s", "1/9223372036854775807ms", "1/s\x00", "5 concurrent", "5 concurrent ttl 90s", "½/s", "1/MS",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		parsed, err := sluice.ParseLimit(s)
		if err != nil {
			if parsed != (sluice.Limit{}) {
				t.Errorf("%q: %v and the error %v", s, parsed, err)
			}
			return
		}
		built, err := parsed.Build()
		if err != nil {
			return
		}
		again, err := sluice.ParseLimit(built.String())
		if err != nil || again.Count != parsed.Count || again.Window != parsed.Window {
			t.Errorf("%q is written %q, which reads %v, %v", s, built, again, err)
		}
	})
}

// The error lists all units that parse, short forms included.
func TestParseLimitNamesItsUnits(t *testing.T) {
	_, err := sluice.ParseLimit("5/fortnight")
	_, list, _ := strings.Cut(err.Error(), "(")
	list, _, _ = strings.Cut(list, ")")
	listed := strings.FieldsFunc(strings.ReplaceAll(list, " or ", ","), func(r rune) bool { return r == ',' || r == ' ' })
	for _, unit := range listed {
		if _, err := sluice.ParseLimit("5/" + unit); err != nil {
			t.Errorf("%s is listed, and not read: %v", unit, err)
		}
	}
	for _, unit := range []string{"ms", "s", "m", "min", "h", "d", "day", "w", "week", "month", "y", "year"} {
		if !slices.Contains(listed, unit) {
			t.Errorf("%s is read, and not listed: %s", unit, list)
		}
	}
}
