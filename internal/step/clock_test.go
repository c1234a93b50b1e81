package step_test

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluiceproject/sluice/internal/step"
)

// drawUsed draws a key with some usage, and the time.
func drawUsed(t *rapid.T) (*key, int64) {
	k := drawKey(t)
	now := int64(epoch)
	for range rapid.IntRange(0, 25).Draw(t, "steps") {
		now += drawPause(t, k.p)
		k.take(now, drawRequest(t, k.p))
	}
	return k, now + drawPause(t, k.p)
}

func drawRequest(t *rapid.T, p *step.Params) step.Request {
	r := step.Request{Cost: drawCost(t, p), Charge: rapid.IntRange(0, 3).Draw(t, "charge") == 0}
	if rapid.IntRange(0, 3).Draw(t, "partly") == 0 {
		r.Min = rapid.Int64Range(1, r.Cost).Draw(t, "min")
	}
	if rapid.IntRange(0, 3).Draw(t, "patient") == 0 {
		r.MaxDelay = rapid.Int64Range(1, 2*p.Length).Draw(t, "patience")
	}
	return r
}

// I13, one decision: a caller whose clock is behind is granted nothing that a caller with the right time would not be.
func TestI13StaleDecision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, now := drawUsed(t)
		behind := now - rapid.OneOf(rapid.Int64Range(1, 3), rapid.Int64Range(1, 3*k.p.Length), rapid.Just(int64(step.Year))).Draw(t, "behind")
		r := drawRequest(t, k.p)
		r.MaxDelay, r.Charge = 0, false
		if k.p.Queue || k.p.SoftExcess > 0 {
			// A clock that is behind sees a longer queue, and gets a longer delay. A grace period that has ended for
			// others has not for it, as long as some of the excess is left.
			return
		}
		onTime, stale := k.clone().take(now, r), k.clone().take(behind, r)
		if stale.Granted > onTime.Granted || stale.Allowed && !onTime.Allowed {
			t.Fatalf("%+v: %d µs behind got %+v\non time %+v", r, now-behind, stale, onTime)
		}
		if a, b := k.peek(behind), k.peek(now); a > b {
			t.Fatalf("%d µs behind %d remain, on time %d", now-behind, a, b)
		}
	})
}

// I13, a whole run: jumping clocks never get more single units than a clock that only goes forward.
func TestI13ShuffledClocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawKey(t).p
		if p.Align == step.FirstHit {
			return // different denials move the windows: see TestI13Bounds
		}
		p.SoftExcess = 0 // see above
		shuffled, monotone := newKey(*p), newKey(*p)
		now, latest := int64(epoch), int64(0)
		var got, most int64
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			if rapid.IntRange(0, 2).Draw(t, "back") == 0 {
				now -= drawPause(t, p)
			} else {
				now += drawPause(t, p)
			}
			if rapid.IntRange(0, 9).Draw(t, "look") == 0 { // a peek, which changes nothing
				shuffled.peek(now)
				shuffled.take(now, step.Request{Cost: 1, DryRun: true})
				continue
			}
			latest = max(latest, now)
			if shuffled.allow(now, 1) {
				got++
			}
			if monotone.allow(latest, 1) {
				most++
			}
			if got > most {
				t.Fatalf("%v: shuffled clocks got %d, a monotone one %d", shuffled, got, most)
			}
		}
	})
}

// I13, the invariants: with any costs, the grants for jumping clocks obey the bound of the algorithm, at the times that
// a clock that only goes forward would have shown.
func TestI13Bounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := drawKey(t, "bucket", "interval", "interval/first", "window", "window/first", "window/soft", "log")
		now, latest := int64(epoch), int64(0)
		var had []spent
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			if rapid.IntRange(0, 2).Draw(t, "back") == 0 {
				now -= drawPause(t, k.p)
			} else {
				now += drawPause(t, k.p)
			}
			a := k.take(now, step.Request{Cost: drawCost(t, k.p)})
			if !a.Never { // does not depend on the time
				latest = max(latest, now)
			}
			if a.Allowed {
				had = append(had, spent{take: take{latest, a.Granted}, parts: a.Granted * k.p.Length})
				if k.p.Kind == step.Log { // its At is the time from which a take counts
					had[len(had)-1].at = a.At
				}
			}
		}
		switch k.p.Kind {
		case step.Log:
			eachInterval(had, func(length, sum int64) {
				if length < k.p.Length && sum > k.p.Count {
					t.Fatalf("%d within %d µs", sum, length)
				}
			})
		case step.Bucket:
			checkRate(t, k.p, had, 0)
		case step.Interval:
			checkRefills(t, k.p, had)
		default:
			most := k.p.Count + k.p.SoftExcess
			eachInterval(had, func(length, sum int64) {
				if sum > most*((length+k.p.Length-1)/k.p.Length+1) {
					t.Fatalf("%d within %d µs", sum, length)
				}
			})
		}
	})
}

