package step_test

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluiceproject/sluice/internal/step"
)

// The numbers in the test names are those of Sluice's invariants: I1 to I6 bound the admitted cost of each algorithm,
// the others hold for all of them.

// epoch is the start of the histories. It is not a multiple of any window.
const epoch = 1_700_000_000_000_123

func drawLimits(t *rapid.T) map[string]step.Params {
	count := rapid.Int64Range(1, 40).Draw(t, "count")
	length := rapid.Int64Range(1000, 20000).Draw(t, "length")
	burst := rapid.Int64Range(1, 60).Draw(t, "burst")
	return kinds(count, length, burst)
}

func drawKey(t *rapid.T, names ...string) *key {
	limits := drawLimits(t)
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(limits))
	}
	return newKey(limits[rapid.SampledFrom(names).Draw(t, "kind")])
}

func drawPause(t *rapid.T, p *step.Params) int64 {
	unit := p.Length / max(1, p.Count)
	return rapid.OneOf(
		rapid.SampledFrom([]int64{0, 0, 0, 1, unit, unit + 1, p.Length / 3, p.Length - 1, p.Length, p.Length + 1}),
		rapid.Int64Range(0, unit),
		rapid.Int64Range(0, 2*p.Length),
	).Draw(t, "pause")
}

func drawCost(t *rapid.T, p *step.Params) int64 {
	limit := p.Limit()
	return rapid.OneOf(rapid.Just(int64(1)), rapid.Int64Range(1, limit), rapid.Int64Range(max(1, limit-1), limit+1)).Draw(t, "cost")
}

// spent is a take that may have been refunded in part.
type spent struct {
	take
	parts int64 // its cost minus refunds in 1/Length, which is not a whole number for buckets
	given bool  // refunded, which happens at most once
}

// history makes random takes and refunds some of them. It returns the takes with their times. If check is not nil it is
// called before each take.
func history(t *rapid.T, k *key, check func(now, cost int64)) []spent {
	var had []spent
	now := int64(epoch)
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		now += drawPause(t, k.p)
		if len(had) > 0 && rapid.IntRange(0, 7).Draw(t, "what") == 0 {
			h := &had[rapid.IntRange(max(0, len(had)-5), len(had)-1).Draw(t, "which")]
			if h.given {
				continue
			}
			h.given = true
			before := k.state
			given := k.adjust(now, h.at, -h.cost)
			if given.Granted > 0 || given.Granted < -h.cost {
				t.Fatalf("gave back %d of %d", -given.Granted, h.cost)
			}
			if h.cost += given.Granted; k.state != before {
				h.parts = min(h.parts, k.p.Count*max(0, now-h.at)) // the rest could still be refunded
			}
			continue
		}
		cost := drawCost(t, k.p)
		if check != nil {
			check(now, cost)
		}
		if a := k.take(now, step.Request{Cost: cost}); a.Allowed {
			had = append(had, spent{take: take{a.At, a.Granted}, parts: a.Granted * k.p.Length})
		}
	}
	return had
}

// eachInterval calls f with every interval from one take to another, both included, and the usage in it.
func eachInterval(had []spent, f func(length, sum int64)) {
	for i := range had {
		var sum int64
		for j := i; j < len(had); j++ {
			sum += had[j].cost
			f(had[j].at-had[i].at, sum)
		}
	}
}

func TestI1LogIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := drawKey(t, "log")
		reference := newSlidingLog(k.p).(*slidingLog)
		now := int64(epoch)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += drawPause(t, k.p)
			cost := drawCost(t, k.p)
			fits := reference.sum(now)+cost <= k.p.Count
			if got := k.allow(now, cost); got != fits {
				t.Fatalf("%d at %d with %d in the window: allowed %v", cost, now, reference.sum(now), got)
			}
			if fits {
				reference.spend(now, cost, 0)
			}
		}
		for _, last := range reference.takes {
			var sum int64
			for _, earlier := range reference.takes {
				if earlier.at > last.at-k.p.Length && earlier.at <= last.at {
					sum += earlier.cost
				}
			}
			if sum > k.p.Count {
				t.Fatalf("%d in the window that ends at %d", sum, last.at)
			}
		}
	})
}

