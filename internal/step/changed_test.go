package step_test

import (
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluiceproject/sluice/internal/step"
)

// A rule's numbers may change while its keys are in use. Buckets keep the used fraction, windows and logs their count,
// counters their estimate; and the new limit applies to the kept usage from then on.

// unnoticed reports whether the states do not show the change, which is rare. An old window then ends, and an old
// bucket is full, when it would have been before.
func unnoticed(old, changed *step.Params) bool {
	if old.Shape() != changed.Shape() {
		return false
	}
	if old.Kind != step.Bucket {
		return old.Numbers() != changed.Numbers() || old.Length != changed.Length
	}
	fill := func(p *step.Params) *big.Rat { return mul(rat(p.Burst), big.NewRat(p.Length, p.Count)) }
	return old.Drips().Den != changed.Drips().Den || fill(old).Cmp(fill(changed)) != 0
}

// changes are buckets whose numbers change. A step is a time in seconds, an action, and the remaining quota after it:
//
//	0 R a 5 → 5            at 0, 5 are reserved as a, and 5 remain
//	5 C 1 → 4              at 5, the limit becomes the second
//	6 S a 2 → 7 granted=-3 at 6, a is settled at 2
//	30 → 10                at 30, 10 remain
//
// The times are those of a day that starts at a multiple of every window.
var changes = []struct {
	name   string
	limits []step.Params
	steps  string
}{
	{"10/min to 10/day", limitsOf(perMin, perDay), "0 R a 10 → 0; 0 C 1 → 0; 8639 → 0; 8640 → 1"},
	{"10/day to 10/min", limitsOf(perDay, perMin), "0 R a 10 → 0; 0 C 1 → 0; 6 → 1; 59.999999 → 9; 60 → 10 reset=0"},
	{"5/30 days to 5/s", limitsOf(bucketOf(5, 30*day, 5), bucketOf(5, second, 5)), "0 R a 5 → 0; 0 C 1 → 0; 1 → 5 reset=0"},
	{"10/min to 100/min", limitsOf(perMin, bucketOf(100, minute, 100)), "0 R a 5 → 5; 0 C 1 → 50"},
	{"100/min to 10/min", limitsOf(bucketOf(100, minute, 100), perMin), "0 R a 55 → 45; 0 C 1 → 4 reset=33"},
	{"burst 10 to 20 to 10", limitsOf(perMin, bucketOf(10, minute, 20)), "0 R a 4 → 6; 0 C 1 → 12; 0 C 0 → 6"},
	{"burst 20 to 5", limitsOf(bucketOf(10, minute, 20), bucketOf(10, minute, 5)), "0 R a 20 → 0; 0 C 1 → 0; 6 → 1; 29.999999 → 4; 30 → 5 reset=0"},
	// 30/8,640 of a token are replenished in 30 s, so 9.9965 are refunded.
	{"reserved before", limitsOf(perMin, perDay), "0 R a 10 → 0; 0 C 1 → 0; 30 S a 0 → 10 granted=-10 reset=0"},
	{"reserved and settled below", limitsOf(perMin, bucketOf(100, minute, 100)), "0 R a 6 → 4; 0 C 1 → 40; 0 S a 2 → 80 granted=-40"},
	{"reserved and settled above", limitsOf(perMin, bucketOf(100, minute, 100)), "0 R a 6 → 4; 0 C 1 → 40; 0 S a 16 → 30 granted=10"},
	{"in debt", limitsOf(perMin, perDay), "0 R a 5 → 5; 0 S a 15 → 0; 0 C 1 → 0 reset=129600; 43200 → 0; 51839 → 0; 51840 → 1"},
	{"interval", limitsOf(intervalOf(4, 10*second, 8), intervalOf(4, minute, 4)), "1 R a 3 → 5; 2 C 1 → 2; 59.999999 → 2; 60 → 4 reset=0"},
	{"counter at noon", limitsOf(counterOf(10, minute), counterOf(10, day)), "43199 R a 10 → 0; 43212 R b 2 → 0; 43212 C 1 → 0"},
	{"sub-windows", limitsOf(slicesOf(10, minute), slicesOf(10, day)), "5 R a 6 → 4; 25 R b 3 → 1; 65 C 1 → 4"}, // 3 of a are inside the window
}

