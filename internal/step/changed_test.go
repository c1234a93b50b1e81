package step_test

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluiceproject/sluice/internal/step"
)

// A rule's numbers may change while its keys are in use. Buckets keep the time until they are full, windows and logs
// keep the count; and whatever was kept obeys the new limit from then on.

// unnoticed tells of the one change in 255 that the states do not show. The old window then ends when it would have.
func unnoticed(old, changed *step.Params) bool {
	return (old.Length != changed.Length || old.Kind == step.Bucket && old.Count != changed.Count) && old.Shape() == changed.Shape()
}

func TestChangedBucketKeepsTimeUntilFull(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) step.Params {
			return step.Params{
				Kind:   step.Bucket,
				Count:  rapid.Int64Range(1, 5000).Draw(t, name+" count"),
				Length: rapid.Int64Range(1000, 5000).Draw(t, name+" length"),
				Burst:  rapid.Int64Range(1, 5000).Draw(t, name+" burst"),
			}
		}
		old, changed := draw("old"), draw("changed")
		k, reference := newKey(old), newTokenBucket(&old).(*tokenBucket)
		now := int64(epoch)
		for range rapid.IntRange(1, 10).Draw(t, "steps") {
			now += rapid.Int64Range(0, 20).Draw(t, "pause")
			if cost := drawCost(t, k.p); k.allow(now, cost) {
				reference.spend(now, cost, 0)
			}
		}
		untilFull := div(sub(reference.size, reference.level(now)), reference.rate)
		rate := div(rat(changed.Count), rat(changed.Length))
		// A fraction of a microsecond, which the new limit may not be able to express, is not given away.
		most := max(0, floor(sub(rat(changed.Burst), mul(rate, untilFull))))
		fewest := max(0, floor(sub(rat(changed.Burst), mul(rate, rat(ceil(untilFull))))))
		if k = k.under(changed); unnoticed(newKey(old).p, k.p) {
			most += changed.Count/changed.Length + 1 // a microsecond at the most
		}
		a := k.take(now, step.Request{})
		if a.Remaining > most || a.Remaining < fewest {
			t.Fatalf("%d remain, want %d to %d", a.Remaining, fewest, most)
		}
		if a.ResetAfter != ceil(untilFull) {
			t.Fatalf("full after %d, want %d", a.ResetAfter, ceil(untilFull))
		}
		if k.take(now, step.Request{Cost: 1}); k.state.FreshAt < now+a.ResetAfter {
			t.Fatalf("a take made it full earlier, at %d", k.state.FreshAt)
		}
	})
}

func TestChangedIntervalKeepsTimeUntilFull(t *testing.T) {
	k := newKey(step.Params{Kind: step.Interval, Count: 10, Length: minute, Burst: 100})
	now := int64(epoch)
	k.allow(now, 95) // full at the end of the tenth interval
	full := k.take(now, step.Request{}).ResetAfter
	for _, changed := range []step.Params{
		{Kind: step.Interval, Count: 20, Length: minute, Burst: 100},
		{Kind: step.Interval, Count: 3, Length: minute, Burst: 20},
		{Kind: step.Interval, Count: 10, Length: hour, Burst: 100},
		{Kind: step.Interval, Count: 10, Length: second, Burst: 100},
	} {
		other := k.clone().under(changed)
		if a := other.take(now, step.Request{}); a.ResetAfter != full {
			t.Errorf("%v: full after %d, want %d", other, a.ResetAfter, full)
		}
		if a := other.take(now+full, step.Request{}); a.Remaining != changed.Burst {
			t.Errorf("%v: %d remain when it should be full", other, a.Remaining)
		}
	}
}

// windows are the kinds that keep a count.
var windows = []string{"window", "window/first", "window/soft", "counter", "counter/nearest", "slices", "slices/nearest", "log"}

