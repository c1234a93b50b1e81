package storetest

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/storekit"
)

// broken is a store with one thing wrong with it.
type broken struct {
	name string
	// open breaks a reference store on this clock.
	open func(clock *Clock) sluice.Store
	// caught are the checks that must notice.
	caught string
}

// hooked is a reference store whose calls are tampered with on the way in and out.
type hooked struct {
	*Reference
	ask    func(t *sluice.Take)
	answer func(t *sluice.Take, d *sluice.Decision)
	apply  func(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error
	reset  func(ctx context.Context, b sluice.Bucket) error
	length func() int
}

func (h *hooked) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	asked := append([]sluice.Take(nil), takes...)
	if h.ask != nil {
		for i := range asked {
			if err := storekit.Validate(&asked[i]); err == nil {
				h.ask(&asked[i])
			}
		}
	}
	apply := h.apply
	if apply == nil {
		apply = h.Reference.Apply
	}
	if err := apply(ctx, asked, out); err != nil {
		return err
	}
	if h.answer != nil {
		for i := range takes {
			h.answer(&takes[i], &out[i])
		}
	}
	return nil
}

func (h *hooked) Reset(ctx context.Context, b sluice.Bucket) error {
	if h.reset != nil {
		return h.reset(ctx, b)
	}
	t := sluice.Take{Rule: b.Rule, Limit: b.Limit, Key: b.Key, HashTag: b.HashTag}
	if h.ask != nil {
		h.ask(&t)
	}
	return h.Reference.Reset(ctx, t.Bucket())
}

func (h *hooked) Block(ctx context.Context, b sluice.Bucket, d time.Duration) error {
	t := sluice.Take{Rule: b.Rule, Limit: b.Limit, Key: b.Key, HashTag: b.HashTag}
	if h.ask != nil {
		h.ask(&t)
	}
	return h.Reference.Block(ctx, t.Bucket(), d)
}

func (h *hooked) Blocked(ctx context.Context, b sluice.Bucket) (time.Duration, error) {
	t := sluice.Take{Rule: b.Rule, Limit: b.Limit, Key: b.Key, HashTag: b.HashTag}
	if h.ask != nil {
		h.ask(&t)
	}
	return h.Reference.Blocked(ctx, t.Bucket())
}

func (h *hooked) Len() int {
	if h.length != nil {
		return h.length()
	}
	return h.Reference.Len()
}

// tampered returns a store that hook has changed.
func tampered(hook func(h *hooked)) func(clock *Clock) sluice.Store {
	return func(clock *Clock) sluice.Store {
		h := &hooked{Reference: NewReference(clock)}
		hook(h)
		return h
	}
}

// asking returns a store that changes what it is asked.
func asking(ask func(t *sluice.Take)) func(clock *Clock) sluice.Store {
	return tampered(func(h *hooked) { h.ask = ask })
}

// answering returns a store that changes what it answers.
func answering(answer func(t *sluice.Take, d *sluice.Decision)) func(clock *Clock) sluice.Store {
	return tampered(func(h *hooked) { h.answer = answer })
}

// onClock returns a sound store on a clock that is read wrongly.
func onClock(read func(real time.Time) time.Time) func(clock *Clock) sluice.Store {
	return func(clock *Clock) sluice.Store {
		own := NewClock()
		var mu sync.Mutex
		h := &hooked{Reference: NewReference(own)}
		h.apply = func(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
			mu.Lock()
			defer mu.Unlock()
			own.Set(read(clock.Now()))
			return h.Reference.Apply(ctx, takes, out)
		}
		return h
	}
}

// remaking asks under a rule that is like the take's but for one thing.
func remaking(change func(r *sluice.Rule)) func(t *sluice.Take) {
	var remade sync.Map // of rules by the rule they were made from
	return func(t *sluice.Take) {
		made, ok := remade.Load(t.Rule)
		if !ok {
			changed := *t.Rule
			change(&changed)
			rule, err := sluice.NewRule(changed)
			if err != nil { // a limit that cannot be changed so
				rule = t.Rule
			}
			made, _ = remade.LoadOrStore(t.Rule, rule)
		}
		t.Rule = made.(*sluice.Rule)
	}
}

