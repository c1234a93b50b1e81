package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

var background = context.Background()

func newLimiter(t *testing.T, limit sluice.Limit, opts ...sluice.Option) *sluice.Limiter {
	t.Helper()
	l, err := sluice.New(memstore.New(), "test", limit, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustRule(t *testing.T, r sluice.Rule) *sluice.Rule {
	t.Helper()
	rule, err := sluice.NewRule(r)
	if err != nil {
		t.Fatal(err)
	}
	return rule
}

func mustAllow(t *testing.T, l *sluice.Limiter, key string, n int64) sluice.Decision {
	t.Helper()
	d, err := l.AllowN(background, key, n)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func remaining(t *testing.T, l *sluice.Limiter, key string) int64 {
	t.Helper()
	d, err := l.Peek(background, key)
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

func TestAllow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, sluice.PerMinute(3))
		for i := range int64(3) {
			d := mustAllow(t, l, "k", 1)
			want := sluice.Decision{
				Allowed: true, Limit: 3, Granted: 1, Remaining: 2 - i, Receipt: time.Now().UnixMicro(),
				ResetAfter: time.Duration(i+1) * 20 * time.Second, Rule: l.Rules()[0],
			}
			if d != want {
				t.Errorf("request %d: %+v, want %+v", i, d, want)
			}
		}
		want := sluice.Decision{Limit: 3, Receipt: time.Now().UnixMicro(), RetryAfter: 20 * time.Second, ResetAfter: time.Minute, Rule: l.Rules()[0]}
		if d := mustAllow(t, l, "k", 1); d != want {
			t.Errorf("request 4: %+v, want %+v", d, want)
		}
		if d := mustAllow(t, l, "other", 1); !d.Allowed {
			t.Errorf("another key: %+v", d)
		}
		if d := mustAllow(t, l, "k", 4); !d.ExceedsLimit {
			t.Errorf("a cost of 4 of 3: %+v", d)
		}
		<-time.After(20 * time.Second)
		if d := mustAllow(t, l, "k", 1); !d.Allowed {
			t.Errorf("after Retry-After: %+v", d)
		}
	})
}

