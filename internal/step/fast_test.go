package step_test

import (
	"math/rand/v2"
	"testing"

	"github.com/sluiceproject/sluice/internal/step"
)

// Fast decides as Take does, or not at all.
func TestFastIsTake(t *testing.T) {
	first := seed(t)
	decided := map[step.Kind]int{}
	for i := range uint64(soak(6000)) {
		rnd := rand.New(rand.NewPCG(first+i, 1))
		draw := []func(*rand.Rand) step.Params{drawBucket, drawQueue, drawWindow, drawCounter}[rnd.IntN(4)]
		p := draw(rnd)
		if p.Kind == step.Bucket && rnd.IntN(2) == 0 { // rates with whole microseconds per unit
			p.Count, p.Length, p.Burst = 1, 1+rnd.Int64N(1000), 1+rnd.Int64N(1000)
		}
		k := newKey(p)
		d := differ{T: t, rnd: rnd, key: k, now: 1e15 + rnd.Int64N(1e15)}
		d.model = newFixedWindow(k.p) // used only to draw costs
		if p.Kind == step.Bucket {
			d.model = newTokenBucket(k.p)
		}
		for range 60 {
			if d.now += d.pause(); rnd.IntN(10) == 0 {
				d.now -= d.pause()
			}
			cost := d.cost()
			s := k.state
			fresh, value, retry, remaining := k.p.Fast(s.ExpiresAt, s.Value, s.Shape, d.now, cost)
			a := k.take(d.now, step.Request{Cost: cost})
			d.last = a
			if retry == step.Undecided {
				if fresh != s.ExpiresAt || value != s.Value {
					t.Fatalf("seed %d: %v: undecided, but changed", first+i, k)
				}
				continue
			}
			decided[p.Kind]++
			next := k.state
			if (retry == step.Fits) != a.Allowed || retry != step.Fits && retry != a.RetryAfter || remaining != a.Remaining || a.Never {
				t.Fatalf("seed %d: %v: cost %d at %d: retry %d, remaining %d; Take says %+v", first+i, k, cost, d.now, retry, remaining, a)
			}
			if fresh != next.ExpiresAt || value != next.Value {
				t.Fatalf("seed %d: %v: cost %d at %d: %d %x; Take leaves %+v", first+i, k, cost, d.now, fresh, value, next)
			}
		}
	}
	for _, kind := range []step.Kind{step.Bucket, step.Window, step.Counter} {
		if decided[kind] == 0 {
			t.Errorf("kind %d is never plain", kind)
		}
	}
}

// CounterAt and FastCounter, combined as in a table, decide as Fast does.
func TestFastCounterIsFast(t *testing.T) {
	first := seed(t)
	var same, before, denied int
	for i := range uint64(soak(3000)) {
		rnd := rand.New(rand.NewPCG(first+i, 2))
		p := step.Compile(drawCounter(rnd))
		for range 60 {
			now, cost := 1e15+rnd.Int64N(1e15), 1+rnd.Int64N(p.Count)
			fresh, weight := p.CounterAt(now)
			if fresh <= now+p.Length || fresh > now+2*p.Length || fresh%p.Length != 0 || weight < 1 || weight > 1<<16 {
				t.Fatalf("seed %d: length %d at %d: fresh %d, weight %d", first+i, p.Length, now, fresh, weight)
			}
			passed := rnd.Uint64N(2)
			value := uint64(rnd.Int64N(p.Count+1)) | uint64(rnd.Int64N(p.Count+1))<<32
			after, left := p.FastCounter(value, passed, weight, cost)
			wantFresh, want, retry, remaining := p.Fast(fresh-int64(passed)*p.Length, value, p.Shape(), now, cost)
			if retry == step.Undecided || (left >= 0) != (retry == step.Fits) {
				t.Fatalf("seed %d: %+v, value %x, passed %d, cost %d at %d: left %d, Plain's retry is %d",
					first+i, p, value, passed, cost, now, left, retry)
			}
			if left < 0 {
				denied++
				continue
			}
			if fresh != wantFresh || after != want || left != remaining {
				t.Fatalf("seed %d: %+v, value %x, passed %d, cost %d at %d: fresh %d, value %x, left %d; Plain says %d, %x, %d",
					first+i, p, value, passed, cost, now, fresh, after, left, wantFresh, want, remaining)
			}
			if passed == 0 {
				same++
			} else {
				before++
			}
		}
	}
	if same == 0 || before == 0 || denied == 0 {
		t.Errorf("%d fit in their window, %d in the next, %d were denied: the test tests nothing", same, before, denied)
	}
}
