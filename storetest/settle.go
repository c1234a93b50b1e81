package storetest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
)

// settlings are reservations with their settlements. A step is a time in seconds, an operation, and the expected
// Remaining:
//
//	0 R a 5 → 5            at 0, reserve 5 as a: 5 remain
//	5 S a 10 → 5           at 5, settle a at 10
//	30 → 10                at 30, 10 remain
//	30 C 1 → 4             at 30, change the limit to limits[1]: 4 remain
//
// After or instead of Remaining, other values may be expected: denied, retry, reset, delay, granted, and ends, the time
// when a queue is empty.
var settlings = []struct {
	name  string
	limit sluice.Limit
	steps string
}{
	{"above_the_estimate", perSecond, `0 R a 5 → 5; 5 S a 10 → 5; 5 R b 5 → 0; 10 S b 10 → 0; 10 R c 5 → denied retry=5;
		15 R c 5 → 0; 20 S c 10 → 0; 30 → 10`},
	{"ten_in_lock_step", perSecond, `0 R a 1 → 9; 0 R b 1 → 8; 0 R c 1 → 7; 0 R d 1 → 6; 0 R e 1 → 5; 0 R f 1 → 4; 0 R g 1 → 3;
		0 R h 1 → 2; 0 R i 1 → 1; 0 R j 1 → 0; 10 S a 10 → reset=9; 10 S b 10 → reset=18; 10 S c 10 → reset=27; 10 S d 10 → reset=36;
		10 S e 10 → reset=45; 10 S f 10 → reset=54; 10 S g 10 → reset=63; 10 S h 10 → reset=72; 10 S i 10 → reset=81;
		10 S j 10 → reset=90; 90.999 R k 1 → denied; 91 R k 1 → 0`},
	{"below_the_estimate", perSecond, `0 R a 10 → 0; 3 S a 2 → 10 granted=-7`},
	{"cancelled_at_once", perSecond, `0 R a 10 → 0; 0 S a 0 → 10 granted=-10; 0 S a 0 → 10 granted=0`},
	{"two_in_flight", perSecond, `0 R a 6 → 4; 2 R b 6 → 0; 4 S a 1 → 6 granted=-4; 5 S b 1 → 10`},
	{"the_second_first", perSecond, `0 R a 6 → 4; 1 R b 5 → 0; 3 S b 1 → 6; 4 S a 2 → 10`},
	{"full_in_between", perSecond, `0 R a 5 → 5; 6 R b 5 → 5; 7 S a 0 → 6 granted=0; 8 S b 0 → 10`},
	{"others_keep_it_from_expiring", perSecond, `0 R a 4 → 6; 0 R b 6 → 0; 4 R c 4 → 0; 8 S a 0 → 8; 8 S b 6 → 8; 9 S c 4 → 9`},
	{"beyond_the_cap", perSecond, `0 R a 1 → 9; 0 S a 1000000 → 0 reset=3700 granted=3699; 3690 → 0; 3691 → 1`},
	{"six_of_10000", sluice.PerMinute(60_000), `0 R a 10000 → 50000; 0 R b 10000 → 40000; 0 R c 10000 → 30000; 0 R d 10000 → 20000;
		0 R e 10000 → 10000; 0 R f 10000 → 0; 10 S a 1000 → 19000; 10 S b 1000 → 28000; 10 S c 1000 → 37000; 10 S d 1000 → 46000;
		10 S e 1000 → 55000; 10 S f 1000 → 60000`},
	{"plain_takes_between", perSecond, `0 R a 4 → 6; 1 T 3 → 4; 4 S a 1 → 10; 5 R b 6 → 4; 6 T 5 → 0; 7 S b 0 → 6; 17 → 10`},
	{"interval", everyTen, `1 R a 8 → 0; 11 R b 4 → 0; 12 S a 1 → 4; 13 S b 6 → 2; 20 → 6`},
	{"interval_above_the_estimate", everyTen, `1 R a 4 → 4; 15 S a 10 → 2; 20 → 6; 30 → 8`},
	{"queue", perSecond.WithAlgorithm(sluice.LeakyQueue), `0 R a 4 → ends=4 delay=0; 0 R b 5 → ends=9 delay=4; 1 S b 2 → ends=6;
		2 S a 1 → ends=6; 3 R c 1 → ends=7 delay=3`},
	{"queue_one_behind", perSecond.WithAlgorithm(sluice.LeakyQueue), `0 R a 5 → ends=5; 1 R b 2 → ends=7 delay=4; 2 S a 1 → ends=7; 3 S b 0 → ends=5`},
	{"queue_above_the_estimate", perSecond.WithAlgorithm(sluice.LeakyQueue), `0 R a 2 → ends=2; 6 S a 5 → ends=9; 6 R b 1 → ends=10 delay=3`},
	{"window", perMinute(sluice.FixedWindow), `50 R a 4 → 6; 50 R b 4 → 2; 55 S a 1 → 5; 65 S b 1 → 10`},
	{"window_that_moved", perMinute(sluice.FixedWindow), `59 R a 1 → 9; 61 S a 8 → 3; 61 R b 4 → denied; 61 R c 3 → 0`},
	{"counter", perMinute(sluice.SlidingWindowCounter), `30 R a 8 → 2; 31 R b 2 → 0; 90 → 5; 90 S a 2 → 8 reset=30; 90 S b 5 → 5; 150 → 9`},
	{"counter_two_windows_later", perMinute(sluice.SlidingWindowCounter), `30 R a 5 → 5; 30 R b 5 → 0; 125 S a 0 → 10; 125 S b 9 → 6`},
	{"sub_windows", subWindows, `5 R a 6 → 4; 25 R b 4 → 0; 40 S a 2 → 4 reset=50; 45 S b 6 → 2; 65 → 3; 75 → 4; 105 → 9`},
	{"log", perMinute(sluice.SlidingWindowLog), `0 R a 6 → 4; 10 R b 3 → 1; 20 S a 1 → 6; 30 S b 5 → 4; 60 → 5; 70 → 8; 90 → 10`},
	{"concurrency", sluice.Concurrent(3), `0 R a 2 → 1; 0 S a 1 → 3 granted=-2; 0 S a 1 → 3 granted=0; 0 R b 1 → 2; 0 S b 5 → 3`},
}

