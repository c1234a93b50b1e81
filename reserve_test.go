package sluice_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

// spendAndHold returns a rule with a rate limit and one with a concurrency limit.
func spendAndHold(t *testing.T) []*sluice.Rule {
	return []*sluice.Rule{
		mustRule(t, sluice.Rule{Name: "rate", Limit: sluice.PerHour(100)}),
		mustRule(t, sluice.Rule{Name: "flight", Limit: sluice.Concurrent(2)}),
	}
}

// takesOf returns takes of all rules; those of concurrency limits cost 1.
func takesOf(l *sluice.Limiter, key string, cost int64) []sluice.Take {
	takes := l.Takes(context.Background(), nil, key, cost)
	for i := range takes {
		if takes[i].EffectiveLimit().Algorithm == sluice.Concurrency {
			takes[i].Cost = 1
		} else {
			takes[i].Settles = true
		}
	}
	return takes
}

func remainingOf(t *testing.T, l *sluice.Limiter, key string) (left []int64) {
	t.Helper()
	takes := l.Takes(t.Context(), nil, key, 0)
	out := make([]sluice.Decision, len(takes))
	if _, err := l.Decide(t.Context(), takes, out); err != nil {
		t.Fatal(err)
	}
	for i := range out {
		left = append(left, out[i].Remaining)
	}
	return left
}

func TestTakes(t *testing.T) {
	gold := sluice.Must(sluice.PerHour(7).Build())
	l := newLimiter(t, sluice.PerHour(2), sluice.WithLimitFor(func(_ context.Context, key string) *sluice.Limit {
		if key == "gold" {
			return gold
		}
		return nil
	}))
	before := []sluice.Take{{Key: "before"}}
	takes := l.Takes(t.Context(), before, "gold", 3)
	if len(takes) != 2 || takes[0].Key != "before" {
		t.Fatalf("not appended: %+v", takes)
	}
	if got := takes[1]; got.Rule != l.Rules()[0] || got.Limit != gold || got.Key != "gold" || got.Cost != 3 {
		t.Errorf("%+v", got)
	}
	if got := l.Takes(t.Context(), nil, "other", 1)[0]; got.Limit != nil {
		t.Errorf("another key's limit is %v", got.Limit)
	}
}