var perMin, perDay = bucketOf(10, minute, 10), bucketOf(10, day, 10)

func limitsOf(limits ...step.Params) []step.Params { return limits }

func bucketOf(count, length, burst int64) step.Params {
	return step.Params{Kind: step.Bucket, Count: count, Length: length, Burst: burst}
}

func intervalOf(count, length, burst int64) step.Params {
	return step.Params{Kind: step.Interval, Count: count, Length: length, Burst: burst}
}

func counterOf(count, length int64) step.Params {
	return step.Params{Kind: step.Counter, Count: count, Length: length}
}

func slicesOf(count, length int64) step.Params {
	return step.Params{Kind: step.Slices, Count: count, Length: length, Slices: 6}
}

func TestChanges(t *testing.T) {
	for _, c := range changes {
		t.Run(c.name, func(t *testing.T) {
			k, out := newKey(c.limits[0]), map[string]step.Settlement{}
			for text := range strings.SplitSeq(c.steps, ";") {
				what, want, _ := strings.Cut(text, " → ")
				f := strings.Fields(what)
				at, err := time.ParseDuration(f[0] + "s")
				if err != nil {
					t.Fatal(err)
				}
				now, n := 20_000*day+at.Microseconds(), int64(0)
				if len(f) > 1 {
					if n, err = strconv.ParseInt(f[len(f)-1], 10, 64); err != nil {
						t.Fatal(err)
					}
				}
				var a step.Answer
				switch {
				case len(f) == 1:
					a = k.take(now, step.Request{})
				case f[1] == "C":
					k = k.under(c.limits[n])
					a = k.take(now, step.Request{})
				case f[1] == "R":
					a = k.take(now, step.Request{Cost: n, Settles: true})
					out[f[2]] = step.Settlement{At: a.At, Charged: n, Of: k.p.Limit(), Settles: true}
				case f[1] == "S":
					x := out[f[2]]
					x.Delta = n - x.Charged
					a = k.settle(now, x)
				}
				for i, w := range strings.Fields(want) {
					got := strconv.FormatInt(a.Remaining, 10)
					if i > 0 {
						got = "granted=" + strconv.FormatInt(a.Granted, 10)
						if strings.HasPrefix(w, "reset") {
							got = fmt.Sprintf("reset=%v", float64(a.ResetAfter)/second)
						}
					}
					if got != w {
						t.Errorf("%s: %s, want %s (%+v)", text, got, w, a)
					}
				}
			}
		})
	}
}

// drawMissing returns the amount missing from a bucket, exactly, after random takes and settlements.
func drawMissing(t *rapid.T, k *key) (now int64, missing *big.Rat) {
	now, missing = int64(epoch), zero
	last := now
	for range rapid.IntRange(1, 10).Draw(t, "steps") {
		now += drawPause(t, k.p)
		missing = greatest(zero, sub(missing, flowed(k.p, last, now)))
		last = now
		cost := drawCost(t, k.p)
		if rapid.IntRange(0, 4).Draw(t, "debt") == 0 {
			k.adjust(now, now, cost)
			missing = add(missing, rat(cost))
		} else if k.allow(now, cost) {
			missing = add(missing, rat(cost))
		}
	}
	return now, missing
}

// flowed returns the refill of a bucket with an aligned limit.
func flowed(p *step.Params, from, to int64) *big.Rat {
	if p.Kind == step.Interval {
		return rat((to/p.Length - from/p.Length) * p.Count)
	}
	return mul(big.NewRat(p.Count, p.Length), rat(to-from))
}

// maxOwed returns the maximum amount missing after a change: 10 × burst + 1 h of refill.
func maxOwed(p *step.Params) *big.Rat {
	return add(rat(10*p.Burst), mul(big.NewRat(p.Count, p.Length), rat(hour)))
}

