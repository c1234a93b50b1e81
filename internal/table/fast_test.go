package table

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// FastBatch has the same results and effects as Apply.
func TestFastBatchEqualsApply(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	whole := step.Compile(step.Params{Kind: step.Bucket, Count: 6, Length: minute, Burst: 6})
	params := []*step.Params{&whole, &windowParams, &counterParams}
	seed := NewSeed()
	short, long := New(Config{MaxBytes: MinBytes, Seed: &seed}), New(Config{MaxBytes: MinBytes, Seed: &seed})
	now := start
	plain, vetoed := 0, 0
	for range soak(30_000) {
		now += rng.Int64N(4 * second)
		n := 1 + rng.IntN(4)
		takes, ops, answers := make([]FastTake, n), make([]group.Op, n), make([]step.Answer, n)
		for i := range takes {
			p, key, cost, shadow := params[rng.IntN(len(params))], fmt.Sprint(rng.IntN(20)), 1+rng.Int64N(3), rng.IntN(4) == 0
			ops[i] = group.Op{Key: key, Params: p, Request: step.Request{Cost: cost}, Shadow: shadow}
			takes[i] = FastTake{Hash: short.Locate(group.RuleID{}, key, p), Params: p, Cost: cost, Shadow: shadow}
		}
		ok := short.FastBatch(takes, now)
		long.Apply(now, ops, answers)
		if !ok {
			short.Apply(now, ops, make([]step.Answer, n))
			continue
		}
		plain++
		for i, k := range takes {
			a := answers[i]
			if k.Allowed != a.Allowed || k.Retry != a.RetryAfter || k.Remaining != a.Remaining || k.Fresh-now != a.ResetAfter || k.Charged != (a.Granted > 0) {
				t.Fatalf("take %d of %d, kind %d, cost %d: together %+v, Apply %+v", i, n, k.Params.Kind, k.Cost, k, a)
			}
			if a.Allowed && a.Granted == 0 {
				vetoed++
			}
		}
	}
	if plain == 0 || vetoed == 0 {
		t.Errorf("%d calls were fast, %d takes were vetoed: too few for the test", plain, vetoed)
	}
}
