package step_test

import (
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/sluiceproject/sluice/internal/step"
)

// Every decision of every algorithm is compared with its reference, for random limits, costs and times.

func TestAgainstReference(t *testing.T) {
	for _, c := range []struct {
		name  string
		runs  int
		draw  func(*rand.Rand) step.Params
		model func(*step.Params) model
		plain bool // the reference supports neither delays nor Adjust
	}{
		{"token bucket", 144, drawBucket, newTokenBucket, false},
		{"token bucket with initial", 180, drawInitial, newInitialBucket, false},
		{"leaky meter", 144, drawBucket, newLeakyMeter, true},
		{"leaky queue", 90, drawQueue, newLeakyQueue, false},
		{"interval", 468, drawInterval, newIntervalBucket, false},
		{"window", 972, drawWindow, newFixedWindow, false},
		{"counter", 972, drawCounter, newSlidingCounter, false},
		{"slices", 432, drawSlices, newSlidingCounter, false},
		{"log", 180, drawLog, newSlidingLog, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			first := seed(t)
			for i := range uint64(soak(c.runs)) {
				rnd := rand.New(rand.NewPCG(first+i, 0))
				d := differ{T: t, rnd: rnd, seed: first + i, key: newKey(c.draw(rnd))}
				d.model = c.model(d.key.p)
				d.choose(c.plain)
				if d.run(); t.Failed() {
					return
				}
			}
		})
	}
}

// differ is one key in package step and in its reference.
type differ struct {
	*testing.T
	rnd   *rand.Rand
	seed  uint64
	key   *key
	model model

	min, delay, charge, adjust bool // features that this run uses

	now   int64
	last  step.Answer
	taken []take // takes that can be refunded
}

// choose selects the features that a run uses.
func (d *differ) choose(plain bool) {
	d.min = d.rnd.IntN(3) == 0
	d.charge = d.rnd.IntN(3) == 0
	if !plain {
		d.delay = d.rnd.IntN(2) == 0
		d.adjust = d.rnd.IntN(2) == 0
	}
	if d.key.p.Kind == step.Log && d.charge {
		// The log deletes entries that denied requests push beyond the limit, and deleted entries cannot be settled.
		d.adjust = false
	}
}

func (d *differ) run() {
	p := d.key.p
	// About a multiple of the window, some time between 2001 and 2033.
	d.now = 1e15 + d.rnd.Int64N(1e15)
	if d.rnd.IntN(2) == 0 {
		d.now = d.now - d.now%p.Length + d.rnd.Int64N(3) - 1
	}
	ops := 20 + d.rnd.IntN(60)
	if p.Kind == step.Log && d.rnd.IntN(8) == 0 {
		ops = 500 // so that its ring wraps around
	}
	for i := 0; i < ops && !d.Failed(); i++ {
		d.now += d.pause()
		switch n := d.rnd.IntN(20); {
		case n == 0:
			d.look()
		case n < 4 && d.adjust && len(d.taken) > 0:
			d.settle()
		default:
			d.request()
		}
		if d.Failed() {
			d.Logf("seed %d, operation %d, at %d: %v", d.seed, i, d.now, d.key)
		}
	}
}

// pause draws a pause, preferably to a time around which decisions change.
func (d *differ) pause() int64 {
	p := d.key.p
	near := d.rnd.Int64N(3) - 1
	switch d.rnd.IntN(16) {
	case 0, 1, 2, 3, 4, 5:
		return 0
	case 6, 7, 8:
		return max(0, d.last.RetryAfter+near)
	case 9:
		if p.HasInitial && d.rnd.IntN(2) == 0 { // when the key is new again
			return d.last.ResetAfter + day + near
		}
		return max(0, d.last.ResetAfter+near)
	case 10:
		return max(0, d.last.Delay+near)
	case 11:
		return max(0, p.Length-d.now%p.Length+near) // the end of an aligned window
	case 12:
		return max(0, p.Length+near)
	case 13:
		part := p.Length / max(p.Count, 1)
		if p.Slices > 0 {
			part = p.Length / p.Slices
		}
		return max(0, part+near)
	case 14:
		return 1
	}
	return d.spread(2 * p.Length)
}