func TestChangedBucketKeepsFraction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) step.Params {
			p := bucketOf(
				rapid.Int64Range(1, 5000).Draw(t, name+" count"),
				rapid.OneOf(rapid.Int64Range(1000, 5000), rapid.SampledFrom([]int64{second, minute, day, step.Year})).Draw(t, name+" length"),
				rapid.Int64Range(1, 5000).Draw(t, name+" burst"))
			p.Burst = min(p.Burst, max(1, step.Horizon/20/p.Length*p.Count)) // the cap never exceeds the horizon
			p.Queue = rapid.IntRange(0, 3).Draw(t, name+" queue") == 0
			return p
		}
		k := newKey(draw("old"))
		now, missing := drawMissing(t, k)
		old := k.p
		k = k.under(draw("changed"))
		missing = least(mul(missing, big.NewRat(k.p.Burst, old.Burst)), maxOwed(k.p))
		rate := big.NewRat(k.p.Count, k.p.Length)
		if unnoticed(old, k.p) {
			return
		}
		full := ceil(div(missing, rate)) // in whole microseconds
		most := max(0, floor(sub(rat(k.p.Burst), missing)))
		fewest := max(0, floor(sub(rat(k.p.Burst), mul(rate, rat(full)))))
		if old.Shape() == k.p.Shape() {
			fewest = most // no conversion was needed
		}
		a := k.take(now, step.Request{})
		if a.Remaining > most || a.Remaining < fewest || a.ResetAfter != full {
			t.Fatalf("%s to %v: %d remain, full after %d; want %d to %d, %d", describe(old), k, a.Remaining, a.ResetAfter, fewest, most, full)
		}
		if k.take(now, step.Request{Cost: 1}); k.state.ExpiresAt < now+a.ResetAfter {
			t.Fatalf("a take made it full earlier, at %d", k.state.ExpiresAt)
		}
	})
}

func TestChangedIntervalKeepsFraction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) step.Params {
			p := intervalOf(
				rapid.Int64Range(1, 40).Draw(t, name+" count"),
				rapid.OneOf(rapid.Int64Range(1000, 20000), rapid.SampledFrom([]int64{second, minute, day, step.Year})).Draw(t, name+" length"),
				rapid.Int64Range(1, 60).Draw(t, name+" burst"))
			p.Burst = min(p.Burst, max(1, step.Horizon/20/p.Length*p.Count)) // the cap never exceeds the horizon
			return p
		}
		k := newKey(draw("old"))
		now, missing := drawMissing(t, k)
		old := k.p
		if k = k.under(draw("changed")); unnoticed(old, k.p) {
			return
		}
		if old.Numbers() != k.p.Numbers() {
			missing = least(rat(ceil(mul(missing, big.NewRat(k.p.Burst, old.Burst)))), rat(floor(maxOwed(k.p))))
		}
		for range 4 {
			want := max(0, k.p.Burst-floor(missing))
			full := int64(0)
			if missing.Sign() > 0 { // at the end of the interval that refills all of it
				refills := (floor(missing) + k.p.Count - 1) / k.p.Count
				full = (now/k.p.Length+refills)*k.p.Length - now
			}
			if a := k.take(now, step.Request{}); a.Remaining != want || a.ResetAfter != full {
				t.Fatalf("%s to %v at %d: %d remain, full after %d; want %d, %d", describe(old), k, now, a.Remaining, a.ResetAfter, want, full)
			}
			next := now + rapid.OneOf(rapid.Just(k.p.Length-now%k.p.Length), rapid.Int64Range(0, 2*k.p.Length)).Draw(t, "pause")
			missing = greatest(zero, sub(missing, flowed(k.p, now, next)))
			now = next
		}
	})
}

