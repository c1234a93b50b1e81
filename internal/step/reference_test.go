package step_test

import (
	"math"
	"math/big"

	"github.com/sluiceproject/sluice/internal/step"
)

// The references define each algorithm, in rational numbers or by keeping all of the history, independently of the
// representation in package step. They are slow, unbounded in memory, and need a clock that does not go back.

// A model is one key under one limit. All methods except spend, charge and adjust change nothing, so that they can also
// be called for a future time: they assume no other takes until then.
type model interface {
	most() int64 // maximum cost that can ever be allowed
	remaining(now int64) int64
	// fits reports whether a cost is allowed at now, and the delay of the caller.
	fits(now, cost, maxDelay int64) (delay int64, ok bool)
	spend(now, cost, delay int64)
	charge(now, cost int64)
	// adjust settles a take without a mark: charged at at, it actually cost delta more, or less if delta is negative.
	adjust(now, at, charged, delta int64) int64
}

func rat(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

func add(a, b *big.Rat) *big.Rat { return new(big.Rat).Add(a, b) }

func sub(a, b *big.Rat) *big.Rat { return new(big.Rat).Sub(a, b) }

func mul(a, b *big.Rat) *big.Rat { return new(big.Rat).Mul(a, b) }

func div(a, b *big.Rat) *big.Rat { return new(big.Rat).Quo(a, b) }

func least(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

func greatest(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) > 0 {
		return a
	}
	return b
}

func floor(a *big.Rat) int64 {
	q := new(big.Int).Div(a.Num(), a.Denom()) // Euclidean, and the denominator is positive: rounds down
	if !q.IsInt64() {
		return math.MaxInt64
	}
	return q.Int64()
}

func ceil(a *big.Rat) int64 { return -floor(new(big.Rat).Neg(a)) }

var zero = new(big.Rat)

// tokenBucket: tokens are refilled continuously at Count per Length, up to the size. A negative level counts tokens
// that waiting callers, or late settlements, have taken in advance.
type tokenBucket struct {
	rate, size *big.Rat // tokens per microsecond, tokens
	tokens     *big.Rat // at the time at
	at         int64
}

func newTokenBucket(p *step.Params) model {
	size := rat(p.Burst)
	return &tokenBucket{rate: big.NewRat(p.Count, p.Length), size: size, tokens: size}
}

func (b *tokenBucket) level(now int64) *big.Rat {
	return least(b.size, add(b.tokens, mul(b.rate, rat(now-b.at))))
}

func (b *tokenBucket) most() int64 { return floor(b.size) }

func (b *tokenBucket) remaining(now int64) int64 { return max(0, floor(b.level(now))) }

func (b *tokenBucket) fits(now, cost, maxDelay int64) (int64, bool) {
	lacking := sub(rat(cost), b.level(now))
	delay := max(0, ceil(div(lacking, b.rate)))
	return delay, delay <= maxDelay
}

func (b *tokenBucket) spend(now, cost, _ int64) {
	b.tokens, b.at = sub(b.level(now), rat(cost)), now
}

func (b *tokenBucket) charge(now, cost int64) {
	level := b.level(now)
	b.tokens, b.at = least(level, greatest(zero, sub(level, rat(cost)))), now
}

// maxOverdraft returns the maximum backlog after a settlement: 10 × burst + 1 h of refill.
func maxOverdraft(rate, size *big.Rat) *big.Rat { return add(mul(rat(10), size), mul(rate, rat(hour))) }

func (b *tokenBucket) adjust(now, at, charged, delta int64) int64 {
	level := b.level(now)
	b.at = now
	if delta >= 0 {
		room := sub(maxOverdraft(b.rate, b.size), sub(b.size, level))
		more := greatest(zero, least(rat(delta), room))
		b.tokens = sub(level, more)
		return floor(more)
	}
	// The refill since the take has replaced a part of it. If others wait behind it, the last of them until the level
	// is back at zero, nothing can be refunded; nor can a part of a take in the future.
	given := least(rat(-delta), sub(rat(charged), mul(b.rate, rat(max(0, now-at)))))
	if last := sub(rat(now), div(level, b.rate)); last.Cmp(rat(max(at, now))) > 0 || at > now && -delta < charged {
		given = zero
	}
	used := sub(b.size, level)
	given = greatest(zero, least(given, used))
	b.tokens = add(level, given)
	return ceil(sub(used, given)) - ceil(used) // reduction of the usage, as reported to callers
}

func (b *tokenBucket) resetAfter(now int64) int64 {
	return ceil(div(sub(b.size, b.level(now)), b.rate))
}

// leakyMeter: usage is poured into a bucket that leaks Count per Length, and a take that would overflow is denied.
type leakyMeter struct {
	rate, size *big.Rat
	water      *big.Rat
	at         int64
}

func newLeakyMeter(p *step.Params) model {
	return &leakyMeter{rate: big.NewRat(p.Count, p.Length), size: rat(p.Burst), water: zero}
}

func (b *leakyMeter) level(now int64) *big.Rat {
	return greatest(zero, sub(b.water, mul(b.rate, rat(now-b.at))))
}

func (b *leakyMeter) most() int64 { return floor(b.size) }

func (b *leakyMeter) remaining(now int64) int64 { return floor(sub(b.size, b.level(now))) }

func (b *leakyMeter) fits(now, cost, _ int64) (int64, bool) {
	return 0, add(b.level(now), rat(cost)).Cmp(b.size) <= 0
}

func (b *leakyMeter) spend(now, cost, _ int64) { b.water, b.at = add(b.level(now), rat(cost)), now }

func (b *leakyMeter) charge(now, cost int64) {
	b.water, b.at = least(b.size, add(b.level(now), rat(cost))), now
}

func (b *leakyMeter) adjust(int64, int64, int64, int64) int64 { panic("see tokenBucket") }

// leakyQueue: a list of places, each as long as its cost takes to leave. A place leaves after those ahead of it.
type leakyQueue struct {
	rate   *big.Rat
	size   *big.Rat
	places []place
}

type place struct{ start, end *big.Rat }

func newLeakyQueue(p *step.Params) model {
	return &leakyQueue{rate: big.NewRat(p.Count, p.Length), size: rat(p.Burst)}
}

// waiting returns the cost in the queue that has not left yet.
func (q *leakyQueue) waiting(now int64) *big.Rat {
	sum := new(big.Rat)
	for _, p := range q.places {
		if from := greatest(p.start, rat(now)); p.end.Cmp(from) > 0 {
			sum.Add(sum, mul(q.rate, sub(p.end, from)))
		}
	}
	return sum
}

// free returns the start of the place behind all others.
func (q *leakyQueue) free(now int64) *big.Rat {
	if len(q.places) == 0 {
		return rat(now)
	}
	return greatest(rat(now), q.places[len(q.places)-1].end)
}

func (q *leakyQueue) append(now int64, cost *big.Rat) {
	for len(q.places) > 0 && q.places[0].end.Cmp(rat(now)) <= 0 { // has left
		q.places = q.places[1:]
	}
	start := q.free(now)
	q.places = append(q.places, place{start, add(start, div(cost, q.rate))})
}

func (q *leakyQueue) most() int64 { return floor(q.size) }

func (q *leakyQueue) remaining(now int64) int64 {
	return max(0, floor(sub(q.size, q.waiting(now))))
}

func (q *leakyQueue) fits(now, cost, maxDelay int64) (int64, bool) {
	delay := ceil(sub(q.free(now), rat(now)))
	if maxDelay > 0 && delay > maxDelay {
		return 0, false
	}
	return delay, add(q.waiting(now), rat(cost)).Cmp(q.size) <= 0
}

func (q *leakyQueue) spend(now, cost, _ int64) { q.append(now, rat(cost)) }

func (q *leakyQueue) charge(now, cost int64) {
	room := least(rat(cost), sub(q.size, q.waiting(now)))
	if room.Sign() > 0 {
		q.append(now, room)
	}
}

func (q *leakyQueue) adjust(now, at, charged, delta int64) int64 {
	free := q.free(now)
	if delta >= 0 {
		more := least(rat(delta), sub(maxOverdraft(q.rate, q.size), q.waiting(now)))
		if more.Sign() <= 0 {
			return 0
		}
		q.append(now, more)
		return floor(more)
	}
	if sub(free, div(rat(charged), q.rate)).Cmp(rat(at)) > 0 {
		return 0 // there are places behind it
	}
	used := sub(free, rat(now))
	length := least(div(rat(-delta), q.rate), used)
	if length.Sign() <= 0 {
		return 0
	}
	end := sub(free, length)
	for n := len(q.places); n > 0 && q.places[n-1].start.Cmp(end) >= 0; n-- {
		q.places = q.places[:n-1]
	}
	if n := len(q.places); n > 0 {
		q.places[n-1].end = least(q.places[n-1].end, end)
	}
	return ceil(mul(sub(used, length), q.rate)) - ceil(mul(used, q.rate))
}

// intervalBucket: Count tokens are refilled at each boundary, up to the size.
type intervalBucket struct {
	p      *step.Params
	tokens int64
	base   int64 // a boundary
	full   bool  // with FirstHit, a full bucket has no boundaries
}

func newIntervalBucket(p *step.Params) model {
	return &intervalBucket{p: p, tokens: p.Burst, full: true}
}

// at returns the bucket at now and the last boundary up to now.
func (b *intervalBucket) at(now int64) (tokens, base int64) {
	if b.full && b.p.Align == step.FirstHit {
		return b.p.Burst, now
	}
	if b.full {
		return b.p.Burst, now - now%b.p.Length
	}
	passed := (now - b.base) / b.p.Length
	base = b.base + passed*b.p.Length
	// Counting more refills than fit could overflow.
	passed = min(passed, (b.p.Burst-b.tokens)/b.p.Count+1)
	tokens = min(b.p.Burst, b.tokens+passed*b.p.Count)
	if tokens == b.p.Burst && b.p.Align == step.FirstHit {
		base = now
	}
	return tokens, base
}

func (b *intervalBucket) set(tokens, base int64) {
	b.tokens, b.base, b.full = tokens, base, tokens >= b.p.Burst
}

func (b *intervalBucket) most() int64 { return b.p.Burst }

func (b *intervalBucket) remaining(now int64) int64 {
	tokens, _ := b.at(now)
	return max(0, tokens)
}

func (b *intervalBucket) fits(now, cost, maxDelay int64) (int64, bool) {
	tokens, base := b.at(now)
	if tokens >= cost {
		return 0, true
	}
	refills := new(big.Rat).SetFrac64(cost-tokens, b.p.Count)
	delay := base + ceil(refills)*b.p.Length - now
	return delay, delay <= maxDelay
}

func (b *intervalBucket) spend(now, cost, _ int64) {
	tokens, base := b.at(now)
	b.set(tokens-cost, base)
}

func (b *intervalBucket) charge(now, cost int64) {
	tokens, base := b.at(now)
	b.set(min(tokens, max(0, tokens-min(cost, b.p.Burst))), base)
}

// boundaries returns the number of boundaries after from, up to and including to, which is one.
func (b *intervalBucket) boundaries(from, to int64) *big.Rat {
	return rat(max(0, ceil(big.NewRat(to-from, b.p.Length))))
}

func (b *intervalBucket) adjust(now, at, charged, delta int64) int64 {
	tokens, base := b.at(now)
	if delta >= 0 {
		most := floor(maxOverdraft(big.NewRat(b.p.Count, b.p.Length), rat(b.p.Burst)))
		more := max(0, min(delta, most-(b.p.Burst-tokens)))
		b.set(tokens-more, base)
		return more
	}
	left := sub(rat(charged), mul(b.boundaries(at, base), rat(b.p.Count)))
	// Others may wait behind it, the last for the boundary at which the level is back at zero.
	if last := base + max(0, ceil(big.NewRat(-tokens, b.p.Count)))*b.p.Length; last > max(at, now) || at > now && -delta < charged {
		left = zero
	}
	given := min(floor(greatest(zero, least(rat(-delta), left))), b.p.Burst-tokens)
	b.set(tokens+given, base)
	return -given
}

func (b *intervalBucket) resetAfter(now int64) int64 {
	tokens, base := b.at(now)
	if tokens == b.p.Burst {
		return 0
	}
	return base + ceil(new(big.Rat).SetFrac64(b.p.Burst-tokens, b.p.Count))*b.p.Length - now
}
