package table

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// When memory is full, no key with an initial level is allowed more than initial + rate × T from its first request on,
// and 1 more if the level is 0 and the filters contain the key by accident. No key that waits for its RetryAfter is
// locked out.
func TestInitialWithoutRoom(t *testing.T) {
	for _, initial := range []int64{0, 3} {
		p := step.Compile(step.Params{Kind: step.Bucket, Count: 4, Length: second, Burst: 8, HasInitial: true, Initial: initial})
		tb := New(Config{MaxBytes: MinBytes})
		now := start
		for i := range 60_000 {
			take(tb, "flood"+strconv.Itoa(i), &p, now, step.Request{Cost: 1})
		}
		if !tb.sketch.busy(now) {
			t.Fatal("the sketch is not used")
		}
		rnd := rand.New(rand.NewPCG(1, 2))
		early := 0
		for i := range 200 {
			key, first, sum := "late"+strconv.Itoa(i), now, int64(0)
			for range 30 {
				a := take(tb, key, &p, now, step.Request{Cost: 1})
				sum += a.Granted
				if sum*p.Length > max(1, initial)*p.Length+p.Count*(now-first) {
					t.Fatalf("initial %d: key %d was allowed %d in %d µs", initial, i, sum, now-first)
				}
				if now == first && sum > initial {
					early++
				}
				if a.Allowed {
					now += rnd.Int64N(second / 2)
				} else {
					now += a.RetryAfter
				}
			}
			if sum < 10 {
				t.Errorf("initial %d: key %d was allowed %d of 30 requests", initial, i, sum)
			}
		}
		if early > 40 {
			t.Errorf("initial %d: %d of 200 keys were allowed something at once", initial, early)
		}
	}
}

// Put replaces a state, also one with marks, and that of a key without room.
func TestPut(t *testing.T) {
	p := step.Compile(step.Params{Kind: step.Bucket, Count: 10, Length: minute, Burst: 10, HasInitial: true, Initial: 2})
	tb := New(Config{MaxBytes: MinBytes})
	for i, prepare := range []step.Request{{}, {Cost: 1}, {Cost: 1, Settles: true}} {
		key := strconv.Itoa(i)
		take(tb, key, &p, start, prepare)
		for _, spent := range []int64{3, 0, 10} {
			tb.Put(tb.Hash(group.RuleID{A: 1, B: 2}, key), &p, start, p.Spent(start, spent))
			if a := take(tb, key, &p, start, step.Request{}); a.Remaining != 10-spent {
				t.Errorf("%+v, then %d spent: %d remain", prepare, spent, a.Remaining)
			}
		}
	}
	for i := range 60_000 {
		tb.Put(tb.Hash(group.RuleID{A: 1, B: 2}, "flood"+strconv.Itoa(i)), &p, start, p.Spent(start, 10))
	}
	for i := range 60_000 {
		if a := take(tb, "flood"+strconv.Itoa(i), &p, start, step.Request{Cost: 1}); a.Allowed {
			t.Fatalf("%d: %+v", i, a)
		}
	}
}