// spread draws from 1 to most, with all magnitudes equally likely.
func (d *differ) spread(most int64) int64 { return spread(d.rnd, most) }

func spread(rnd *rand.Rand, most int64) int64 {
	if most <= 1 {
		return 1
	}
	size := 1 + rnd.IntN(bits.Len64(uint64(most)))
	return min(most, 1+rnd.Int64N(int64(uint64(1)<<size-1)))
}

// cost draws a cost, preferably one that is just allowed or just denied.
func (d *differ) cost() int64 {
	limit := d.key.p.Limit()
	near := d.rnd.Int64N(3) - 1
	c := int64(1)
	switch d.rnd.IntN(8) {
	case 0, 1:
	case 2:
		c = limit + near
	case 3, 4:
		c = d.model.remaining(d.now) + near
	case 5:
		c = d.model.most() + near
	case 6:
		c = d.rnd.Int64N(limit+1) + near
	case 7:
		c = d.spread(limit)
	}
	if d.rnd.IntN(100) == 0 {
		c = 1 << 50
	}
	return max(1, c)
}

func (d *differ) request() {
	r := step.Request{Cost: d.cost(), Charge: d.charge && d.rnd.IntN(2) == 0}
	if d.min && d.rnd.IntN(2) == 0 {
		r.Min = min(r.Cost, d.cost())
	}
	if d.delay && d.rnd.IntN(2) == 0 {
		r.MaxDelay = d.spread(step.Year)
		if d.rnd.IntN(2) == 0 {
			r.MaxDelay = min(step.Year, max(0, d.last.RetryAfter+d.rnd.Int64N(3)-1))
		}
	}
	if d.rnd.IntN(8) == 0 {
		d.dry(r)
	}
	want := d.decide(r)
	got := d.key.take(d.now, r)
	d.compare(r, got, want)
	d.last = got
	if got.Granted > 0 {
		d.taken = append(d.taken, take{got.At, got.Granted})
	}
}

// dry peeks first. The decision must be equal to that of the real take, and nothing may change.
func (d *differ) dry(r step.Request) {
	d.key.room(d.now, false)
	before := d.key.clone()
	r.DryRun = true
	dry := d.key.take(d.now, r)
	if d.key.state != before.state || !equal(d.key.words, before.words) {
		d.Errorf("dry %+v changed the state %+v to %+v", r, before.state, d.key.state)
	}
	r.DryRun, r.Charge = false, false
	if a := d.key.clone().take(d.now, r); !same(a, dry) {
		d.Errorf("%+v\nsays dry %+v\n      wet %+v", r, dry, a)
	}
}

// decide decides a request by its definition.
func (d *differ) decide(r step.Request) step.Answer {
	m := d.model
	if b, ok := m.(*initialBucket); ok {
		b.begin(d.now)
	}
	grant := func(cost int64) (step.Answer, bool) {
		if cost > m.most() {
			return step.Answer{}, false
		}
		delay, ok := m.fits(d.now, cost, r.MaxDelay)
		if !ok {
			return step.Answer{}, false
		}
		m.spend(d.now, cost, delay)
		return step.Answer{Allowed: true, Granted: cost, Delay: delay, At: d.now + delay}, true
	}
	a, ok := grant(r.Cost)
	needed := r.Cost
	if !ok && r.Min > 0 {
		if a, ok = grant(max(r.Min, min(r.Cost, m.remaining(d.now)))); !ok {
			needed = r.Min
		}
	}
	if !ok {
		a.At = d.now
		a.Never = needed > m.most()
		if r.Charge {
			m.charge(d.now, r.Cost)
		}
	}
	a.Remaining = m.remaining(d.now)
	a.RetryAfter = needed // for compare
	return a
}