// A counter of another length keeps its estimate: the count of the current window and the part of the previous one that
// is still inside, rounded up. All of it counts as used now.
func TestChangedCounterKeepsEstimate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) step.Params {
			p := step.Params{
				Kind: step.Counter, Count: rapid.Int64Range(1, 1000).Draw(t, name+" count"),
				Length: 6 * rapid.OneOf(rapid.Int64Range(1000, 5000), rapid.SampledFrom([]int64{second, minute, day})).Draw(t, name+" length"),
			}
			return p
		}
		old, changed := draw("old"), draw("changed")
		parts := int64(1) // the oldest of the last parts + 1 is weighted
		if rapid.Bool().Draw(t, "sub-windows") {
			old.Kind, old.Slices, changed.Kind, changed.Slices, parts = step.Slices, 6, step.Slices, 6, 6
		}
		k, length := newKey(old), old.Length/parts
		now := int64(epoch)
		had := map[int64]int64{} // by index of the part
		for range rapid.IntRange(1, 10).Draw(t, "steps") {
			now += drawPause(t, k.p) / 2
			if cost := drawCost(t, k.p); k.allow(now, cost) {
				had[now/length] += cost
			}
		}
		now += drawPause(t, k.p) / 2
		left := big.NewRat(length-now%length, length)
		used := mul(rat(had[now/length-parts]), left)
		for i := range parts {
			used = add(used, rat(had[now/length-i]))
		}
		if k = k.under(changed); old.Length == changed.Length || unnoticed(newKey(old).p, k.p) {
			return
		}
		a := k.take(now, step.Request{})
		if want := max(0, changed.Count-ceil(used)); a.Remaining != want {
			t.Fatalf("%s to %v: %d remain, want %d, since %v were used", describe(&old), k, a.Remaining, want, used)
		}
		other := newKey(changed)
		if other.adjust(now, now, ceil(used)); used.Sign() > 0 && a.ResetAfter != other.take(now, step.Request{}).ResetAfter {
			t.Fatalf("%s to %v: it lasts for %d, not as if spent now", describe(&old), k, a.ResetAfter)
		}
	})
}

// portion is a bucket as fractions of itself under any numbers: takes are charged the fraction of the bucket that they
// actually cost, and the refill is a fraction, too. It keeps only the history.
type portion struct {
	events []event
}

type event struct {
	at     int64
	amount *big.Rat     // charged amount
	p      *step.Params // if not nil: the limit from then on
}

// missing returns the fraction that is missing at a time.
func (h *portion) missing(now int64) *big.Rat {
	level, at, p := zero, int64(0), (*step.Params)(nil)
	pass := func(to int64) {
		if p != nil {
			level = greatest(zero, sub(level, div(flowed(p, at, to), rat(p.Burst))))
		}
		at = to
	}
	for _, e := range h.events {
		if pass(e.at); e.p != nil {
			p = e.p
			continue
		}
		level = add(level, e.amount)
	}
	pass(now)
	return level
}

// However the numbers change, a bucket never has more remaining than if each reservation had been charged its actual
// cost from the start, as a fraction of the bucket it was taken from; and not less, except for rounding.
func TestChangedSettling(t *testing.T) {
	first := seed(t)
	refunds, changes := 0, 0
	for i := range uint64(soak(700)) {
		rnd := rand.New(rand.NewPCG(first+i, 0))
		draw := func() step.Params {
			p := drawSettling(rnd)
			p.Kind = step.Bucket
			return p
		}
		k, h, now := newKey(draw()), &portion{}, int64(1e15)+rnd.Int64N(1e12)
		h.events = append(h.events, event{at: now, p: k.p})
		had := []*step.Params{k.p}
		rounded := zero // in microseconds of the current numbers: maximum excess of the missing amount due to rounding
		type out struct {
			x     step.Settlement
			entry int
		}
		var outs []out
		for range 5 + rnd.IntN(40) {
			unit := max(1, k.p.Length/k.p.Count)
			now += []int64{0, 0, 1, unit, rnd.Int64N(2*unit + 1), rnd.Int64N(unit*k.p.Burst + 1)}[rnd.IntN(6)]
			rounded = add(rounded, rat(4))
			switch n := rnd.IntN(10); {
			case n < 2:
				before := k.p
				next := newKey(draw())
				if slices.ContainsFunc(had, func(p *step.Params) bool { return unnoticed(p, next.p) }) {
					continue // two limits have the same shape
				}
				k = k.under(*next.p)
				had = append(had, k.p)
				fill := func(p *step.Params) *big.Rat { return mul(rat(p.Burst), big.NewRat(p.Length, p.Count)) }
				rounded = add(mul(rounded, div(fill(k.p), fill(before))), rat(4))
				h.events = append(h.events, event{at: now, p: k.p})
				k.take(now, step.Request{})
				changes++
			case n < 6:
				cost := 1 + rnd.Int64N(k.p.Burst)
				a := k.take(now, step.Request{Cost: cost, Settles: true})
				if a.Allowed {
					outs = append(outs, out{step.Settlement{At: a.At, Charged: cost, Of: k.p.Limit(), Settles: true}, len(h.events)})
					h.events = append(h.events, event{at: now, amount: big.NewRat(cost, k.p.Burst)})
				}
			case n < 7:
				cost := 1 + rnd.Int64N(k.p.Burst)
				if k.allow(now, cost) {
					h.events = append(h.events, event{at: now, amount: big.NewRat(cost, k.p.Burst)})
				}
			case len(outs) > 0:
				j := rnd.IntN(len(outs))
				o := outs[j]
				outs = slices.Delete(outs, j, j+1)
				actual := rnd.Int64N(o.x.Charged + 1)
				o.x.Delta = actual - o.x.Charged
				if a := k.settle(now, o.x); a.Granted < 0 {
					refunds++
				}
				h.events[o.entry].amount = big.NewRat(actual, o.x.Of)
			}
			ought := mul(h.missing(now), mul(rat(k.p.Burst), big.NewRat(k.p.Length, k.p.Count))) // expected, in microseconds
			have := rat(max(0, k.state.ExpiresAt-now))
			value := k.state.Value
			if k.p.Wide(k.words) {
				value = k.words[0]
			}
			if k.state.ExpiresAt > now {
				have = sub(have, big.NewRat(int64(value), int64(k.p.Drips().Den)))
			}
			if have.Cmp(ought) < 0 || len(outs) <= step.MaxMarks && have.Cmp(add(ought, rounded)) > 0 {
				t.Fatalf("seed %d: %v: full after %s µs, ought to be %s, rounded %s", first+i, k, have.FloatString(3), ought.FloatString(3), rounded.FloatString(3))
			}
		}
	}
	if refunds < 100 || changes < 100 {
		t.Errorf("%d refunds, %d changes: the test tests nothing", refunds, changes)
	}
}

