package step_test

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluiceproject/sluice/internal/step"
)

// initialBucket is a tokenBucket that holds initial while its key is new: without a request, or full for a day.
type initialBucket struct {
	tokenBucket
	initial *big.Rat
	full    *big.Rat // when it is or became full; nil for a new key
}

func newInitialBucket(p *step.Params) model {
	return &initialBucket{tokenBucket: *newTokenBucket(p).(*tokenBucket), initial: rat(p.Initial)}
}

func (b *initialBucket) isNew(now int64) bool { return b.full == nil || now >= ceil(b.full)+day }

// current returns the bucket at now, as a tokenBucket.
func (b *initialBucket) current(now int64) *tokenBucket {
	c := b.tokenBucket
	if b.isNew(now) {
		c.tokens, c.at = b.initial, now
	}
	return &c
}

// change applies f to the bucket at now and updates full.
func (b *initialBucket) change(now int64, f func(c *tokenBucket)) {
	wasFull := !b.isNew(now) && b.full.Cmp(rat(now)) <= 0
	c := b.current(now)
	f(c)
	b.tokenBucket = *c
	if missing := sub(c.size, c.level(now)); missing.Sign() > 0 {
		b.full = add(rat(now), div(missing, c.rate))
	} else if !wasFull {
		b.full = rat(now)
	}
}

// begin is a first request that charges nothing.
func (b *initialBucket) begin(now int64) { b.change(now, func(*tokenBucket) {}) }

func (b *initialBucket) remaining(now int64) int64 { return b.current(now).remaining(now) }

func (b *initialBucket) fits(now, cost, maxDelay int64) (int64, bool) {
	return b.current(now).fits(now, cost, maxDelay)
}

func (b *initialBucket) spend(now, cost, delay int64) {
	b.change(now, func(c *tokenBucket) { c.spend(now, cost, delay) })
}

func (b *initialBucket) charge(now, cost int64) {
	b.change(now, func(c *tokenBucket) { c.charge(now, cost) })
}

func (b *initialBucket) adjust(now, at, charged, delta int64) (given int64) {
	if b.isNew(now) && delta <= 0 {
		return 0
	}
	b.change(now, func(c *tokenBucket) { given = c.adjust(now, at, charged, delta) })
	return given
}

func (b *initialBucket) resetAfter(now int64) int64 { return b.current(now).resetAfter(now) }

// drawInitialKey draws a small bucket with any initial level.
func drawInitialKey(t *rapid.T) *key {
	p := drawLimits(t)["bucket/initial"]
	p.Initial = rapid.Int64Range(0, p.Burst).Draw(t, "initial")
	return newKey(p)
}

// From a key's first request on, at most initial + rate × T are admitted in T, for any pauses, and in any interval at
// most burst + rate × T.
func TestInitialBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := drawInitialKey(t)
		now, first, sum := int64(epoch), int64(0), int64(0)
		var had []spent
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += drawPause(t, k.p)
			if rapid.IntRange(0, 19).Draw(t, "long pause") == 0 {
				now += rapid.SampledFrom([]int64{day - 1, day, day + 1, 3 * day}).Draw(t, "pause")
			}
			if rapid.IntRange(0, 3).Draw(t, "peek") == 0 {
				k.take(now, step.Request{})
				k.take(now, step.Request{Cost: 1, DryRun: true})
				continue
			}
			if first == 0 {
				first = now
			}
			r := step.Request{Cost: drawCost(t, k.p), Charge: rapid.Bool().Draw(t, "charge")}
			if rapid.Bool().Draw(t, "part") {
				r.Min = 1
			}
			if a := k.take(now, r); a.Allowed {
				sum += a.Granted
				had = append(had, spent{take: take{a.At, a.Granted}, parts: a.Granted * k.p.Length})
			}
			if most := k.p.Initial*k.p.Length + k.p.Count*(now-first); sum*k.p.Length > most {
				t.Fatalf("%v: admitted %d in %d µs, want at most %d/%d", k, sum, now-first, most, k.p.Length)
			}
		}
		checkRate(t, k.p, had, 0)
	})
}

// A client that requests single units at the times of RetryAfter gets all of initial + rate × T.
func TestInitialIsUsed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := drawInitialKey(t)
		p := *k.p
		p.Length *= 100 // so that rounding up RetryAfter to a microsecond changes less than 1 %
		k = newKey(p)
		now, sum := int64(epoch), int64(0)
		for range 400 {
			a := k.take(now, step.Request{Cost: 1})
			sum += a.Granted
			now += a.RetryAfter
		}
		all := k.p.Initial*k.p.Length + k.p.Count*(now-epoch)
		if sum*k.p.Length*100 < (all-k.p.Length)*99 {
			t.Fatalf("%v: %d used of %d/%d", k, sum, all, k.p.Length)
		}
	})
}

// Within a day after the bucket became full, a longer pause never leaves less.
func TestInitialPauses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := drawInitialKey(t)
		now := int64(epoch)
		var full int64 // when the bucket is or became full
		for range rapid.IntRange(1, 20).Draw(t, "takes") {
			now += drawPause(t, k.p)
			if a := k.take(now, step.Request{Cost: drawCost(t, k.p)}); a.ResetAfter > 0 || full == 0 {
				full = now + a.ResetAfter
			}
		}
		end := full + day - now
		short := rapid.Int64Range(0, end-1).Draw(t, "short")
		long := rapid.Int64Range(short, end-1).Draw(t, "long")
		if a, b := k.clone().peek(now+short), k.clone().peek(now+long); a > b {
			t.Fatalf("%v: %d left after %d µs and %d after %d µs", k, a, short, b, long)
		}
		if left := k.peek(now + end - 1); left != k.p.Burst {
			t.Fatalf("%v: %d left just before the state expires, want the burst", k, left)
		}
		if left := k.peek(now + end); left != k.p.Initial {
			t.Fatalf("%v: %d left when the key is new again, want the initial level", k, left)
		}
	})
}

// States of a bucket with an initial level and of an ordinary one are never converted to each other. The numbers of
// both have the same meaning.
func TestInitialIdentity(t *testing.T) {
	limits := kinds(10, minute, 10)
	plain, initial := step.Compile(limits["bucket"]), step.Compile(limits["bucket/initial"])
	if plain.Identity() == initial.Identity() || plain.Name() == initial.Name() {
		t.Errorf("identities %d and %d, names %s and %s", plain.Identity(), initial.Identity(), plain.Name(), initial.Name())
	}
	if plain.Shape() != initial.Shape() || plain.Numbers() != initial.Numbers() || initial.HasFast() {
		t.Errorf("shapes %d and %d, numbers %+v and %+v", plain.Shape(), initial.Shape(), plain.Numbers(), initial.Numbers())
	}
}

// The parts of a limit start with at most n - 1 more than the whole, together.
func TestInitialParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := drawInitialKey(t)
		n := rapid.Int64Range(1, 80).Draw(t, "n")
		part := k.p.Part((k.p.Count+n-1)/n, (k.p.Burst+n-1)/n, 0)
		_, a := part.Take(step.State{}, nil, epoch, step.Request{})
		if total := n * a.Remaining; total > k.p.Initial+n-1 {
			t.Fatalf("%v: %d parts start with %d", k, n, total)
		}
	})
}