func overAdmitting(clock *Clock) sluice.Store {
	h := &hooked{Reference: NewReference(clock)}
	h.ask = remaking(func(r *sluice.Rule) {
		r.Limit.Count++
		if r.Limit.Burst > 0 {
			r.Limit.Burst++
		}
	})
	h.answer = func(t *sluice.Take, d *sluice.Decision) {
		if d.Limit > maxOf(t.EffectiveLimit()) {
			d.Limit, d.Remaining = d.Limit-1, max(0, d.Remaining-1)
		}
	}
	return h
}

// racing reads, lets others go ahead, and then writes what it made of what it read.
func racing(clock *Clock) sluice.Store {
	h := &hooked{Reference: NewReference(clock)}
	h.apply = func(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
		for i := range takes {
			t := takes[i]
			if t.Cost <= 0 || t.Receipt != 0 || len(takes) > 1 {
				return h.Reference.Apply(ctx, takes, out)
			}
			look := t
			look.Cost, look.MinGrant, look.IdempotencyID = 0, 0, 0
			if err := h.Reference.Apply(ctx, []sluice.Take{look}, out[i:i+1]); err != nil {
				return err
			}
			runtime.Gosched()
			if out[i].Remaining < t.Cost {
				return h.Reference.Apply(ctx, takes, out)
			}
			left := out[i].Remaining - t.Cost
			t.Receipt = clock.Now().UnixMicro() // charged whatever the limit says
			if err := h.Reference.Apply(ctx, []sluice.Take{t}, out[i:i+1]); err != nil {
				return err
			}
			out[i].Remaining = left
		}
		return nil
	}
	return h
}

func oneByOne(h *hooked) {
	h.apply = func(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
		for i := range takes {
			if err := h.Reference.Apply(ctx, takes[i:i+1], out[i:i+1]); err != nil {
				return err
			}
		}
		return nil
	}
}

// shortLived rounds a time to live down to whole seconds, and so deletes at once what lives shorter.
func shortLived(h *hooked) {
	h.apply = func(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
		if err := h.Reference.Apply(ctx, takes, out); err != nil {
			return err
		}
		for i := range takes {
			if out[i].ResetAfter < time.Second && takes[i].Cost > 0 {
				_ = h.Reference.Reset(ctx, takes[i].Bucket())
			}
		}
		return nil
	}
}

// neverForgetting counts every key it has ever seen.
func neverForgetting(h *hooked) {
	var mu sync.Mutex
	seen := map[string]bool{}
	h.ask = func(t *sluice.Take) {
		mu.Lock()
		defer mu.Unlock()
		seen[t.Rule.Name+"\x00"+t.Key] = true
	}
	h.length = func() int { return len(seen) }
}

// backwards takes whatever time it is told for the last, as x/time does: each step forward is credited, also one that
// was credited before.
func backwards() func(real time.Time) time.Time {
	var told, credited time.Time
	return func(real time.Time) time.Time {
		if credited.IsZero() {
			credited = real
		} else if real.After(told) {
			credited = credited.Add(real.Sub(told))
		}
		told = real
		return credited
	}
}

// joined names a bucket by rule and key with a colon between.
func joined() func(t *sluice.Take) {
	nameless := remaking(func(r *sluice.Rule) { r.Name = "r" })
	return func(t *sluice.Take) {
		t.Key = t.Rule.Name + ":" + t.Key
		nameless(t)
	}
}

func wrap32(t *sluice.Take) {
	if t.Cost > 0 {
		t.Cost = max(1, t.Cost&(1<<32-1))
		t.MinGrant = min(t.MinGrant, t.Cost)
	}
}

func fold(f func(string) string) func(t *sluice.Take) {
	return func(t *sluice.Take) { t.Key = f(t.Key) }
}

func cut(n int) func(string) string {
	return func(s string) string { return s[:min(n, len(s))] }
}

func untilNUL(s string) string {
	s, _, _ = strings.Cut(s, "\x00")
	return s
}

// keepingTime has buckets full when they would have been, whatever their numbers become.
func keepingTime(h *hooked) {
	h.ask = func(t *sluice.Take) {
		if m, ok := h.meter(t).(*bucketMeter); ok {
			m.fill, m.burst = fillOf(t.EffectiveLimit()), t.EffectiveLimit().Burst
		}
	}
}
