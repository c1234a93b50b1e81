package step_test

import (
	"math/rand/v2"
	"testing"

	"github.com/sluiceproject/sluice/internal/step"
)

// Plain decides as Take does, or not at all.
func TestPlainIsTake(t *testing.T) {
	first := seed(t)
	decided := map[step.Kind]int{}
	for i := range uint64(soak(6000)) {
		rnd := rand.New(rand.NewPCG(first+i, 1))
		draw := []func(*rand.Rand) step.Params{drawBucket, drawQueue, drawWindow, drawCounter}[rnd.IntN(4)]
		p := draw(rnd)
		if p.Kind == step.Bucket && rnd.IntN(2) == 0 { // rates whose drops take whole microseconds
			p.Count, p.Length, p.Burst = 1, 1+rnd.Int64N(1000), 1+rnd.Int64N(1000)
		}
		k := newKey(p)
		d := differ{T: t, rnd: rnd, key: k, now: 1e15 + rnd.Int64N(1e15)}
		d.model = newFixedWindow(k.p) // only asked for costs
		if p.Kind == step.Bucket {
			d.model = newTokenBucket(k.p)
		}
		for range 60 {
			if d.now += d.pause(); rnd.IntN(10) == 0 {
				d.now -= d.pause()
			}
			cost := d.cost()
			s := k.state
			fresh, value, retry, remaining := k.p.Plain(s.FreshAt, s.Value, s.Shape, d.now, cost)
			a := k.take(d.now, step.Request{Cost: cost})
			d.last = a
			if retry == step.Undecided {
				if fresh != s.FreshAt || value != s.Value {
					t.Fatalf("seed %d: %v: undecided, but changed", first+i, k)
				}
				continue
			}
			decided[p.Kind]++
			next := k.state
			if (retry == step.Fits) != a.Allowed || retry != step.Fits && retry != a.RetryAfter || remaining != a.Remaining || a.Never {
				t.Fatalf("seed %d: %v: cost %d at %d: retry %d, remaining %d; Take says %+v", first+i, k, cost, d.now, retry, remaining, a)
			}
			if fresh != next.FreshAt || value != next.Value {
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
