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

// broken is a store with one known defect.
type broken struct {
	name string
	// open returns a reference store with the defect, on this clock.
	open func(clock *Clock) sluice.Store
	// caught lists the checks that must fail.
	caught string
}

// hooked is a reference store whose calls and decisions are modified by hooks.
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

// tampered returns a store that hook has modified.
func tampered(hook func(h *hooked)) func(clock *Clock) sluice.Store {
	return func(clock *Clock) sluice.Store {
		h := &hooked{Reference: NewReference(clock)}
		hook(h)
		return h
	}
}

// asking returns a store that modifies its takes.
func asking(ask func(t *sluice.Take)) func(clock *Clock) sluice.Store {
	return tampered(func(h *hooked) { h.ask = ask })
}

// answering returns a store that modifies its decisions.
func answering(answer func(t *sluice.Take, d *sluice.Decision)) func(clock *Clock) sluice.Store {
	return tampered(func(h *hooked) { h.answer = answer })
}

// onClock returns a correct store on a clock that is read wrongly.
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

// remaking replaces the rule of a take by a copy with one difference.
func remaking(change func(r *sluice.Rule)) func(t *sluice.Take) {
	var remade sync.Map // modified rules by original rule
	return func(t *sluice.Take) {
		made, ok := remade.Load(t.Rule)
		if !ok {
			changed := *t.Rule
			change(&changed)
			rule, err := sluice.NewRule(changed)
			if err != nil { // the limit cannot be changed in this way
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

// racing reads, yields to other callers, and then writes the result of its outdated read.
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
			t.Receipt = clock.Now().UnixMicro() // charged regardless of the limit
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

// shortLived rounds TTLs down to whole seconds, so that a shorter state is deleted at once.
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

// backwards stores every time as the last one, like x/time: each step forward is credited, even if it was credited
// before.
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

// joined identifies a bucket by rule and key, joined by a colon.
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

// keepingTime keeps the time when a bucket is full, regardless of changed limit parameters.
func keepingTime(h *hooked) {
	h.ask = func(t *sluice.Take) {
		if m, ok := h.meter(t).(*bucketMeter); ok {
			m.fill, m.burst = fillOf(t.EffectiveLimit()), t.EffectiveLimit().Burst
		}
	}
}