func TestChangedWindowKeepsCount(t *testing.T) {
	for _, name := range windows {
		for _, c := range []struct{ from, to int64 }{{minute, hour}, {hour, minute}, {day, second}, {second, 30 * day}, {minute, minute}} {
			old, changed := kinds(100, c.from, 1)[name], kinds(150, c.to, 1)[name]
			now := int64(epoch)
			k := newKey(old)
			k.allow(now, 90)
			left := int64(60)
			if name == "window/soft" { // which may be exceeded by 1
				left = 61
			}
			dry := k.under(changed)
			dry.room(now, false)
			before := dry.clone()
			if got := dry.take(now, step.Request{Dry: true}).Remaining; got != left || dry.state != before.state || !slices.Equal(dry.words, before.words) {
				t.Errorf("%s %d to %d: %d remain, want %d; state %+v became %+v", name, c.from, c.to, got, left, before.state, dry.state)
			}
			k = dry
			a := k.take(now, step.Request{Cost: 61})
			if left == 60 && a.Allowed {
				t.Errorf("%s %d to %d: a fresh budget", name, c.from, c.to)
			}
			if !k.allow(now, 60) && left == 60 {
				t.Errorf("%s %d to %d: the rest of the budget is gone", name, c.from, c.to)
			}
			if a := k.take(now, step.Request{Cost: 1}); !a.Allowed && a.RetryAfter > 2*c.to {
				t.Errorf("%s %d to %d: locked for %d, longer than two windows", name, c.from, c.to, a.RetryAfter)
			}
		}
	}
}

// A limit that was lowered in length lets go as soon as it says, though nothing was admitted since: what it kept must
// not move along from window to window.
func TestChangedRetryAfter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits, others := drawLimits(t), drawLimits(t)
		name := rapid.SampledFrom(slices.Sorted(maps.Keys(limits))).Draw(t, "kind")
		k := newKey(limits[name])
		now := int64(epoch)
		for range rapid.IntRange(1, 15).Draw(t, "steps") {
			now += drawPause(t, k.p)
			k.take(now, step.Request{Cost: drawCost(t, k.p)})
		}
		old := k.p
		if k = k.under(others[name]); unnoticed(old, k.p) {
			return
		}
		now += drawPause(t, k.p)
		cost := rapid.Int64Range(1, k.p.Limit()).Draw(t, "cost")
		for range rapid.IntRange(1, 3).Draw(t, "refused") {
			a := k.take(now, step.Request{Cost: cost})
			if rapid.Bool().Draw(t, "peek") { // which is answered as a take of 1 and keeps its word too
				cost, a = 1, k.take(now, step.Request{})
			}
			if a.Allowed {
				return
			}
			if then := k.clone(); !then.allow(now+a.RetryAfter, cost) {
				t.Fatalf("%v: denied %d after %+v", k, cost, a)
			}
			if then := k.clone(); then.allow(now+a.RetryAfter-1, cost) {
				t.Fatalf("%v: allowed %d 1 µs before %+v", k, cost, a)
			}
			now += rapid.Int64Range(0, a.RetryAfter-1).Draw(t, "pause")
		}
	})
}

// However often a limit is changed, no aligned window of the present limit admits more than that limit.
func TestChangedBackAndForth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits, others := drawLimits(t), drawLimits(t)
		name := rapid.SampledFrom([]string{"window", "counter", "slices"}).Draw(t, "kind")
		k := newKey(limits[name])
		if unnoticed(k.p, newKey(others[name]).p) {
			return
		}
		now := int64(epoch)
		var had []spent
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.IntRange(0, 9).Draw(t, "change") == 0 {
				limits, others = others, limits
				k, had = k.under(limits[name]), nil
			}
			now += drawPause(t, k.p)
			if a := k.take(now, step.Request{Cost: drawCost(t, k.p)}); a.Allowed {
				had = append(had, spent{take: take{now, a.Granted}})
			}
		}
		checkAligned(t, had, k.p.Length, k.p.Count)
	})
}
