package sluice_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

// exampleDay is the date of the worked examples.
var exampleDay = time.Date(2026, time.March, 2, 0, 0, 0, 0, time.UTC)

// example is a limiter with a virtual clock.
type example struct {
	t       *testing.T
	limiter *sluice.Limiter
	now     time.Time
}

func newExample(t *testing.T, limit sluice.Limit) *example {
	t.Helper()
	e := &example{t: t, now: exampleDay}
	store, err := memstore.Open(memstore.Config{Now: func() time.Time { return e.now }})
	if err != nil {
		t.Fatal(err)
	}
	if e.limiter, err = sluice.New(store, "example", limit); err != nil {
		t.Fatal(err)
	}
	return e
}

// at sets the clock to a time of day, as in "1:00:05".
func (e *example) at(clock string) *example {
	e.t.Helper()
	of, err := time.Parse("15:04:05", clock)
	if err != nil {
		e.t.Fatal(err)
	}
	e.now = exampleDay.Add(of.Sub(of.Truncate(24 * time.Hour)))
	return e
}

func (e *example) take() sluice.Decision {
	e.t.Helper()
	d, err := e.limiter.Allow(context.Background(), "caller")
	if err != nil {
		e.t.Fatal(err)
	}
	return d
}

// admits checks that the next n requests are allowed and the one after them is denied.
func (e *example) admits(n int) {
	e.t.Helper()
	for i := range n {
		e.admitsOne(fmt.Sprintf("request %d", i+1))
	}
	e.refuses(fmt.Sprintf("request %d", n+1))
}

func (e *example) admitsOne(what string) sluice.Decision {
	e.t.Helper()
	d := e.take()
	if !d.Allowed {
		e.t.Errorf("at %s %s is denied for %v, want it allowed", e.now.Format(time.TimeOnly), what, d.RetryAfter)
	}
	return d
}

func (e *example) refuses(what string) sluice.Decision {
	e.t.Helper()
	d := e.take()
	if d.Allowed {
		e.t.Errorf("at %s %s is allowed, want it denied", e.now.Format(time.TimeOnly), what)
	}
	return d
}

func (e *example) leaves(remaining int64) {
	e.t.Helper()
	d, err := e.limiter.Peek(context.Background(), "caller")
	if err != nil || d.Remaining != remaining {
		e.t.Errorf("at %s %d remain, error %v, want %d", e.now.Format(time.TimeOnly), d.Remaining, err, remaining)
	}
}

// TestWorkedExamples checks the examples of the requirements with their exact numbers.
func TestWorkedExamples(t *testing.T) {
	t.Run("B1 token bucket", exampleB1)
	t.Run("B1 token bucket, continuous refill", exampleB1Continuous)
	t.Run("B1 token bucket with an initial level", exampleInitial)
	t.Run("B2 leaky bucket as a queue", exampleB2Queue)
	t.Run("B2 leaky bucket as a meter", exampleB2Meter)
	t.Run("B3 fixed window", exampleB3)
	t.Run("B4 sliding window log", exampleB4)
	t.Run("B5 sliding window counter", exampleB5)
	t.Run("B6 soft limit", exampleB6Soft)
	t.Run("B6 hard limit", exampleB6Hard)
}

func exampleB1(t *testing.T) {
	limit := sluice.PerMinute(4)
	limit.Refill = sluice.RefillInterval
	e := newExample(t, limit)
	e.at("1:00:00").leaves(4)
	for range 3 {
		e.admitsOne("one of three")
	}
	e.leaves(1)
	e.at("1:00:05").admitsOne("the fourth")
	e.leaves(0)
	if d := e.at("1:00:20").refuses("the fifth"); d.RetryAfter != 40*time.Second {
		t.Errorf("it may come again after %v, want 40s", d.RetryAfter)
	}
	e.at("1:01:00").leaves(4)
	e.at("1:30:00").leaves(4) // overflow is discarded
	e.admits(4)               // idle time refills the bucket
}

// exampleInitial is the example of docs/algorithms.md.
func exampleInitial(t *testing.T) {
	e := newExample(t, sluice.PerMinute(60).WithInitial(10))
	e.at("1:00:00")
	for i := range 10 {
		e.admitsOne(fmt.Sprintf("request %d", i+1))
	}
	if d := e.refuses("request 11"); d.RetryAfter != time.Second {
		t.Errorf("it may come again after %v, want 1s", d.RetryAfter)
	}
	e.at("1:00:30").leaves(30)
	e.at("1:01:00").leaves(60)
	e.now = e.now.Add(24*time.Hour - time.Microsecond)
	e.leaves(60)
	e.now = e.now.Add(time.Microsecond)
	e.admits(10)
}

func exampleB1Continuous(t *testing.T) {
	e := newExample(t, sluice.PerMinute(4))
	e.at("1:00:00").admits(4)
	e.at("1:00:14").refuses("a request before a token has come back")
	e.at("1:00:15").admits(1)
	e.at("1:01:15").leaves(4)
}

func exampleB2Queue(t *testing.T) {
	e := newExample(t, sluice.PerSecond(1).WithAlgorithm(sluice.LeakyQueue).WithBurst(3))
	e.at("1:00:00")
	for i := range 3 {
		if d := e.admitsOne("a request that finds a place"); d.Delay != time.Duration(i)*time.Second {
			t.Errorf("place %d: a delay of %v, want %ds", i+1, d.Delay, i)
		}
	}
	e.refuses("the fourth")
	e.refuses("the fifth")
}