// I14: a clock that jumps forward once grants at most one additional limit.
func TestI14ForwardStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawKey(t).p
		if p.Align != step.Epoch {
			return // windows are placed differently after a jump, and are tested in TestI2Window
		}
		steady, jumping := newKey(*p), newKey(*p)
		jump := rapid.Int64Range(1, 5).Draw(t, "windows") * p.Length
		steps := rapid.IntRange(1, 120).Draw(t, "steps")
		when := rapid.IntRange(0, steps-1).Draw(t, "when")
		now, ahead := int64(epoch), int64(0)
		var fewer, more int64
		for i := range steps {
			now += drawPause(t, p) / 4
			if i == when {
				ahead = jump
			}
			if steady.allow(now, 1) {
				fewer++
			}
			if jumping.allow(now+ahead, 1) {
				more++
			}
			if more > fewer+p.Limit() {
				t.Fatalf("%v: %d instead of %d", steady, more, fewer)
			}
		}
	})
}

// I15: after RetryAfter the same request is allowed, and 1 µs earlier it is not.
func TestI15RetryAfter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, now := drawUsed(t)
		r := drawRequest(t, k.p)
		a := k.take(now, r)
		if a.Allowed || a.Never {
			if a.RetryAfter != 0 {
				t.Fatalf("%+v with a RetryAfter", a)
			}
			return
		}
		if a.RetryAfter <= 0 {
			t.Fatalf("%+v without a RetryAfter", a)
		}
		r.Charge = false
		if then := k.clone().take(now+a.RetryAfter, r); !then.Allowed {
			t.Fatalf("%v: %+v\nat %d got %+v\nand %d later %+v", k, r, now, a, a.RetryAfter, then)
		}
		if then := k.clone().take(now+a.RetryAfter-1, r); then.Allowed {
			t.Fatalf("%v: %+v\nat %d got %+v\nbut %d later %+v", k, r, now, a, a.RetryAfter-1, then)
		}
	})
}

func TestI15Never(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, now := drawUsed(t)
		most := k.p.Limit()
		cost := rapid.Int64Range(max(1, most-2), most+2).Draw(t, "cost")
		if a := k.take(now, step.Request{Cost: cost}); a.Never != (cost > most) || a.Never && a.Allowed {
			t.Fatalf("%v: %d of at most %d: %+v", k, cost, most, a)
		}
		// With a Min a part of it is granted.
		least := rapid.Int64Range(1, cost).Draw(t, "min")
		if a := k.take(now, step.Request{Cost: cost, Min: least}); a.Never != (least > most) {
			t.Fatalf("%v: %d to %d of at most %d: %+v", k, least, cost, most, a)
		}
	})
}

// I16: the remaining quota is between 0 and the limit, and a take reduces it by its cost.
func TestI16Remaining(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, now := drawUsed(t)
		before := k.peek(now)
		if before < 0 || before > k.p.Limit() {
			t.Fatalf("%d of %d remain", before, k.p.Limit())
		}
		r := drawRequest(t, k.p)
		a := k.take(now, r)
		if a.Remaining != k.peek(now) {
			t.Fatalf("%d remain, the answer was %+v", k.peek(now), a)
		}
		if a.Allowed && (a.Granted > r.Cost || a.Granted < max(1, r.Min) || r.Min == 0 && a.Granted != r.Cost) {
			t.Fatalf("%+v granted %d", r, a.Granted)
		}
		if a.Allowed && a.Remaining != max(0, before-a.Granted) {
			t.Fatalf("%d less %d leaves %d", before, a.Granted, a.Remaining)
		}
		if !a.Allowed && a.Granted != 0 {
			t.Fatalf("denied and granted %d", a.Granted)
		}
		if !a.Allowed && !r.Charge && a.Remaining != before {
			t.Fatalf("denied, and %d became %d", before, a.Remaining)
		}
	})
}

