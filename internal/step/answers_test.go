package step_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluiceproject/sluice/internal/step"
)

// The fields of a decision are checked against the decisions about other requests.

// Remaining is the maximum cost that is allowed now without MaxDelay, and Limit the maximum that can ever be allowed.
func TestAnswersRemainingAndLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, now := drawUsed(t)
		allowed := func(k *key, now, cost int64) bool { return k.clone().allow(now, cost) }
		for _, left := range []int64{k.take(now, drawRequest(t, k.p)).Remaining, k.peek(now)} {
			if left > 0 && !allowed(k, now, left) || allowed(k, now, left+1) {
				t.Fatalf("%v: %d remain at %d: that is allowed %v, and 1 more %v",
					k, left, now, allowed(k, now, left), allowed(k, now, left+1))
			}
		}
		limit, fresh := k.p.Limit(), newKey(*k.p)
		if k.p.HasInitial {
			fresh.take(now-day/2, step.Request{Begin: true}) // the bucket has been full since then
		}
		if !allowed(fresh, now, limit) || !fresh.take(now, step.Request{Cost: limit + 1}).Never {
			t.Fatalf("%v: %d is not the largest cost that is ever allowed", k, limit)
		}
	})
}

// A peek is decided as a request of cost 1.
func TestAnswersPeekIsTakeOfOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, now := drawUsed(t)
		patience := rapid.SampledFrom([]int64{0, 1, k.p.Length / 3, 2 * k.p.Length}).Draw(t, "patience")
		if rapid.Bool().Draw(t, "changed") {
			k = k.under(*drawOther(t, k.p))
		}
		one := k.clone().take(now, step.Request{Cost: 1, MaxDelay: patience})
		peek := k.take(now, step.Request{MaxDelay: patience})
		if peek.Allowed != one.Allowed || peek.Never != one.Never || peek.RetryAfter != one.RetryAfter || peek.Delay != one.Delay || peek.Granted != 0 {
			t.Fatalf("%v: peek %+v\nbut 1 is %+v", k, peek, one)
		}
		if left := peek.Remaining > 0; patience == 0 && left != peek.Allowed {
			t.Fatalf("%v: %+v", k, peek)
		}
	})
}

// drawOther draws a limit of the same kind with other numbers.
func drawOther(t *rapid.T, p *step.Params) *step.Params {
	other := *p
	other.Count = min(rapid.Int64Range(1, 40).Draw(t, "other count"), step.MaxLogCount)
	other.Length = rapid.Int64Range(400, 9000).Draw(t, "other length") * 3
	if p.Align == step.Calendar {
		other.Length = p.Length
	}
	return &other
}