func TestAllowUpTo(t *testing.T) {
	l := newLimiter(t, sluice.PerHour(10))
	for _, step := range []struct{ least, most, granted int64 }{{1, 7, 7}, {4, 9, 0}, {2, 9, 3}, {1, 1, 0}} {
		d, err := l.AllowUpTo(background, "k", step.least, step.most)
		if err != nil {
			t.Fatal(err)
		}
		if d.Granted != step.granted || d.Allowed != (step.granted > 0) {
			t.Errorf("%d to %d: %+v, want %d", step.least, step.most, d, step.granted)
		}
	}
	for _, bad := range [][2]int64{{0, 1}, {-1, 1}, {2, 1}} {
		if _, err := l.AllowUpTo(background, "k", bad[0], bad[1]); !errors.Is(err, sluice.ErrInvalid) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

func TestSeveralRulesAllOrNothing(t *testing.T) {
	burst := mustRule(t, sluice.Rule{Name: "burst", Limit: sluice.PerHour(5)})
	daily := mustRule(t, sluice.Rule{Name: "daily", Limit: sluice.PerDay(3).WithAlgorithm(sluice.FixedWindow)})
	l := sluice.Must(sluice.NewWithRules(memstore.New(), []*sluice.Rule{burst, daily}))
	for i := range 4 {
		if d := mustAllow(t, l, "k", 1); d.Allowed != (i < 3) {
			t.Errorf("request %d: %+v", i, d)
		}
	}
	takes := []sluice.Take{{Rule: burst, Key: "k"}, {Rule: daily, Key: "k"}}
	out := make([]sluice.Decision, 2)
	if _, err := l.Decide(background, takes, out); err != nil {
		t.Fatal(err)
	}
	if out[0].Remaining != 2 || out[1].Remaining != 0 {
		t.Errorf("the denied request was charged: %d and %d remain, want 2 and 0", out[0].Remaining, out[1].Remaining)
	}
}

func TestShadowReportsAndNeverDenies(t *testing.T) {
	var denied []string
	events := sluice.Events{OnDenial: func(_ context.Context, take sluice.Take, d sluice.Decision) {
		denied = append(denied, fmt.Sprintf("%s/%v/%v", take.Rule.Name, d.Allowed, d.ShadowDenied))
	}}
	real := mustRule(t, sluice.Rule{Name: "real", Limit: sluice.PerHour(3)})
	shadow := mustRule(t, sluice.Rule{Name: "candidate", Limit: sluice.PerHour(1), Shadow: true})
	l := sluice.Must(sluice.NewWithRules(memstore.New(), []*sluice.Rule{real, shadow}, sluice.WithEvents(events)))
	for i := range 4 {
		if d := mustAllow(t, l, "k", 1); d.Allowed != (i < 3) {
			t.Errorf("request %d: %+v", i, d)
		}
	}
	want := "[candidate/true/true candidate/true/true real/false/false candidate/true/true]"
	if got := fmt.Sprint(denied); got != want {
		t.Errorf("denials reported: %s, want %s", got, want)
	}
	alone := sluice.Must(sluice.NewWithRules(memstore.New(), []*sluice.Rule{shadow}))
	for range 3 {
		if d := mustAllow(t, alone, "k", 1); !d.Allowed {
			t.Errorf("a shadow rule denied: %+v", d)
		}
	}
}

func TestEvents(t *testing.T) {
	var decided, denied int
	l := newLimiter(t, sluice.PerHour(2), sluice.WithEvents(sluice.Events{
		OnDecision: func(_ context.Context, take sluice.Take, d sluice.Decision) {
			decided++
			if take.Key != "k" || take.Rule.Name != "test" || d.Limit != 2 {
				t.Errorf("reported %+v %+v", take, d)
			}
		},
		OnDenial: func(context.Context, sluice.Take, sluice.Decision) { denied++ },
	}))
	for range 5 {
		mustAllow(t, l, "k", 1)
	}
	remaining(t, l, "k")
	if decided != 5 || denied != 3 {
		t.Errorf("%d decided and %d denied, want 5 and 3", decided, denied)
	}
}

func TestLimitForKey(t *testing.T) {
	gold := sluice.Must(sluice.PerHour(5).Build())
	l := newLimiter(t, sluice.PerHour(2), sluice.WithLimitFor(func(_ context.Context, key string) *sluice.Limit {
		if strings.HasPrefix(key, "gold:") {
			return gold
		}
		return nil
	}))
	for key, want := range map[string]int64{"gold:a": 5, "b": 2} {
		if d := mustAllow(t, l, key, 1); d.Limit != want || d.Remaining != want-1 {
			t.Errorf("%s: %+v, want a limit of %d", key, d, want)
		}
		if got := remaining(t, l, key); got != want-1 {
			t.Errorf("%s: %d remain, want %d", key, got, want-1)
		}
	}
	two := []*sluice.Rule{mustRule(t, sluice.Rule{Name: "a", Limit: sluice.PerHour(1)}), mustRule(t, sluice.Rule{Name: "b", Limit: sluice.PerHour(1)})}
	if _, err := sluice.NewWithRules(memstore.New(), two, sluice.WithLimitFor(nil), sluice.WithLimitFor(func(context.Context, string) *sluice.Limit { return nil })); !errors.Is(err, sluice.ErrInvalid) {
		t.Errorf("LimitFor with two rules: %v", err)
	}
}

func TestReserveSettleCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, sluice.PerHour(100))
		reserve := func(n int64) *sluice.Reservation {
			t.Helper()
			r, err := l.Reserve(background, "k", n)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		settle := func(r *sluice.Reservation, actual, want int64) {
			t.Helper()
			if err := r.Settle(background, actual); err != nil {
				t.Fatal(err)
			}
			if got := remaining(t, l, "k"); got != want {
				t.Errorf("settled at %d: %d remain, want %d", actual, got, want)
			}
		}
		r := reserve(60)
		settle(r, 40, 60)
		settle(r, 0, 60) // settling twice does nothing
		settle(reserve(60), 60, 0)
		if r := reserve(1); r.Allowed {
			t.Errorf("reserved from an empty bucket: %+v", r.Decision)
		} else {
			settle(r, 50, 0) // denied, so there is nothing to settle
		}
		<-time.After(time.Hour)
		settle(reserve(50), 150, 0) // balance −50
		<-time.After(30 * time.Minute)
		if got := remaining(t, l, "k"); got != 0 {
			t.Errorf("half an hour after a negative balance of half an hour %d remain, want 0", got)
		}
		<-time.After(36 * time.Second)
		if got := remaining(t, l, "k"); got != 1 {
			t.Errorf("%d remain, want 1", got)
		}
		<-time.After(2 * time.Hour)
		r = reserve(30)
		<-time.After(6 * time.Minute) // 10 of the 30 are replenished
		if err := r.Cancel(background); err != nil {
			t.Fatal(err)
		}
		if got := remaining(t, l, "k"); got != 100 {
			t.Errorf("cancelled: %d remain, want 100", got)
		}
		if got := mustAllow(t, l, "k", 100); !got.Allowed || mustAllow(t, l, "k", 1).Allowed {
			t.Error("a cancelled reservation minted tokens")
		}
	})
}

// Only failed logins count: each attempt is reserved, and cancelled if the login succeeds.
func TestChargeByOutcome(t *testing.T) {
	l := newLimiter(t, sluice.PerHour(3).WithAlgorithm(sluice.SlidingWindowLog))
	login := func(right bool) bool {
		r, err := l.Reserve(background, "user", 1)
		if err != nil {
			t.Fatal(err)
		}
		if r.Allowed && right {
			if err := r.Cancel(background); err != nil {
				t.Fatal(err)
			}
		}
		return r.Allowed
	}
	for range 20 {
		if !login(true) {
			t.Fatal("a right password was limited")
		}
	}
	for i := range 5 {
		if login(false) != (i < 3) {
			t.Errorf("wrong password %d", i+1)
		}
	}
}

func TestResetAndBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, sluice.PerHour(1))
		mustAllow(t, l, "k", 1)
		if err := l.Reset(background, "k"); err != nil {
			t.Fatal(err)
		}
		if !mustAllow(t, l, "k", 1).Allowed {
			t.Error("reset did not reset")
		}
		if err := l.Block(background, "b", time.Minute); err != nil {
			t.Fatal(err)
		}
		if d := mustAllow(t, l, "b", 1); d.Allowed || d.RetryAfter != time.Minute {
			t.Errorf("blocked key: %+v", d)
		}
		if err := l.Block(background, "b", 0); err != nil {
			t.Fatal(err)
		}
		if d := mustAllow(t, l, "b", 1); !d.Allowed {
			t.Errorf("the block was lifted: %+v", d)
		}
		if err := l.Block(background, "b", -1); !errors.Is(err, sluice.ErrInvalid) {
			t.Errorf("a negative block: %v", err)
		}
	})
}

func TestEscalate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, sluice.PerHour(10))
		ladder := sluice.Escalation{Blocks: []time.Duration{time.Minute, 5 * time.Minute, time.Hour}, ForgetAfter: 24 * time.Hour}
		for i, want := range []time.Duration{time.Minute, 5 * time.Minute, time.Hour, time.Hour} {
			got, err := l.Escalate(background, "k", ladder)
			if err != nil || got != want {
				t.Errorf("offence %d: %v, %v, want %v", i+1, got, err, want)
			}
			if d := mustAllow(t, l, "k", 1); d.Allowed || d.RetryAfter != want {
				t.Errorf("offence %d: %+v", i+1, d)
			}
		}
		<-time.After(25 * time.Hour)
		if got, err := l.Escalate(background, "k", ladder); got != time.Minute || err != nil {
			t.Errorf("after a day: %v, %v", got, err)
		}
		if _, err := l.Escalate(background, "k", sluice.Escalation{}); !errors.Is(err, sluice.ErrInvalid) {
			t.Errorf("an empty ladder: %v", err)
		}
	})
}

func TestConcurrentAllowIsExact(t *testing.T) {
	l := newLimiter(t, sluice.PerDay(500))
	var wg sync.WaitGroup
	var mu sync.Mutex
	admitted := 0
	for range 16 {
		wg.Go(func() {
			n := 0
			for range 100 {
				if d, err := l.Allow(background, "k"); err == nil && d.Allowed {
					n++
				}
			}
			mu.Lock()
			admitted += n
			mu.Unlock()
		})
	}
	wg.Wait()
	if admitted != 500 {
		t.Errorf("%d admitted, want 500", admitted)
	}
}

func TestWrongUse(t *testing.T) {
	l := newLimiter(t, sluice.PerHour(1))
	rule := l.Rules()[0]
	calls := map[string]func() error{
		"cost 0":     func() error { _, err := l.AllowN(background, "k", 0); return err },
		"cost -1":    func() error { _, err := l.AllowN(background, "k", -1); return err },
		"wait for 0": func() error { return l.WaitN(background, "k", 0) },
		"reserve 0":  func() error { _, err := l.Reserve(background, "k", 0); return err },
		"raw rule":   func() error { return decide(l, sluice.Take{Rule: &sluice.Rule{Name: "raw"}, Cost: 1}) },
		"no rule":    func() error { return decide(l, sluice.Take{Cost: 1}) },
		"raw limit":  func() error { return decide(l, sluice.Take{Rule: rule, Limit: &sluice.Limit{Count: 1}, Cost: 1}) },
		"raw limit for": func() error {
			raw := func(context.Context, string) *sluice.Limit { return &sluice.Limit{Count: 1} }
			_, err := newLimiter(t, sluice.PerHour(1), sluice.WithLimitFor(raw)).Allow(background, "k")
			return err
		},
		"back, no At":  func() error { return decide(l, sluice.Take{Rule: rule, Cost: -1}) },
		"huge cost":    func() error { return decide(l, sluice.Take{Rule: rule, Cost: 1 << 60}) },
		"Min > Cost":   func() error { return decide(l, sluice.Take{Rule: rule, Cost: 1, MinGrant: 2}) },
		"no room":      func() error { _, err := l.Decide(background, make([]sluice.Take, 2), nil); return err },
		"nil store":    func() error { _, err := sluice.New(nil, "r", sluice.PerHour(1)); return err },
		"twice a name": func() error { _, err := sluice.NewWithRules(memstore.New(), []*sluice.Rule{rule, rule}); return err },
		"nil in rules": func() error { _, err := sluice.NewWithRules(memstore.New(), []*sluice.Rule{nil}); return err },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, sluice.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := sluice.New(memstore.New(), "", sluice.PerHour(1)); err == nil {
		t.Error("a rule without a name was accepted")
	}
}

func decide(l *sluice.Limiter, t sluice.Take) error {
	_, err := l.Decide(background, []sluice.Take{t}, make([]sluice.Decision, 1))
	return err
}