var (
	perSecond  = sluice.PerSecond(1).WithBurst(10)
	everyTen   = sluice.Limit{Count: 4, Window: 10 * time.Second, Burst: 8, Refill: sluice.RefillInterval}
	subWindows = sluice.Limit{Count: 10, Window: time.Minute, Algorithm: sluice.SlidingWindowCounter, SubWindows: 6}
)

func perMinute(a sluice.Algorithm) sluice.Limit { return sluice.PerMinute(10).WithAlgorithm(a) }

func settleChecks() []check {
	all := []check{
		{"Settles/200_rounds", twoHundredRounds, need{clock: true}},
		{"Settles/40_in_32_marks", fortyInFlight, need{clock: true}},
		{"Settles/forgets_marks", forgetsMarks, need{clock: true}},
	}
	for _, s := range settlings {
		all = append(all, check{"Settles/" + s.name, func(o *opener) error {
			return newSettler(o, s.limit).play(s.steps)
		}, need{clock: true}})
	}
	return all
}

// settler executes the steps of a settling.
type settler struct {
	*probe
	rule   *sluice.Rule
	limits []sluice.Limit
	out    map[string]sluice.Take // by name
}

func newSettler(o *opener, limits ...sluice.Limit) *settler {
	return &settler{probe: o.probe(), rule: newRule("settles", limits[0]), limits: limits, out: map[string]sluice.Take{}}
}

func (s *settler) play(steps string) error {
	for step := range strings.SplitSeq(steps, ";") {
		if err := s.step(strings.TrimSpace(step)); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
	}
	return nil
}

func (s *settler) step(step string) error {
	what, expected, ok := strings.Cut(step, " → ")
	f := strings.Fields(what)
	if !ok || len(f) == 0 {
		return errors.New("not a step")
	}
	now, err := time.ParseDuration(f[0] + "s")
	if err != nil {
		return err
	}
	s.at(now)
	d, err := s.happens(f[1:])
	if err = errors.Join(err, s.fault()); err != nil {
		return err
	}
	for _, e := range strings.Fields(expected) {
		if err := s.expected(&d, now, e); err != nil {
			return fmt.Errorf("%w\n got %s", err, describe(&d))
		}
	}
	return nil
}

