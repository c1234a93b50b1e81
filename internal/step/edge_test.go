package step_test

import (
	"math"
	"testing"

	"github.com/sluiceproject/sluice/internal/step"
)

// A clock that is hours behind makes the grace period of a soft limit begin, and end, before the window does. The time
// has 31 bits and must not overflow into the window.
func TestSoftGraceOfStaleClock(t *testing.T) {
	k := newKey(step.Params{Kind: step.Window, Count: 10, Length: minute, SoftExcess: 5, SoftPeriod: second})
	now := int64(epoch) / minute * minute
	k.allow(now, 10)
	behind := now + minute - second - 1<<31 - 10*second // 2^31 µs and a little before the window's end
	if a := k.take(behind, step.Request{Cost: 1}); !a.Allowed {
		t.Fatalf("the 11th: %+v", a)
	}
	if a := k.take(now+45*second, step.Request{Cost: 1}); a.Allowed {
		t.Errorf("the 12th, hours after the grace of the clock that began it: %+v", a)
	}
}

// For a clock behind the window, the previous window counts as a whole, and not more than that.
func TestCounterOfStaleClock(t *testing.T) {
	for _, p := range []step.Params{
		{Kind: step.Counter, Count: 100, Length: minute},
		{Kind: step.Slices, Count: 100, Length: minute, Slices: 2},
	} {
		k := newKey(p)
		start := int64(epoch) / minute * minute
		k.allow(start, 20)
		k.allow(start+minute, 30)
		for _, behind := range []int64{1, second, hour, 100 * day} {
			if got := k.peek(start + minute - behind); got != 50 {
				t.Errorf("%v: %d µs behind the window: %d remain, want 50", k, behind, got)
			}
		}
		if a := k.take(start, step.Request{Cost: 51}); a.Allowed || a.RetryAfter <= minute {
			t.Errorf("%v: %+v", k, a)
		}
	}
}

// Repeated takes and refunds do not make the log longer than its limit.
func TestLogDoesNotOutgrowItsLimit(t *testing.T) {
	k := newKey(step.Params{Kind: step.Log, Count: 3, Length: day})
	now := int64(epoch)
	k.allow(now, 1) // stays, so that the others are rarely the first or the last
	last := int64(0)
	for range 1000 {
		now += second
		a := k.take(now, step.Request{Cost: 1})
		if !a.Allowed {
			t.Fatalf("%+v", a)
		}
		if last > 0 {
			k.adjust(now, last, -1)
		}
		last = a.At
	}
	if need := k.p.Words(k.state, k.words, now, false); need > 5 {
		t.Errorf("2 entries need %d words", need)
	}
	for range 1000 { // nor do charged denials
		now += second
		k.take(now, step.Request{Cost: 2, Charge: true})
	}
	if need := k.p.Words(k.state, k.words, now, false); need > 5 {
		t.Errorf("%d words for a limit of 3", need)
	}
}

// A log of maximum length wraps around in its ring.
func TestLargestLog(t *testing.T) {
	k := newKey(step.Params{Kind: step.Log, Count: step.MaxLogCount, Length: 20_000})
	now := int64(epoch)
	for i := range 3 * step.MaxLogCount {
		now++
		if a := k.take(now, step.Request{Cost: 1}); a.Allowed != (i%20_000 < step.MaxLogCount) {
			t.Fatalf("request %d: %+v", i, a)
		}
	}
	if len(k.words) > 1+step.MaxLogCount {
		t.Errorf("%d words for %d entries", len(k.words), step.MaxLogCount)
	}
}

// A settlement is charged even if the entry no longer exists: merged into a younger one for lack of room, or expired.
func TestLogSettlesWhatWasMerged(t *testing.T) {
	k := newKey(step.Params{Kind: step.Log, Count: 10, Length: minute})
	k.words = make([]uint64, 3) // room for two entries
	now := int64(epoch)
	take := func() step.Answer {
		now += second
		next, a := k.p.Take(k.state, k.words, now, step.Request{Cost: 1})
		k.state = next
		return a
	}
	take()
	merged := take()
	take() // moves the time of the second entry
	next, a := k.p.Adjust(k.state, k.words, now, step.Settlement{At: merged.At, Delta: 4})
	if a.Granted != 4 || a.Remaining != 3 {
		t.Errorf("settled after a merge: %+v", a)
	}
	if k.state = next; k.peek(now) != 3 {
		t.Errorf("%d remain", k.peek(now))
	}
	forgotten := newKey(*k.p)
	if a := forgotten.adjust(now, now-10, 4); a.Granted != 4 || a.Remaining != 6 || forgotten.peek(now) != 6 {
		t.Errorf("settled after a reset: %+v", a)
	}
	if a := forgotten.adjust(now, now-minute, 4); a.Granted != 4 || a.Remaining != 2 {
		t.Errorf("settled after a window: %+v", a)
	}
}

// No take was made at the minimum or maximum time.
func TestAdjustAtNoTime(t *testing.T) {
	for name, p := range kinds(10, minute, 10) {
		p.Initial = p.Burst
		k := newKey(p)
		now := int64(epoch)
		k.allow(now, k.p.Limit())
		if a := k.adjust(now, math.MinInt64, -5); a.Granted != 0 || a.Remaining != 0 {
			t.Errorf("%s: gave back at the beginning of time: %+v", name, a)
		}
		if end := k.state.ExpiresAt; p.Kind == step.Window && k.adjust(now, end, -5).Granted != 0 {
			t.Errorf("%s: refunded usage of the next window", name)
		}
		if a := newKey(p).adjust(now, math.MaxInt64, 5); a.Granted > 0 && a.Remaining == k.p.Limit() {
			t.Errorf("%s: settled at the end of time, and is full: %+v", name, a)
		}
		k.adjust(now, math.MaxInt64, -5)
		k.adjust(now, math.MinInt64, 5)
		if k.state.ExpiresAt < 0 || k.state.ExpiresAt > now+3*step.Horizon/2 {
			t.Errorf("%s: %+v", name, k.state)
		}
	}
}

// A negative balance after a settlement is changed neither by a charged denial nor by a refund without a take.
func TestDebt(t *testing.T) {
	limits := kinds(10, minute, 10)
	delete(limits, "slots") // permits have no negative balance
	for name, p := range limits {
		k := newKey(p)
		now := int64(epoch)
		first := k.take(now, step.Request{Cost: 5})
		k.adjust(now, first.At, 100) // 10 × limit
		if k.peek(now) != 0 {
			t.Errorf("%s: %d remain with a negative balance", name, k.peek(now))
		}
		before := k.clone().take(now, step.Request{Cost: 1})
		k.take(now, step.Request{Cost: 1, Charge: true})
		if after := k.take(now, step.Request{Cost: 1}); before.Allowed || after.RetryAfter < before.RetryAfter {
			t.Errorf("%s: a charge brought the retry from %+v to %+v", name, before, after)
		}
		// No take was made an hour ago.
		if a := k.adjust(now, now-100*hour, -5); a.Granted != 0 || a.Remaining != 0 {
			t.Errorf("%s: refunded usage without a take: %+v", name, a)
		}
	}
}