func (d *differ) compare(r step.Request, got, want step.Answer) {
	needed := want.RetryAfter
	want.RetryAfter = got.RetryAfter
	if !same(got, want) || got.At != want.At {
		d.Errorf("%+v\n got %+v\nwant %+v", r, got, want)
		return
	}
	if got.Allowed || got.Never {
		if got.RetryAfter != 0 {
			d.Errorf("%+v: RetryAfter %d with %+v", r, got.RetryAfter, got)
		}
	} else {
		d.checkRetry(r, needed, got.RetryAfter)
	}
	d.checkReset(got)
}

// checkRetry checks that the request is allowed after RetryAfter, and not 1 µs earlier.
func (d *differ) checkRetry(r step.Request, needed, after int64) {
	if after <= 0 {
		d.Errorf("%+v denied with RetryAfter %d", r, after)
		return
	}
	if _, ok := d.model.fits(d.now+after, needed, r.MaxDelay); !ok {
		d.Errorf("%+v: does not fit after RetryAfter %d", r, after)
	}
	if _, ok := d.model.fits(d.now+after-1, needed, r.MaxDelay); ok {
		d.Errorf("%+v: fits already before RetryAfter %d", r, after)
	}
}

func (d *differ) checkReset(got step.Answer) {
	if m, ok := d.model.(interface{ resetAfter(int64) int64 }); ok {
		if want := m.resetAfter(d.now); got.ResetAfter != want {
			d.Errorf("ResetAfter %d, want %d", got.ResetAfter, want)
		}
	}
	if d.model.remaining(d.now+got.ResetAfter) != d.model.most() {
		d.Errorf("not all remains after ResetAfter %d", got.ResetAfter)
	}
}

func (d *differ) look() {
	defer d.asIfBegun()()
	a := d.key.take(d.now, step.Request{})
	_, fits := d.model.fits(d.now, 1, 0)
	fits = fits && d.model.most() > 0
	if a.Allowed != fits || a.Remaining != d.model.remaining(d.now) || a.Granted != 0 {
		d.Errorf("peek %+v, want %v and %d remaining", a, fits, d.model.remaining(d.now))
	}
	if !a.Allowed && !a.Never {
		d.checkRetry(step.Request{}, 1, a.RetryAfter)
	}
	d.checkReset(a)
	d.last = a
}

// asIfBegun makes the model of a new key decide as if a request had created its bucket, until restore is called.
func (d *differ) asIfBegun() (restore func()) {
	was := d.model
	if b, ok := was.(*initialBucket); ok {
		begun := *b
		begun.begin(d.now)
		d.model = &begun
	}
	return func() { d.model = was }
}

// settle refunds a part of an earlier take, or charges more.
func (d *differ) settle() {
	i := d.rnd.IntN(len(d.taken))
	t := d.taken[i]
	d.taken = append(d.taken[:i], d.taken[i+1:]...)
	delta := -t.cost
	switch d.rnd.IntN(3) {
	case 0:
		delta = -d.spread(t.cost)
	case 1:
		delta = d.spread(d.key.p.Limit())
		switch {
		case d.key.p.Kind == step.Log:
			delta = min(delta, 100) // an entry holds 16,383
		case d.key.p.Burst/d.key.p.Count > step.Year/d.key.p.Length:
			delta = 0 // the negative balance of a bucket is at most 100 years
		}
	}
	want := step.Answer{Allowed: true, Granted: d.model.adjust(d.now, t.at, t.cost, delta)}
	want.Remaining = d.model.remaining(d.now)
	got := d.key.settle(d.now, step.Settlement{At: t.at, Delta: delta, Charged: t.cost})
	if !same(got, want) {
		d.Errorf("adjust of %+v by %d\n got %+v\nwant %+v", t, delta, got, want)
	}
	defer d.asIfBegun()()
	d.checkReset(got)
	d.last = got
}

// same compares the fields that a caller uses.
func same(a, b step.Answer) bool {
	return a.Allowed == b.Allowed && a.Never == b.Never && a.Granted == b.Granted && a.Remaining == b.Remaining &&
		a.RetryAfter == b.RetryAfter && a.Delay == b.Delay
}

func equal(a, b []uint64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
