package step_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluiceproject/sluice/internal/step"
)

// holder is a permit of the reference.
type holder struct{ at, cost int64 }

// inFlight is the reference: a list of permits, and the newest receipt.
type inFlight struct {
	p      *step.Params
	slots  []holder
	newest int64
}

func (f *inFlight) live(now int64) (live []holder) {
	for _, h := range f.slots {
		if h.at > now-f.p.Length {
			live = append(live, h)
		}
	}
	return live
}

func (f *inFlight) sum(now int64) (n int64) {
	for _, h := range f.live(now) {
		n += h.cost
	}
	return n
}

func (f *inFlight) take(now, cost int64) (at int64, ok bool) {
	if f.sum(now)+cost > f.p.Count {
		return now, false
	}
	f.newest = max(now, f.newest+1)
	f.slots = append(f.live(now), holder{f.newest, cost}) // permits that have expired stay expired if the clock goes back
	return f.newest, true
}

func (f *inFlight) find(now, at int64) *holder {
	for i := range f.slots {
		if f.slots[i].at == at && at > now-f.p.Length {
			f.slots = f.live(now)
			return f.found(at)
		}
	}
	return nil
}

func (f *inFlight) found(at int64) *holder {
	for i := range f.slots {
		if f.slots[i].at == at {
			return &f.slots[i]
		}
	}
	return nil
}

// TestI7Permits: at all times the store counts between 0 and the limit in flight, each decision is that of a list of
// permits, and a second release frees nothing, with any clocks.
func TestI7Permits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := drawKey(t, "slots")
		f := &inFlight{p: k.p}
		now := int64(epoch)
		var names []holder
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			now += drawPause(t, k.p)
			if rapid.IntRange(0, 9).Draw(t, "back") == 0 {
				now -= rapid.Int64Range(0, 2*k.p.Length).Draw(t, "by")
			}
			what, held := rapid.IntRange(0, 3).Draw(t, "what"), holder{at: now, cost: 1}
			if len(names) > 0 {
				held = names[rapid.IntRange(0, len(names)-1).Draw(t, "which")]
			}
			var got step.Answer
			want, room := step.Answer{Allowed: true, At: held.at}, k.p.Count-f.sum(now)
			switch what {
			case 0, 1:
				cost := drawCost(t, k.p)
				got = k.take(now, step.Request{Cost: cost})
				if want.At, want.Allowed = f.take(now, cost); want.Allowed {
					want.Granted = cost
					names = append(names, holder{want.At, cost})
				}
			case 2:
				got = k.adjust(now, held.at, -held.cost)
				if h := f.find(now, held.at); h != nil {
					want.Granted = -min(h.cost, held.cost)
					if h.cost += want.Granted; h.cost == 0 {
						*h = holder{at: -1 << 62}
					}
				}
			case 3:
				got = k.adjust(now, held.at, held.cost)
				cost := held.cost
				if h := f.find(now, held.at); h != nil {
					cost = h.cost
					*h = holder{at: -1 << 62}
				} else {
					want.Granted = cost
				}
				if want.At, want.Allowed = f.take(now, cost); !want.Allowed {
					want.Granted = 0
				}
				if want.Allowed {
					names = append(names, holder{want.At, cost})
				}
			}
			if got.Allowed != want.Allowed || got.Granted != want.Granted || got.At != want.At {
				t.Fatalf("%d of %+v at %d with room for %d:\n got %+v\nwant %+v", what, held, now, room, got, want)
			}
			in := f.sum(now)
			if in < 0 || in > k.p.Count || got.Remaining != k.p.Count-in || k.peek(now) != k.p.Count-in {
				t.Fatalf("%d in flight of %d, %d and %d remaining", in, k.p.Count, got.Remaining, k.peek(now))
			}
		}
	})
}

// The permit of a crashed holder is free after the TTL, and not 1 µs earlier; a renewed one a TTL after its renewal.
func TestPermitTTL(t *testing.T) {
	k := newKey(step.Params{Kind: step.Permits, Count: 2, Length: 30 * second})
	now := int64(epoch)
	dead, alive := k.take(now, step.Request{Cost: 1}), k.take(now, step.Request{Cost: 1})
	if dead.At == alive.At {
		t.Fatal("two permits with the same receipt")
	}
	denied := k.take(now+10*second, step.Request{Cost: 1})
	if denied.Allowed || denied.RetryAfter != 20*second {
		t.Fatalf("%+v", denied)
	}
	renewed := k.adjust(now+20*second, alive.At, 1)
	if !renewed.Allowed || renewed.Granted != 0 || renewed.At != now+20*second || renewed.Remaining != 0 {
		t.Fatalf("%+v", renewed)
	}
	if k.peek(now+30*second-1) != 0 || k.peek(now+30*second) != 1 || k.peek(now+50*second-1) != 1 || k.peek(now+50*second) != 2 {
		t.Error("leases do not end when they should")
	}
	if a := k.adjust(now+21*second, alive.At, -1); a.Granted != 0 {
		t.Errorf("the old receipt of a renewed permit released it: %+v", a)
	}
	if a := k.adjust(now+21*second, renewed.At, -1); a.Granted != -1 {
		t.Errorf("%+v", a)
	}
	// At the same time again: a second release by the first holder must not free the second permit.
	first := k.take(now+22*second, step.Request{Cost: 1})
	k.adjust(now+22*second, first.At, -1)
	k.take(now+22*second, step.Request{Cost: 1})
	if a := k.adjust(now+22*second, first.At, -1); a.Granted != 0 || a.Remaining != 0 {
		t.Errorf("a second release freed another permit: %+v", a)
	}
}

// Without enough room a ring merges permits: they last longer, and there are never more than the limit.
func TestPermitsInLittleRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := drawKey(t, "slots")
		k.words = make([]uint64, rapid.IntRange(3, 6).Draw(t, "words"))
		now := int64(epoch)
		had := map[int64]spent{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += drawPause(t, k.p)
			if len(had) > 0 && rapid.IntRange(0, 3).Draw(t, "what") == 0 {
				for at, h := range had { // an arbitrary one, since all must be held
					k.state, _ = k.p.Adjust(k.state, k.words, now, step.Settlement{At: at, Delta: -h.cost})
					delete(had, at)
					break
				}
			}
			next, a := k.p.Take(k.state, k.words, now, step.Request{Cost: drawCost(t, k.p)})
			if k.state = next; a.Allowed {
				had[a.At] = spent{take: take{now, a.Granted}}
			}
			var sum int64
			for at, h := range had {
				if at > now-k.p.Length {
					sum += h.cost
				}
			}
			if sum > k.p.Count {
				t.Fatalf("%d in flight of %d", sum, k.p.Count)
			}
		}
	})
}