// I16: a peek changes nothing, with any clock.
func TestI16PeekChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, now := drawUsed(t)
		when := now + rapid.Int64Range(-3*k.p.Length, 3*k.p.Length).Draw(t, "when")
		k.room(when, false) // as a store does
		before := k.clone()
		k.take(when, step.Request{})
		k.take(when, step.Request{Cost: drawCost(t, k.p), DryRun: true, Charge: true})
		if k.state != before.state || !slices.Equal(k.words, before.words) {
			t.Fatalf("%v: %+v %x became %+v %x", k, before.state, before.words, k.state, k.words)
		}
	})
}

// I16: a denial changes nothing either, unless it is charged.
func TestI16RefusalChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, now := drawUsed(t)
		r := drawRequest(t, k.p)
		r.Charge = false
		k.room(now, false)
		k.take(now, step.Request{Begin: true}) // the first denial creates the bucket, too
		before := k.clone()
		if a := k.take(now, r); !a.Allowed && (k.state != before.state || !slices.Equal(k.words, before.words)) {
			t.Fatalf("%v: %+v %x became %+v %x", k, before.state, before.words, k.state, k.words)
		}
	})
}

// From ExpiresAt on, a state is equal to none, so that stores can delete it.
func TestExpiredMeansForgotten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, now := drawUsed(t)
		start := max(now, k.state.ExpiresAt+rapid.Int64Range(0, 2).Draw(t, "later"))
		forgotten := newKey(*k.p)
		if rapid.Bool().Draw(t, "reset") { // as a store does for an operator, without clearing the words
			start = now
			k.state = step.State{}
		}
		at := start - rapid.Int64Range(0, 2*k.p.Length).Draw(t, "ago")
		for range rapid.IntRange(1, 10).Draw(t, "more") {
			var a, b step.Answer
			if rapid.IntRange(0, 3).Draw(t, "what") == 0 {
				delta := rapid.Int64Range(-k.p.Limit(), k.p.Limit()).Draw(t, "delta")
				a, b = k.adjust(start, at, delta), forgotten.adjust(start, at, delta)
			} else {
				r := drawRequest(t, k.p)
				a, b = k.take(start, r), forgotten.take(start, r)
			}
			if a != b {
				t.Fatalf("%v: stored %+v\ndeleted %+v", k, a, b)
			}
			start += drawPause(t, k.p)
		}
	})
}

// I23: no cost, however large or often charged, overflows a counter.
func TestI23Saturates(t *testing.T) {
	limits := kinds(step.MaxWindowCount, step.Year, 1<<38)
	delete(limits, "bucket/initial") // its initial level is less than the limit
	limits["bucket/fast"] = step.Params{Kind: step.Bucket, Count: 10_000_000, Length: second, Burst: 1 << 50}
	limits["window/soft"] = step.Params{Kind: step.Window, Count: step.MaxWindowCount, Length: step.Year, SoftExcess: step.MaxWindowCount, SoftPeriod: step.Year}
	names := slices.Sorted(maps.Keys(limits))
	rapid.Check(t, func(t *rapid.T) {
		k := newKey(limits[rapid.SampledFrom(names).Draw(t, "kind")])
		limit := k.p.Limit()
		now := int64(epoch)
		if !k.allow(now, limit) {
			t.Fatalf("%v: the limit itself does not fit", k)
		}
		huge := rapid.OneOf(rapid.Int64Range(1, 1<<50), rapid.Just(int64(1<<50)), rapid.Int64Range(limit, limit+2))
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			cost := huge.Draw(t, "cost")
			// Reserving ahead and the excess of a soft limit are granted, too, but never more than the limit at once.
			a := k.take(now, step.Request{Cost: cost, Charge: true})
			if a.Allowed && k.p.SoftExcess == 0 || a.Remaining != 0 || a.ResetAfter <= 0 || a.RetryAfter < 0 {
				t.Fatalf("%v: %d more: %+v", k, cost, a)
			}
			now += rapid.Int64Range(0, 1).Draw(t, "pause") // too short for any replenishment
			if k.p.Count/k.p.Length > 0 {
				now = epoch
			}
		}
		// A settlement may make the balance negative, and does not overflow either.
		for range rapid.IntRange(1, 40).Draw(t, "settled") {
			if a := k.adjust(now, epoch, huge.Draw(t, "delta")); a.Remaining != 0 || a.ResetAfter <= 0 || a.ResetAfter > 3*step.Horizon/2 {
				t.Fatalf("%v: settled to %+v", k, a)
			}
		}
		if a := k.adjust(now, epoch, -huge.Draw(t, "back")); a.Remaining < 0 || a.Remaining > limit || a.Granted > 0 {
			t.Fatalf("%v: gave back to %+v", k, a)
		}
	})
}