// A store that is short of memory gives the log fewer words than entries. The log may then deny more, never less.
func TestI1LogInLittleRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := drawKey(t, "log")
		k.words = make([]uint64, rapid.IntRange(3, 8).Draw(t, "words"))
		var had []spent
		now := int64(epoch)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += drawPause(t, k.p)
			next, a := k.p.Take(k.state, k.words, now, step.Request{Cost: drawCost(t, k.p), Charge: rapid.Bool().Draw(t, "charge")})
			if k.state = next; a.Allowed {
				had = append(had, spent{take: take{now, a.Granted}})
			}
		}
		eachInterval(had, func(length, sum int64) {
			if length < k.p.Length && sum > k.p.Count {
				t.Fatalf("%d within %d µs", sum, length)
			}
		})
	})
}

func TestI2Window(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := drawKey(t, "window", "window/first", "window/soft")
		had := history(t, k, nil)
		most := k.p.Count + k.p.SoftExcess
		if k.p.Align == step.Epoch {
			checkAligned(t, had, k.p.Length, most)
		}
		eachInterval(had, func(length, sum int64) {
			if sum > most*((length+k.p.Length-1)/k.p.Length+1) {
				t.Fatalf("%d within %d µs", sum, length)
			}
		})
	})
}

// checkAligned bounds the usage in each aligned window.
func checkAligned(t *rapid.T, had []spent, length, most int64) {
	sums := map[int64]int64{}
	for _, h := range had {
		if sums[h.at/length] += h.cost; sums[h.at/length] > most {
			t.Fatalf("%d in the window that begins at %d", sums[h.at/length], h.at/length*length)
		}
	}
}

func TestI3Counter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := drawKey(t, "counter", "counter/nearest", "slices", "slices/nearest")
		had := history(t, k, nil)
		checkAligned(t, had, k.p.Length, k.p.Count)
		// The error is that of one sub-window, plus rounding.
		part := k.p.Length / max(1, k.p.Slices)
		eachInterval(had, func(length, sum int64) {
			if length > k.p.Length {
				return
			}
			if (sum-k.p.Count-1)*part > k.p.Count*min(length, part) {
				t.Fatalf("%d within %d µs", sum, length)
			}
		})
	})
}

// checkRate: in every interval the usage is at most burst + rate × length. If s is the running sum minus rate × time,
// this is how far s rises above its own minimum. All is multiplied by Length to use integers.
func checkRate(t *rapid.T, p *step.Params, had []spent, slack int64) {
	var sum int64
	low := int64(1 << 62)
	for _, h := range had {
		flow := p.Count * (h.at - epoch)
		low = min(low, sum-flow)
		sum += h.parts
		if rise := sum - flow - low; rise > p.Burst*p.Length+slack {
			t.Fatalf("%d at %d: more than the burst of %d by %d/%d", h.cost, h.at, p.Burst, rise-p.Burst*p.Length, p.Length)
		}
	}
}

func TestI4Bucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := drawKey(t, "bucket")
		checkRate(t, k.p, history(t, k, nil), 0)
	})
}

