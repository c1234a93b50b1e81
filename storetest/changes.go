package storetest

import (
	"fmt"
	"time"

	"github.com/sluiceproject/sluice"
)

// changes are rules whose limits change while they are in use, in the format of settlings.
var changes = []struct {
	name   string
	limits []sluice.Limit
	steps  string
}{
	{"minute_to_day", of(sluice.PerMinute(10), sluice.PerDay(10)), `0 R a 10 → 0; 0 C 1 → 0; 8639 → 0; 8640 → 1`},
	{"day_to_minute", of(sluice.PerDay(10), sluice.PerMinute(10)), `0 R a 10 → 0; 0 C 1 → 0 reset=60; 6 → 1; 60 → 10 reset=0`},
	{"month_to_second", of(sluice.Per(5, 30*24*time.Hour), sluice.PerSecond(5)), `0 R a 5 → 0; 0 C 1 → 0; 1 → 5 reset=0`},
	{"minute_to_day_plain", of(sluice.PerMinute(10), sluice.PerDay(10)), `0 T 10 → 0; 0 C 1 → 0; 0 T 1 → denied; 8640 T 1 → 0`},
	{"ten_times_as_many", of(sluice.PerMinute(10), sluice.PerMinute(100)), `0 R a 5 → 5; 0 C 1 → 50`},
	{"a_tenth", of(sluice.PerMinute(100), sluice.PerMinute(10)), `0 R a 55 → 45; 0 C 1 → 4 reset=33`},
	{"larger_and_back", of(sluice.PerMinute(10), sluice.PerMinute(10).WithBurst(20)), `0 R a 4 → 6; 0 C 1 → 12; 0 C 0 → 6`},
	{"smaller", of(sluice.PerMinute(10).WithBurst(20), sluice.PerMinute(10).WithBurst(5)), `0 R a 20 → 0; 0 C 1 → 0; 6 → 1; 30 → 5 reset=0`},
	// In 30 s 30/8,640 of a token has been refilled, so 9.9965 are refunded.
	{"cancelled_after_it", of(sluice.PerMinute(10), sluice.PerDay(10)), `0 R a 10 → 0; 0 C 1 → 0; 30 S a 0 → 10 granted=-10 reset=0`},
	{"settled_below_after_it", of(sluice.PerMinute(10), sluice.PerMinute(100)), `0 R a 6 → 4; 0 C 1 → 40; 0 S a 2 → 80`},
	{"settled_above_after_it", of(sluice.PerMinute(10), sluice.PerMinute(100)), `0 R a 6 → 4; 0 C 1 → 40; 0 S a 16 → 30`},
	{"settled_without_a_look", of(sluice.PerMinute(10), sluice.PerMinute(10).WithBurst(20)), `0 R a 4 → 6; 0 R b 4 → 2; 0 C 1 → 4; 0 S a 0 → 12; 0 C 0 → 6;
		0 S b 0 → 10`},
	{"negative_balance", of(sluice.PerMinute(10), sluice.PerDay(10)), `0 R a 5 → 5; 0 S a 15 → 0; 0 C 1 → 0; 43200 → 0; 51840 → 1`},
	{
		"interval", of(everyTen, sluice.Limit{Count: 4, Window: time.Minute, Burst: 4, Refill: sluice.RefillInterval}),
		`1 R a 3 → 5; 2 C 1 → 2; 60 → 4 reset=0`,
	},
	{
		"interval_settled_after_it", of(everyTen, sluice.Limit{Count: 4, Window: time.Minute, Burst: 16, Refill: sluice.RefillInterval}),
		`1 R a 6 → 2; 2 C 1 → 4; 3 S a 1 → 14`,
	},
	{
		"counter", of(perMinute(sluice.SlidingWindowCounter), sluice.PerDay(10).WithAlgorithm(sluice.SlidingWindowCounter)),
		`39599 R a 10 → 0; 39612 R b 2 → 0; 39612 C 1 → 0; 39612 R c 1 → denied`,
	},
	{
		"sub_windows", of(subWindows, sluice.Limit{Count: 10, Window: 24 * time.Hour, Algorithm: sluice.SlidingWindowCounter, SubWindows: 6}),
		`5 R a 6 → 4; 25 R b 3 → 1; 65 C 1 → 4`,
	},
	{"queue", of(perSecond.WithAlgorithm(sluice.LeakyQueue), perSecond.WithAlgorithm(sluice.LeakyQueue).WithBurst(20)), `0 R a 4 → ends=4; 0 C 1 → 12 ends=8`},
}

func of(limits ...sluice.Limit) []sluice.Limit { return limits }

func changeChecks() (all []check) {
	for _, c := range changes {
		all = append(all, check{"Changes/" + c.name, func(o *opener) error {
			return newSettler(o, c.limits...).play(c.steps)
		}, need{clock: true}})
	}
	return append(all, check{"Changes/plans", changesPlans, need{clock: true}})
}

// changesPlans checks that a caller whose limit differs in every call, for example because a plan was upgraded, has the
// same share of each limit left. All rounding together must be less than one unit of any limit.
func changesPlans(o *opener) error {
	p, rule := o.probe(), newRule("plans", sluice.PerMinute(10))
	plans := []*sluice.Limit{
		sluice.Must(sluice.PerMinute(10).Build()), sluice.Must(sluice.PerDay(1000).Build()),
		sluice.Must(sluice.PerSecond(50).Build()), sluice.Must(sluice.PerHour(7).WithBurst(70).Build()),
	}
	p.take(rule, "k", 5)
	for i := range 40 {
		l := plans[i%len(plans)]
		d := p.apply(sluice.Take{Rule: rule, Limit: l, Key: "k"})[0]
		if half := l.Burst / 2; d.Remaining > half || d.Remaining < half-1 {
			return fmt.Errorf("after %d changes of the limit Remaining is %d of %d, want half", i, d.Remaining, l.Burst)
		}
	}
	return p.fault()
}
