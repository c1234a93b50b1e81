package describe

import (
	"maps"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

func TestLimitInWords(t *testing.T) {
	fixed := func(l sluice.Limit) sluice.Limit { return l.WithAlgorithm(sluice.FixedWindow) }
	for want, limit := range map[string]sluice.Limit{
		"2 per second, bursts of 2":                                sluice.PerSecond(2),
		"10,000 per second, bursts of 20,000":                      sluice.PerSecond(10_000).WithBurst(20_000),
		"100 per minute, bursts of 100, 10 at the first request":   sluice.PerMinute(100).WithInitial(10),
		"100 per minute, bursts of 100, none at the first request": sluice.PerMinute(100).WithInitial(0),
		"100 per minute, bursts of 100":                            sluice.PerMinute(100).WithInitial(100),
		"300 per 3 hours, bursts of 300":                           sluice.Per(300, 3*time.Hour),
		"5 per week":                                               fixed(sluice.PerWeek(5)),
		"5 per day from the first request on":                      fixed(sluice.PerDay(5)).WithAlign(sluice.AlignFirstRequest),
		"2 in any minute":                                          sluice.PerMinute(2).WithAlgorithm(sluice.SlidingWindowLog),
		"7 in any 90 seconds":                                      sluice.Per(7, 90*time.Second).WithAlgorithm(sluice.SlidingWindowCounter),
		"1 per second, up to 3 wait for their turn":                sluice.PerSecond(1).WithBurst(3).WithAlgorithm(sluice.LeakyQueue),
		"10 per minute, for up to 10 seconds 2 more":               fixed(sluice.PerMinute(10)).WithSoftExcess(2, 10*time.Second),
		"1,000 per calendar month (UTC)":                           sluice.PerCalendar(1000, sluice.CalendarMonth, nil),
		"4 per minute, given all at once, at most 4 saved up":      {Count: 4, Window: time.Minute, Refill: sluice.RefillInterval},
		"1 per 1.5ms, bursts of 1":                                 sluice.Every(1500 * time.Microsecond),
		"1,234,567 per 366 days, bursts of 1,234,567":              sluice.Per(1_234_567, 366*24*time.Hour),
	} {
		if got := limitText(limit); got != want {
			t.Errorf("%v: %q, want %q", limit, got, want)
		}
	}
}

// Every header of the examples is explained: the middleware makes the one, people write the other.
func TestEveryHeaderIsExplained(t *testing.T) {
	d := NewPage(setOf(t, `
rules:
  - {name: plain, match: {path: /plain}, limit: [10/s, 100/min], on_failure: closed}
  - {name: later, match: {path: /later}, limit: 10/s, on_limit: queue}
  - {name: slow, match: {path: /slow}, limit: {rate: 10/s, burst: 3}, on_limit: delay}
`), "Limits")
	explained := map[string]bool{"Content-Type": true, "Cache-Control": true}
	for _, h := range d.Headers {
		explained[h.Name] = true
	}
	sent := make(map[string]bool)
	for _, e := range d.Examples {
		for _, h := range e.Headers {
			sent[h.Name] = true
		}
	}
	if len(d.Examples) != 4 || !maps.Equal(sent, explained) {
		t.Errorf("%d examples; sent are %v, explained are %v", len(d.Examples), sent, explained)
	}
}

func setOf(t *testing.T, text string) *rules.Set {
	t.Helper()
	cfg, err := rulefile.Parse(rulefile.Options{}, rulefile.File{Name: "rules.yaml", Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return set
}
