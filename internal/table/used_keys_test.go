package table

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/sluiceproject/sluice/internal/step"
)

// When memory is full no key is ever allowed more than its limit, while keys return at any time, expire and return
// again: each key's allowed requests are compared with the definition of its limit. New keys are allowed.
func TestUsedKeysNeverForget(t *testing.T) {
	const window, limit, keys, takes = 3 * second, 2, 80_000, 170_000
	for name, p := range map[string]step.Params{
		"bucket": {Kind: step.Bucket, Count: limit, Length: window, Burst: limit},
		"window": {Kind: step.Window, Count: limit, Length: window},
		"log":    {Kind: step.Log, Count: limit, Length: window},
	} {
		t.Run(name, func(t *testing.T) {
			p := step.Compile(p)
			tb := New(Config{MaxBytes: MinBytes})
			rnd := rand.New(rand.NewPCG(1, 2))
			allowed := make([][]int64, keys)
			now, first, reused := start, 0, map[*usedKeysPart]bool{}
			var newcomers int
			for range takes {
				now += 40 // 10 s in total
				i := rnd.IntN(keys)
				if rnd.IntN(4) == 0 {
					i = rnd.IntN(100) // keys with constant traffic
				}
				a := take(tb, strconv.Itoa(i), &p, now, step.Request{Cost: 1})
				if q := tb.sketch.usedKeys.current[0]; q != nil {
					reused[q] = true
				}
				if allowed[i] == nil {
					newcomers++
				}
				if !a.Allowed {
					continue
				}
				if allowed[i] == nil {
					first++
				}
				allowed[i] = append(allowed[i], now)
			}
			for i, times := range allowed {
				if over := overLimit(p.Kind, times, window, limit); over > 0 {
					t.Fatalf("key %d has been allowed %v: more than %d in %d µs at %d", i, times, limit, window, over)
				}
			}
			t.Logf("%d of %d first requests were allowed; %d parts were used", first, newcomers, len(reused))
			if !tb.sketch.busy(now) || len(reused) < 2 {
				t.Errorf("the sketch was not filled: %d parts were used", len(reused))
			}
		})
	}
}

// overLimit returns the first time at which more was allowed than the definition of the limit permits, or 0.
func overLimit(kind step.Kind, times []int64, window, limit int64) int64 {
	tokens, last := limit*window, int64(0) // of a bucket, in 1/window
	for i, at := range times {
		n := int64(0)
		for _, before := range times[:i+1] {
			switch kind {
			case step.Window:
				if before/window == at/window {
					n++
				}
			case step.Log:
				if before > at-window {
					n++
				}
			}
		}
		if kind == step.Bucket {
			if i > 0 {
				tokens = min(limit*window, tokens+(at-last)*limit)
			}
			last = at
			if tokens -= window; tokens < 0 {
				return at
			}
		}
		if n > limit {
			return at
		}
	}
	return 0
}
