package step_test

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluiceproject/sluice/internal/step"
)

// A rule's numbers may change while its keys are in use. Buckets keep the fraction that is used, windows and logs keep the
// count, counters what they estimate; and whatever was kept obeys the new limit from then on.

// unnoticed tells of the change in many that the states do not show. An old window then ends when it would have, and an old
// bucket is full when it would have been.
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

// changes are what becomes of a bucket when its numbers change. A step is a time in seconds, what happens, and what remains
// then:
//
//	0 R a 5 → 5            at 0, 5 are reserved as a, and 5 remain
//	5 C 1 → 4              at 5, the limit becomes the second
//	6 S a 2 → 7 granted=-3 at 6, a is settled at 2
//	30 → 10                at 30, 10 remain
//
// The times are those of a day that begins at a multiple of every window.
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
	// In 30 s 30/8,640 of a token have flowed in, and so 9.9965 are given back.
	{"reserved before", limitsOf(perMin, perDay), "0 R a 10 → 0; 0 C 1 → 0; 30 S a 0 → 10 granted=-9 reset=0"},
	{"reserved and settled below", limitsOf(perMin, bucketOf(100, minute, 100)), "0 R a 6 → 4; 0 C 1 → 40; 0 S a 2 → 80 granted=-40"},
	{"reserved and settled above", limitsOf(perMin, bucketOf(100, minute, 100)), "0 R a 6 → 4; 0 C 1 → 40; 0 S a 16 → 30 granted=10"},
	{"in debt", limitsOf(perMin, perDay), "0 R a 5 → 5; 0 S a 15 → 0; 0 C 1 → 0 reset=129600; 43200 → 0; 51839 → 0; 51840 → 1"},
	{"interval", limitsOf(intervalOf(4, 10*second, 8), intervalOf(4, minute, 4)), "1 R a 3 → 5; 2 C 1 → 2; 59.999999 → 2; 60 → 4 reset=0"},
	{"counter at noon", limitsOf(counterOf(10, minute), counterOf(10, day)), "43199 R a 10 → 0; 43212 R b 2 → 0; 43212 C 1 → 0"},
	{"sub-windows", limitsOf(slicesOf(10, minute), slicesOf(10, day)), "5 R a 6 → 4; 25 R b 3 → 1; 65 C 1 → 4"}, // 3 of a are inside
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

// drawMissing returns what is missing from a bucket, in exact numbers, after random takes and debts.
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

// flowed is what flows into a bucket of an aligned limit.
func flowed(p *step.Params, from, to int64) *big.Rat {
	if p.Kind == step.Interval {
		return rat((to/p.Length - from/p.Length) * p.Count)
	}
	return mul(big.NewRat(p.Count, p.Length), rat(to-from))
}

// mostOwed is the most that may be missing after a change: ten times the bucket and an hour's worth.
func mostOwed(p *step.Params) *big.Rat {
	return add(rat(10*p.Burst), mul(big.NewRat(p.Count, p.Length), rat(hour)))
}

func TestChangedBucketKeepsFraction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) step.Params {
			p := bucketOf(
				rapid.Int64Range(1, 5000).Draw(t, name+" count"),
				rapid.OneOf(rapid.Int64Range(1000, 5000), rapid.SampledFrom([]int64{second, minute, day, step.Year})).Draw(t, name+" length"),
				rapid.Int64Range(1, 5000).Draw(t, name+" burst"))
			p.Burst = min(p.Burst, max(1, step.Horizon/20/p.Length*p.Count)) // the cap is never beyond the horizon
			p.Queue = rapid.IntRange(0, 3).Draw(t, name+" queue") == 0
			return p
		}
		k := newKey(draw("old"))
		now, missing := drawMissing(t, k)
		old := k.p
		k = k.under(draw("changed"))
		missing = least(mul(missing, big.NewRat(k.p.Burst, old.Burst)), mostOwed(k.p))
		rate := big.NewRat(k.p.Count, k.p.Length)
		if unnoticed(old, k.p) {
			return
		}
		full := ceil(div(missing, rate)) // in whole microseconds
		most := max(0, floor(sub(rat(k.p.Burst), missing)))
		fewest := max(0, floor(sub(rat(k.p.Burst), mul(rate, rat(full)))))
		if old.Shape() == k.p.Shape() {
			fewest = most // nothing had to be converted
		}
		a := k.take(now, step.Request{})
		if a.Remaining > most || a.Remaining < fewest || a.ResetAfter != full {
			t.Fatalf("%s to %v: %d remain, full after %d; want %d to %d, %d", describe(old), k, a.Remaining, a.ResetAfter, fewest, most, full)
		}
		if k.take(now, step.Request{Cost: 1}); k.state.FreshAt < now+a.ResetAfter {
			t.Fatalf("a take made it full earlier, at %d", k.state.FreshAt)
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
			p.Burst = min(p.Burst, max(1, step.Horizon/20/p.Length*p.Count)) // the cap is never beyond the horizon
			return p
		}
		k := newKey(draw("old"))
		now, missing := drawMissing(t, k)
		old := k.p
		if k = k.under(draw("changed")); unnoticed(old, k.p) {
			return
		}
		if old.Numbers() != k.p.Numbers() {
			missing = least(rat(ceil(mul(missing, big.NewRat(k.p.Burst, old.Burst)))), rat(floor(mostOwed(k.p))))
		}
		for range 4 {
			want := max(0, k.p.Burst-floor(missing))
			full := int64(0)
			if missing.Sign() > 0 { // at the end of the interval that makes up for all of it
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