// happens executes a step and returns the decision.
func (s *settler) happens(f []string) (sluice.Decision, error) {
	if len(f) == 0 {
		return s.peek(s.rule, "k"), nil
	}
	n, err := strconv.ParseInt(f[len(f)-1], 10, 64)
	if err != nil {
		return sluice.Decision{}, err
	}
	switch f[0] {
	case "C":
		s.rule = newRule("settles", s.limits[n])
		return s.peek(s.rule, "k"), nil
	case "R":
		return s.reserve(f[1], n), nil
	case "S":
		return s.settle(f[1], n), nil
	}
	return s.take(s.rule, "k", n), nil
}

func (s *settler) reserve(name string, n int64) sluice.Decision {
	d := s.apply(sluice.Take{Rule: s.rule, Key: "k", Cost: n, Settles: true})[0]
	if d.Allowed {
		s.out[name] = sluice.Take{Rule: s.rule, Key: "k", Receipt: d.Receipt, Charged: n, ChargedOf: d.Limit, Settles: true}
	}
	return d
}

func (s *settler) settle(name string, actual int64) sluice.Decision {
	t := s.out[name]
	t.Rule = s.rule
	t.Cost = actual - t.Charged
	return s.apply(t)[0]
}

// expected compares one value with the decision.
func (s *settler) expected(d *sluice.Decision, now time.Duration, e string) error {
	what, value, ok := strings.Cut(e, "=")
	if !ok {
		what, value = "remaining", e
	}
	if e == "denied" {
		if d.Allowed {
			return errors.New("allowed, want denied")
		}
		return nil
	}
	want, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return err
	}
	got := d.Remaining
	switch what {
	case "granted":
		got = d.Granted
	case "retry":
		got = int64(d.RetryAfter / time.Second)
	case "reset":
		got = int64(d.ResetAfter / time.Second)
	case "delay":
		got = int64(d.Delay / time.Second)
	case "ends":
		got = int64((now + d.ResetAfter) / time.Second)
	}
	if got != want {
		return fmt.Errorf("%s %d, want %d", what, got, want)
	}
	return nil
}

// twoHundredRounds checks one caller that reserves 5 as soon as possible and settles at 10 five seconds later, 200
// times: it must use exactly the refill.
func twoHundredRounds(o *opener) error {
	s := newSettler(o, perSecond)
	var now time.Duration
	for range 200 {
		s.at(now)
		d := s.reserve("a", 5)
		if !d.Allowed {
			now += d.RetryAfter
			s.at(now)
			d = s.reserve("a", 5)
		}
		if !d.Allowed {
			return fmt.Errorf("denied at %v: %s", now, describe(&d))
		}
		now += 5 * time.Second
		s.at(now)
		s.settle("a", 10)
	}
	s.expect("seconds for 200 rounds of 10 at 1 per second", int64(now/time.Second), 1990)
	return s.fault()
}

// fortyInFlight checks more open reservations than there are marks: neighbours share a mark, and a little less is
// refunded.
func fortyInFlight(o *opener) error {
	s := newSettler(o, sluice.PerSecond(1).WithBurst(100))
	var d sluice.Decision
	for i := range 40 {
		s.at(time.Duration(i) * time.Second / 10)
		d = s.reserve(fmt.Sprint(i), 2)
	}
	s.expect("backlog of 40 reservations in ms", d.ResetAfter.Milliseconds(), 76_100)
	for i := range 40 {
		s.at(4*time.Second + time.Duration(i)*time.Second/10)
		d = s.settle(fmt.Sprint(i), 1)
	}
	s.expect("backlog after all settlements in ms", d.ResetAfter.Milliseconds(), 32_200)
	return s.fault()
}

// forgetsMarks checks that a reservation from before a reset, or older than two hours, is not refunded usage of others,
// and is charged an additional cost.
func forgetsMarks(o *opener) error {
	s := newSettler(o, sluice.PerHour(10).WithBurst(100))
	if !o.caps.NoAdmin {
		s.reserve("a", 50)
		s.reset(s.rule, "k")
		s.take(s.rule, "k", 40)
		s.expect("refunded after a reset", s.settle("a", 0).Granted, 0)
		s.expect("additionally charged after a reset", s.settle("a", 60).Granted, 10)
		s.reset(s.rule, "k")
	}
	s.reserve("b", 50)
	s.at(2 * time.Hour)
	s.expect("refunded after two hours", s.settle("b", 25).Granted, -25)
	s.reserve("c", 50)
	s.at(4*time.Hour + time.Second)
	s.expect("refunded after more than two hours", s.settle("c", 0).Granted, 0)
	s.expect("additionally charged after more than two hours", s.settle("c", 60).Granted, 10)
	return s.fault()
}