func exampleB2Meter(t *testing.T) {
	e := newExample(t, sluice.PerSecond(1).WithAlgorithm(sluice.LeakyBucket).WithBurst(3))
	e.at("1:00:00").admits(3)
	e.at("1:00:01").admits(1)
}

func exampleB3(t *testing.T) {
	e := newExample(t, sluice.PerMinute(5).WithAlgorithm(sluice.FixedWindow))
	e.at("2:00:30").admits(5)
	e.at("2:00:59").refuses("a sixth in the minute")
	e.at("2:01:00").admits(5) // 10 between 2:00:30 and 2:01:30: the weakness of fixed windows at boundaries
	e.at("2:01:29").refuses("an eleventh")
}

func exampleB4(t *testing.T) {
	e := newExample(t, sluice.PerMinute(2).WithAlgorithm(sluice.SlidingWindowLog))
	e.at("1:00:01").admitsOne("the first")
	e.at("1:00:30").admitsOne("the second")
	e.at("1:00:50").refuses("the third")
	e.at("1:01:40").admitsOne("the fourth, the first two having expired")
}

func exampleB5(t *testing.T) {
	for rounding, admitted := range map[sluice.Rounding]bool{sluice.RoundDown: true, sluice.RoundNearest: false} {
		limit := sluice.PerMinute(7).WithAlgorithm(sluice.SlidingWindowCounter)
		limit.Rounding = rounding
		e := newExample(t, limit)
		e.at("1:00:30")
		for range 5 {
			e.admitsOne("one of five in the last minute")
		}
		e.at("1:01:18") // 30 % into this one
		for range 3 {
			e.admitsOne("one of three in this minute")
		}
		// 3 + 5 × 70 % = 6.5
		if d := e.take(); d.Allowed != admitted {
			t.Errorf("rounding %d: 6.5 before it, admitted is %v", rounding, d.Allowed)
		}
	}
}

func exampleB6Soft(t *testing.T) {
	e := newExample(t, sluice.PerMinute(10).WithAlgorithm(sluice.FixedWindow).WithSoftExcess(2, 10*time.Second))
	e.at("1:00:05")
	for range 10 {
		e.admitsOne("one of ten")
	}
	e.at("1:00:20").admitsOne("the 11th")
	e.at("1:00:30").admitsOne("the 12th, 10 s later")
	e.refuses("a 13th")
	e.at("1:01:00").admitsOne("the next window's first")

	e.at("2:00:05")
	for range 10 {
		e.admitsOne("one of ten")
	}
	e.at("2:00:20").admitsOne("the 11th")
	e.at("2:00:31").refuses("the 12th, more than 10 s later")
	e.at("2:01:00").admitsOne("the next window's first")
}

func exampleB6Hard(t *testing.T) {
	e := newExample(t, sluice.PerMinute(10).WithAlgorithm(sluice.FixedWindow))
	e.at("1:00:00").admits(10)
}

// TestWindowsFromASecondToAMonth checks the limits of requirement A10 with every algorithm.
func TestWindowsFromASecondToAMonth(t *testing.T) {
	limits := map[string]sluice.Limit{
		"2/s": sluice.PerSecond(2), "10/day": sluice.PerDay(10), "5/week": sluice.PerWeek(5),
		"300/3h": sluice.Per(300, 3*time.Hour), "300/min": sluice.PerMinute(300), "10000/s": sluice.PerSecond(10_000),
		"7/month": sluice.Per(7, 30*24*time.Hour),
	}
	algorithms := []sluice.Algorithm{
		sluice.TokenBucket, sluice.LeakyBucket, sluice.LeakyQueue, sluice.FixedWindow, sluice.SlidingWindowLog, sluice.SlidingWindowCounter,
	}
	for written, limit := range limits {
		for _, a := range algorithms {
			parsed, err := sluice.ParseLimit(written)
			if err != nil {
				t.Fatal(err)
			}
			if parsed != limit {
				t.Errorf("%s is read as %v, want %v", written, parsed, limit)
			}
			e := newExample(t, limit.WithAlgorithm(a))
			e.at("12:00:00")
			if d, err := e.limiter.AllowN(context.Background(), "caller", limit.Count-1); err != nil || !d.Allowed {
				t.Errorf("%v by %v: all except one are denied, error %v", limit, a, err)
			}
			e.admits(1)
			e.now = e.now.Add(2 * limit.Window)
			e.leaves(limit.Count)
		}
	}
}

// TestOneUserThreeBuckets: a limit per endpoint has a bucket per endpoint.
func TestOneUserThreeBuckets(t *testing.T) {
	store := memstore.New()
	for name, n := range map[string]int64{"posts": 1, "friends": 150, "likes": 5} {
		limiter, err := sluice.New(store, name, sluice.PerDay(n))
		if err != nil {
			t.Fatal(err)
		}
		var admitted int64
		for range 200 {
			d, err := limiter.Allow(context.Background(), "user")
			if err != nil {
				t.Fatal(err)
			}
			admitted += d.Granted
		}
		if admitted != n {
			t.Errorf("%s: %d a day admitted, want %d", name, admitted, n)
		}
	}
}