// Callers that wait proceed after their Delay, and some cancel and refund their place.
func TestI4BucketWithWaiting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := drawKey(t, "bucket", "interval", "interval/first")
		var had []spent
		now := int64(epoch)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += drawPause(t, k.p) / 4
			if len(had) > 0 && rapid.IntRange(0, 2).Draw(t, "what") == 0 {
				i := rapid.IntRange(0, len(had)-1).Draw(t, "which")
				if had[i].at > now { // a caller that has proceeded cannot cancel
					k.adjust(now, had[i].at, -had[i].cost)
					had[i].cost, had[i].parts = 0, 0
				}
				continue
			}
			r := step.Request{Cost: drawCost(t, k.p), MaxDelay: rapid.Int64Range(0, 3*k.p.Length).Draw(t, "patience")}
			if a := k.take(now, r); a.Allowed {
				had = append(had, spent{take: take{a.At, a.Granted}, parts: a.Granted * k.p.Length})
			}
		}
		slices.SortStableFunc(had, func(a, b spent) int { return int(a.at - b.at) })
		if k.p.Kind == step.Interval {
			checkRefills(t, k.p, had)
			return
		}
		checkRate(t, k.p, had, k.p.Count) // times are rounded up by less than 1 µs
	})
}

// checkRefills: in every interval the usage is at most burst + Count for each boundary that may be in it.
func checkRefills(t *rapid.T, p *step.Params, had []spent) {
	eachInterval(had, func(length, sum int64) {
		if sum > p.Burst+p.Count*(length/p.Length+1) {
			t.Fatalf("%d within %d µs", sum, length)
		}
	})
}

func TestI4Interval(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := drawKey(t, "interval", "interval/first")
		checkRefills(t, k.p, history(t, k, nil))
	})
}

// For single units the bucket decides like a token bucket that counts in units of 1/Length tokens.
func TestI5SameAsTokenBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := drawKey(t, "bucket")
		p := k.p
		tokens, last := p.Burst*p.Length, int64(epoch)
		fill := (p.Burst*p.Length + p.Count - 1) / p.Count
		now := last
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now += drawPause(t, p) / 4
			tokens, last = min(p.Burst*p.Length, tokens+p.Count*(now-last)), now
			want := tokens >= p.Length
			if want {
				tokens -= p.Length
			}
			if got := k.allow(now, 1); got != want {
				t.Fatalf("at %d: %v with %d/%d tokens", now, got, tokens, p.Length)
			}
			if k.state.ExpiresAt > now+fill {
				t.Fatalf("at %d: full only at %d, %d later than a bucket takes to fill", now, k.state.ExpiresAt, k.state.ExpiresAt-now-fill)
			}
		}
	})
}

func TestI6Queue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := drawKey(t, "queue")
		p := k.p
		longest := (p.Burst*p.Length + p.Count - 1) / p.Count
		had := history(t, k, func(now, cost int64) {
			a := k.clone().take(now, step.Request{Cost: cost})
			if a.Delay < 0 || a.Delay > longest {
				t.Fatalf("a wait of %d, longer than the %d that a full queue takes", a.Delay, longest)
			}
		})
		free := int64(0) // earliest time at which the next may leave, times Count
		last := int64(0)
		for _, h := range had {
			if h.parts == 0 { // refunded before it left
				continue
			}
			if h.at < last {
				t.Fatalf("%d leaves before one that came earlier, at %d", h.at, last)
			}
			last = h.at
			if at := (h.at - epoch) * p.Count; at < free-p.Count { // times are rounded up by less than 1 µs
				t.Fatalf("%d leaves %d/%d µs too early", h.at, free-at, p.Count)
			}
			free = max(free, (h.at-epoch-1)*p.Count) + h.parts
		}
	})
}

// The queue contains the allowed takes that have not left.
func TestI6QueueLength(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := drawKey(t, "queue")
		p := k.p
		var had []take
		now := int64(epoch)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += drawPause(t, p) / 4
			if a := k.take(now, step.Request{Cost: drawCost(t, p)}); a.Allowed {
				had = append(had, take{a.At, a.Granted})
			}
			var waiting int64 // times Length
			for _, h := range had {
				gone := max(0, now-h.at) * p.Count
				waiting += max(0, h.cost*p.Length-gone)
			}
			if waiting > p.Burst*p.Length+p.Count {
				t.Fatalf("%d/%d wait in a queue of %d", waiting, p.Length, p.Burst)
			}
		}
	})
}