// A state of unknown numbers has no remaining quota until the bucket would be full.
func TestUnknownNumbers(t *testing.T) {
	for name, old := range kinds(20, minute, 20) {
		if old.Kind != step.Bucket && old.Kind != step.Interval {
			continue
		}
		k := newKey(old)
		now := int64(20_000 * day)
		k.take(now, step.Request{Cost: 1, Settles: true})
		changed := old
		changed.Count, changed.Length, changed.Burst = 7, hour, 21
		k = k.under(changed)
		k.known = nil
		a := k.take(now, step.Request{})
		if a.Remaining != 0 || a.ResetAfter != 3*hour {
			t.Errorf("%s: %d remain, full after %d", name, a.Remaining, a.ResetAfter)
		}
		if k.p.Wide(k.words) {
			t.Errorf("%s: marks of unknown numbers are kept", name)
		}
		if left := k.peek(now + 3*hour); left != 21 {
			t.Errorf("%s: %d remain when it should be full", name, left)
		}
	}
	k := newKey(counterOf(20, minute)) // a counter keeps all of its counts
	now := int64(20_000*day + 30*second)
	k.allow(now-30*second-1, 8)
	k.allow(now, 5)
	k = k.under(counterOf(20, hour))
	k.known = nil
	if left := k.peek(now); left != 7 {
		t.Errorf("counter: %d remain, 13 were spent", left)
	}
}

// Two numbers with the same shape are ambiguous, so that neither is found; a third does not help.
func TestKnownShapes(t *testing.T) {
	var same []step.Params // of the same shape and different fill times
	first := step.Compile(bucketOf(1, minute, 1))
	for length := int64(minute + 1); len(same) < 2; length++ {
		if p := step.Compile(bucketOf(1, length, 1)); p.Shape() == first.Shape() {
			same = append(same, p)
		}
	}
	var known *step.Known
	if known.Has(&first) || known.Finds(&same[0], first.Shape()-1) || !known.Finds(&first, first.Shape()) {
		t.Error("numbers that were not learned are known, or those of the limit itself are not")
	}
	other := step.Compile(bucketOf(1, hour, 1))
	known = known.With(first.Numbers())
	if known.With(first.Numbers()) != known || !known.Has(&first) || !known.Finds(&other, first.Shape()) {
		t.Error("learned numbers are not known, or are new again")
	}
	hundred := step.Compile(bucketOf(100, minute, 100))
	if !known.Has(&hundred) {
		t.Error("numbers that mean the same are not known")
	}
	both := known.With(same[0].Numbers())
	if both.Finds(&other, first.Shape()) || !known.Finds(&other, first.Shape()) {
		t.Error("one of two numbers is taken for the other")
	}
	if !both.Has(&same[1]) || both.With(same[1].Numbers()) != both || len(both.All()) != 2 {
		t.Error("a third is learned")
	}
	for _, n := range []step.Numbers{
		{},
		{Kind: step.Bucket},
		{Kind: step.Bucket, Count: -1, Length: 5, Burst: 5},
		{Kind: step.Bucket, Count: 1, Length: step.Year, Burst: 1 << 40},
		{Kind: step.Window, Length: 5},
		{Kind: step.Slices, Length: 7, Slices: 2},
		{Kind: step.Counter, Length: 5, Burst: 1},
		{Kind: 200, Length: 5},
	} {
		if n.IsValid() || known.With(n) != known {
			t.Errorf("%+v is learned", n)
		}
	}
	var all []step.Numbers
	for length := int64(1000); length < 1500; length++ {
		for _, p := range kinds(1, 6*length, 1) {
			c := step.Compile(p)
			if n := c.Numbers(); n.Kind != 0 {
				all = append(all, n)
			}
		}
	}
	if n := len(known.With(all...).All()); n > 2*(98+3*255) || n < 500 {
		t.Errorf("%d numbers are kept", n)
	}
}