// TestReserveTakes: the settlement replaces charges and releases permits.
func TestReserveTakes(t *testing.T) {
	l := sluice.Must(sluice.NewWithRules(memstore.New(), spendAndHold(t)))
	var all []*sluice.Reservation
	for range 3 {
		r, err := l.ReserveTakes(t.Context(), takesOf(l, "k", 10))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	if !all[1].Allowed || all[2].Allowed || all[2].Limit != 2 || all[2].Permit() != nil || len(all[2].Decisions()) != 2 {
		t.Fatalf("the second: %+v, the third: %+v", all[1].Decision, all[2].Decision)
	}
	if left := remainingOf(t, l, "k"); !slices.Equal(left, []int64{80, 0}) {
		t.Errorf("remaining: %v", left)
	}
	if err := all[0].Settle(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	all[1].Permit().Release(t.Context())
	if left := remainingOf(t, l, "k"); !slices.Equal(left, []int64{86, 2}) {
		t.Errorf("remaining after one was settled and the other's permit released: %v", left)
	}
	for range 2 { // the second call changes nothing
		if err := errors.Join(all[1].Cancel(t.Context()), all[2].Cancel(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	if left := remainingOf(t, l, "k"); !slices.Equal(left, []int64{96, 2}) {
		t.Errorf("remaining after all were cancelled: %v", left)
	}
}

func TestSettleEach(t *testing.T) {
	rules := []*sluice.Rule{
		mustRule(t, sluice.Rule{Name: "requests", Limit: sluice.PerHour(10)}),
		mustRule(t, sluice.Rule{Name: "tokens", Limit: sluice.PerHour(1000)}),
	}
	l := sluice.Must(sluice.NewWithRules(memstore.New(), rules))
	takes := takesOf(l, "k", 1)
	takes[1].Cost = 500
	r := sluice.Must(l.ReserveTakes(t.Context(), takes))
	for _, wrong := range [][]int64{nil, {1}, {1, -1}} {
		if err := r.SettleEach(t.Context(), wrong); !errors.Is(err, sluice.ErrInvalid) {
			t.Errorf("%v: %v", wrong, err)
		}
	}
	if err := r.SettleEach(t.Context(), []int64{1, 20}); err != nil {
		t.Fatal(err)
	}
	if left := remainingOf(t, l, "k"); !slices.Equal(left, []int64{9, 980}) {
		t.Errorf("remaining: %v", left)
	}
}

// TestRetry: a reservation that is retried is reported as denied once, and as allowed when it is allowed.
func TestRetry(t *testing.T) {
	var denied, allowed int
	l := sluice.Must(sluice.NewWithRules(memstore.New(), spendAndHold(t)[1:], sluice.WithEvents(sluice.Events{
		OnDecision: func(_ context.Context, _ sluice.Take, d sluice.Decision) {
			if d.Allowed {
				allowed++
			} else {
				denied++
			}
		},
	})))
	first := sluice.Must(l.ReserveTakes(t.Context(), takesOf(l, "k", 1)))
	second := sluice.Must(l.ReserveTakes(t.Context(), takesOf(l, "k", 1)))
	third := sluice.Must(l.ReserveTakes(t.Context(), takesOf(l, "k", 1)))
	for range 3 {
		if err := third.Retry(t.Context()); err != nil || third.Allowed {
			t.Fatalf("%+v %v", third.Decision, err)
		}
	}
	if err := first.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // an allowed reservation is not decided again
		if err := third.Retry(t.Context()); err != nil || !third.Allowed || third.Permit() == nil {
			t.Fatalf("%+v %v", third.Decision, err)
		}
	}
	if denied != 1 || allowed != 3 {
		t.Errorf("reported %d times as denied and %d times as allowed, want 1 and 3", denied, allowed)
	}
	if err := errors.Join(second.Cancel(t.Context()), third.Cancel(t.Context())); err != nil {
		t.Fatal(err)
	}
}

func TestReserveTakesRefuses(t *testing.T) {
	l := newLimiter(t, sluice.PerHour(2))
	for name, takes := range map[string][]sluice.Take{
		"no takes": nil,
		"a peek":   l.Takes(t.Context(), nil, "k", 0),
		"a refund": l.Takes(t.Context(), nil, "k", -1),
		"no rule":  {{Key: "k", Cost: 1}},
	} {
		if r, err := l.ReserveTakes(t.Context(), takes); r != nil || !errors.Is(err, sluice.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBlocked(t *testing.T) {
	l := newLimiter(t, sluice.PerHour(2))
	blocked := func() time.Duration { return sluice.Must(l.Blocked(t.Context(), "k")) }
	if d := blocked(); d != 0 {
		t.Errorf("blocked for %v though never blocked", d)
	}
	if err := l.Block(t.Context(), "k", time.Hour); err != nil {
		t.Fatal(err)
	}
	if d := blocked(); d <= 59*time.Minute || d > time.Hour {
		t.Errorf("blocked for %v of an hour", d)
	}
	if err := l.Block(t.Context(), "k", 0); err != nil {
		t.Fatal(err)
	}
	if d := blocked(); d != 0 {
		t.Errorf("blocked for %v though the block was lifted", d)
	}
	if _, err := l.BlockedBucket(t.Context(), sluice.Bucket{Key: "k"}); !errors.Is(err, sluice.ErrInvalid) {
		t.Errorf("a bucket without a rule: %v", err)
	}
}

// A reservation holds one permit of a concurrency limit until it is settled, whatever its cost.
func TestReserveHoldsPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = time.Second
		limiter := sluice.Must(sluice.NewWithRules(memstore.New(), []*sluice.Rule{
			mustRule(t, sluice.Rule{Name: "tokens", Limit: sluice.PerHour(1000)}),
			mustRule(t, sluice.Rule{Name: "in-flight", Limit: sluice.Concurrent(2).WithPermitTTL(ttl)}),
		}))
		reserve := func(estimate int64) *sluice.Reservation {
			r, err := limiter.Reserve(t.Context(), "ada", estimate)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		first, second := reserve(400), reserve(300)
		if !first.Allowed || !second.Allowed || first.Permit() == nil {
			t.Fatalf("%+v, %+v, permit %v", first.Decision, second.Decision, first.Permit())
		}
		pause(5 * ttl) // permits are renewed
		if r := reserve(1); r.Allowed || r.Permit() != nil {
			t.Errorf("a third while two are held: %+v", r.Decision)
		}
		if err := first.Settle(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		if err := second.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r := reserve(850); !r.Allowed {
			t.Errorf("900 are left and none is in flight: %+v", r.Decision)
		} else if err := r.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := limiter.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
