package step_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluiceproject/sluice/internal/step"
)

// A state derived from decisions is equivalent to the true one: it has the same remaining quota, is fully reset at the
// same time, and makes the same decisions until others use the key.
func TestStateFromAnswer(t *testing.T) {
	all := []step.Params{
		step.Compile(step.Params{Kind: step.Bucket, Count: 7, Length: 1_000_000, Burst: 50}),
		step.Compile(step.Params{Kind: step.Bucket, Count: 1000, Length: 1_000_000, Burst: 20}),
		step.Compile(step.Params{Kind: step.Window, Count: 60, Length: 1_000_000}),
		step.Compile(step.Params{Kind: step.Window, Count: 60, Length: 1_000_000, Align: step.FirstHit}),
		step.Compile(step.Params{Kind: step.Counter, Count: 60, Length: 1_000_000}),
	}
	rapid.Check(t, func(r *rapid.T) {
		p := &all[rapid.IntRange(0, len(all)-1).Draw(r, "limit")]
		var truth, copied step.State
		now := int64(1_767_225_600_000_000)
		for range 30 {
			now += rapid.Int64Range(0, 300_000).Draw(r, "passed")
			cost := rapid.Int64Range(1, 12).Draw(r, "cost")
			var a step.Answer
			if rapid.Bool().Draw(r, "settles") { // may make the balance negative
				truth, a = p.Adjust(truth, nil, now, step.Settlement{At: now, Delta: cost})
			} else {
				truth, a = p.Take(truth, nil, now, step.Request{Cost: cost})
			}
			copied = p.StateFromAnswer(copied, now, a.Remaining, a.ResetAfter)
			_, want := p.Take(truth, nil, now, step.Request{})
			_, got := p.Take(copied, nil, now, step.Request{})
			// The derived bucket has no fraction of a microsecond, and so up to one unit less.
			less := want.Remaining - got.Remaining
			if less < 0 || less > 1 || less > 0 && p.Kind != step.Bucket || got.ResetAfter != want.ResetAfter {
				r.Fatalf("%+v: learned %+v, truth %+v: remains %+v, not %+v", p.Kind, copied, truth, got, want)
			}
			if s := p.Used(truth, now); p.Kind == step.Window && s != p.Used(copied, now) && want.Remaining > 0 || s < p.Limit()-want.Remaining-1 {
				r.Fatalf("spent %d, learned %d, %d remain", s, p.Used(copied, now), want.Remaining)
			}
		}
	})
}

// Whatever the local count of a counter, the derived state has exactly the remaining quota of the decision.
func TestStateFromAnswerOfLess(t *testing.T) {
	p := step.Compile(step.Params{Kind: step.Counter, Count: 60, Length: 1_000_000})
	const start = int64(1_767_225_600_000_000)
	for counted := int64(1); counted <= 20; counted++ {
		before, _ := p.Take(step.State{}, nil, start-1, step.Request{Cost: counted})
		for used := int64(1); used <= counted; used++ {
			for _, passed := range []int64{0, 1, 16, 1000, 250_000, 500_000, 900_000} {
				now := start + passed
				learned := p.StateFromAnswer(before, now, 60-used, start+2_000_000-now)
				if _, a := p.Take(learned, nil, now, step.Request{}); a.Remaining != 60-used || a.ResetAfter != start+2_000_000-now {
					t.Errorf("%d counted, %d used, after %d µs: %+v", counted, used, passed, a)
				}
			}
		}
	}
}