// A part of a limit reads and writes the states of the whole limit, whatever its size.
func TestPartOfALimit(t *testing.T) {
	for _, kind := range []step.Kind{step.Bucket, step.Interval} {
		whole := bucketOf(10, minute, 10)
		whole.Kind = kind
		k := newKey(whole)
		now := int64(20_000 * day)
		k.allow(now, 4)
		part := whole
		part.Burst, part.Whole = 7, k.p.Numbers()
		p := k.under(part)
		if p.p.Shape() != k.p.Shape() || p.p.Numbers() != k.p.Numbers() || p.peek(now) != 3 {
			t.Errorf("kind %d: %d of 7 remain after 4 of 10 were spent", kind, p.peek(now))
		}
		// For a limit twice as large, twice as much is missing.
		larger := whole
		larger.Count, larger.Burst = 20, 20
		part = larger
		compiled := step.Compile(larger)
		part.Burst, part.Whole = 14, compiled.Numbers()
		if left := p.under(part).peek(now); left != 6 {
			t.Errorf("kind %d: %d of 14 remain after 4 of 10 were spent, want 6", kind, left)
		}
	}
}

// A negative balance beyond the cap is never carried over.
func TestChangedDebtIsCapped(t *testing.T) {
	now := int64(20_000 * day)
	for _, kind := range []step.Kind{step.Bucket, step.Interval} {
		each, slower := bucketOf(1, second, 1), bucketOf(1, minute, 1)
		each.Kind, slower.Kind = kind, kind
		k := newKey(each)
		k.adjust(now, now, 3000) // the cap is 10 × burst + 1 h of refill
		k = k.under(slower)
		if a := k.take(now, step.Request{}); a.ResetAfter != 10*minute+hour {
			t.Errorf("kind %d: full after %d", kind, a.ResetAfter)
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
			if got := dry.take(now, step.Request{DryRun: true}).Remaining; got != left || dry.state != before.state || !slices.Equal(dry.words, before.words) {
				t.Errorf("%s %d to %d: %d remain, want %d; state %+v became %+v", name, c.from, c.to, got, left, before.state, dry.state)
			}
			k = dry
			a := k.take(now, step.Request{Cost: 61})
			if left == 60 && a.Allowed {
				t.Errorf("%s %d to %d: a fresh budget", name, c.from, c.to)
			}
			if !k.allow(now, 60) && left == 60 {
				t.Errorf("%s %d to %d: the remaining quota is lost", name, c.from, c.to)
			}
			if a := k.take(now, step.Request{Cost: 1}); !a.Allowed && a.RetryAfter > 2*c.to {
				t.Errorf("%s %d to %d: locked for %d, longer than two windows", name, c.from, c.to, a.RetryAfter)
			}
		}
	}
}

// A limit whose window was shortened allows requests as soon as RetryAfter says, even if nothing was admitted since:
// the kept count must not move from window to window.
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
			if rapid.Bool().Draw(t, "peek") { // decided as a take of 1, and its RetryAfter holds, too
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

// However often a limit changes, no aligned window of the current limit admits more than that limit.
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
