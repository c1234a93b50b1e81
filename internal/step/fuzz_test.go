package step_test

import (
	"encoding/binary"
	"testing"

	"github.com/sluiceproject/sluice/internal/step"
)

// tape is a fuzzer's bytes as numbers. After its end there are only zeros.
type tape []byte

func (b *tape) byte() int64 {
	if len(*b) == 0 {
		return 0
	}
	n := (*b)[0]
	*b = (*b)[1:]
	return int64(n)
}

// number returns up to 50 bits; small numbers are as likely as large ones.
func (b *tape) number() int64 {
	size := b.byte()
	var word [8]byte
	for i := range min(size%8, 7) {
		word[i] = byte(b.byte())
	}
	return int64(binary.LittleEndian.Uint64(word[:]) & (1<<50 - 1))
}

func (b *tape) within(least, most int64) int64 { return least + b.number()%(most-least+1) }

// limit returns any limit that package sluice accepts.
func (b *tape) limit() step.Params {
	p := step.Params{Kind: step.Kind(b.byte()%7 + 1), Length: b.within(1000, step.Year)}
	flags := b.byte()
	p.Nearest = flags&1 != 0
	switch p.Kind {
	case step.Bucket, step.Interval:
		p.Queue = p.Kind == step.Bucket && flags&2 != 0
		if p.Kind == step.Interval && flags&4 != 0 {
			p.Align = step.FirstHit
		}
		p.Count = b.within(1, 10*p.Length)
		p.Burst = b.within(1, max(1, step.Horizon/p.Length*p.Count))
		if p.Kind == step.Bucket && flags&10 == 8 {
			p.HasInitial, p.Initial = true, b.within(0, p.Burst)
		}
		return p
	case step.Log, step.Permits:
		p.Count = b.within(1, step.MaxLogCount)
		return p
	case step.Slices:
		p.Slices = b.within(2, step.MaxSlices)
		p.Length = max(p.Length/p.Slices, 1000) * p.Slices
	case step.Window:
		if flags&2 != 0 {
			p.SoftExcess, p.SoftPeriod = b.within(1, step.MaxWindowCount), b.within(1, 2*p.Length)
		}
		if flags&4 != 0 {
			p.Align = step.FirstHit
		}
	}
	p.Count = b.within(1, step.MaxWindowCount)
	return p
}

// FuzzTake runs any operations on any limit, with a clock that sometimes goes back, and with limits that change.
func FuzzTake(f *testing.F) {
	for kind := range byte(6) {
		f.Add([]byte{kind, 2, 60, 0, 1, 1, 5, 1, 10, 0, 0, 1, 3, 4, 0, 1, 1, 3, 1, 200, 5, 1, 2, 1, 1, 9, 2, 1, 1})
		f.Add([]byte{kind, 4, 255, 255, 255, 9, 7, 3, 1, 1, 1, 4, 9, 9, 9, 9, 200, 1, 7, 255, 255, 255, 255, 255, 255, 3})
	}
	f.Add([]byte("A0010X%00000%0000010\x00207$0000\xf020720010\x9c1010")) // a cost that exceeds the limit, then a clock that goes back
	f.Fuzz(func(t *testing.T, data []byte) {
		b := tape(data)
		k := newKey(b.limit())
		now := int64(epoch)
		var taken []take
		for range 64 {
			op := b.byte()
			if pause := b.number() % (3 * k.p.Length); op&0x80 == 0 {
				now += pause
			} else {
				now = max(1, now-pause)
			}
			switch {
			case op%8 == 7: // another limit of the same kind
				if p := newKey(b.limit()).p; p.Kind == k.p.Kind && p.Slices == k.p.Slices && !unnoticed(k.p, p) {
					k = k.under(*p)
				}
			case op%8 == 6 && len(taken) > 0:
				last := taken[len(taken)-1]
				taken = taken[:len(taken)-1]
				delta := b.number() - last.cost
				if op&32 != 0 { // a time that no take has
					last.at = int64(uint64(b.number())<<14 ^ uint64(b.number()))
				}
				checkAdjusted(t, k, k.adjust(now, last.at, delta), delta)
			default:
				r := step.Request{Cost: b.number(), Charge: op&16 != 0, DryRun: op&32 != 0}
				if op&64 != 0 && r.Cost > 0 {
					r.Min = b.within(1, r.Cost)
				}
				if op%8 == 5 {
					r.MaxDelay = b.number() % step.Year
				}
				before := k.state
				a := k.take(now, r)
				checkAnswer(t, k, r, before, a, now)
				if a.Granted > 0 && !r.DryRun {
					taken = append(taken, take{a.At, a.Granted})
				}
			}
			if len(b) == 0 {
				return
			}
		}
	})
}

func checkAdjusted(t *testing.T, k *key, a step.Answer, delta int64) {
	t.Helper()
	if a.Remaining < 0 || a.Remaining > k.p.Limit() || a.ResetAfter < 0 {
		t.Fatalf("%v: adjust by %d: %+v", k, delta, a)
	}
	if delta < 0 && (a.Granted > 0 || a.Granted < delta) || delta >= 0 && (a.Granted < 0 || a.Granted > delta) {
		t.Fatalf("%v: adjust by %d granted %d", k, delta, a.Granted)
	}
}

func checkAnswer(t *testing.T, k *key, r step.Request, before step.State, a step.Answer, now int64) {
	t.Helper()
	fail := func(what string) {
		t.Helper()
		t.Fatalf("%v: %s: %+v\n%+v\n%+v → %+v at %d", k, what, r, a, before, k.state, now)
	}
	switch least := max(1, r.Min); {
	case a.Remaining < 0 || a.Remaining > k.p.Limit():
		fail("remaining out of bounds")
	case r.Cost == 0 && a.Granted != 0, !a.Allowed && a.Granted != 0:
		fail("granted what was not asked for")
	case r.Cost > 0 && a.Allowed && (a.Granted > r.Cost || a.Granted < least || r.Min == 0 && a.Granted != r.Cost):
		fail("granted something else")
	case a.Allowed && a.Never:
		fail("allowed and never")
	case (a.RetryAfter > 0) != (!a.Allowed && !a.Never) || a.RetryAfter < 0:
		fail("retry")
	case a.Delay < 0 || a.Delay > 0 && !a.Allowed || a.At < now:
		fail("delay")
	case a.ResetAfter < 0:
		fail("reset")
	case (r.DryRun || r.Cost == 0) && k.state != before:
		fail("a look changed the state")
	case before.ExpiresAt > now && before.Shape == k.p.Shape() && k.state.ExpiresAt < before.ExpiresAt:
		fail("a take made the state fresh earlier")
	case a.Allowed && r.Cost > 0 && !r.DryRun && k.state.ExpiresAt <= now:
		fail("what was spent is forgotten")
	case k.state.ExpiresAt < 0:
		fail("the time wrapped around")
	}
}
