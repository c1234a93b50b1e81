package table

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

var (
	wholeParams    = step.Compile(step.Params{Kind: step.Bucket, Count: 60, Length: minute, Burst: 100})
	intervalParams = step.Compile(step.Params{Kind: step.Interval, Count: 4, Length: 10 * second, Burst: 100})
	queueParams    = step.Compile(step.Params{Kind: step.Bucket, Queue: true, Count: 60, Length: minute, Burst: 100})
)

func (r reference) settle(name string, p *step.Params, now int64, x step.Settlement) step.Answer {
	k := r[name]
	if k == nil {
		k = &referenceState{words: make([]uint64, 200)}
		r[name] = k
	}
	var a step.Answer
	k.state, a = p.Adjust(k.state, k.words, now, x)
	return a
}

// wide returns the number of slots of buckets that have words.
func wide(tb *Table) (n int) {
	for i := range tb.segments {
		seg := &tb.segments[i]
		for j := range seg.slots.len {
			if s := seg.slots.at(j); s.tag != 0 && s.word&wideFlag != 0 {
				n++
			}
		}
	}
	return n
}

// A table with settlements decides like a map, through all methods, with snapshots in between. A key's words are freed
// with its last reservation.
func TestTableSettlesLikeAMap(t *testing.T) {
	type reserved struct {
		key         string
		p           *step.Params
		at, charged int64
	}
	rng := rand.New(rand.NewPCG(27, 1))
	tb, ref := New(Config{MaxBytes: 4 << 20}), reference{}
	limits := []*step.Params{&wholeParams, &bucketParams, &intervalParams, &queueParams}
	var out []reserved
	now, most, plain, saved := start, 0, 0, 0
	one := func(op group.Op) step.Answer {
		var a [1]step.Answer
		op.Rule = group.RuleID{A: 1, B: 2}
		tb.Apply(now, []group.Op{op}, a[:])
		return a[0]
	}
	settle := func(i int, actual int64) {
		o := out[i]
		out = append(out[:i], out[i+1:]...)
		op := group.Op{Key: o.key, Params: o.p, At: o.at, Charged: o.charged, Request: step.Request{Cost: actual - o.charged, Settles: true}}
		got, want := one(op), ref.settle(o.key, o.p, now, op.Settlement())
		if got != want {
			t.Fatalf("settle %+v at %d as %d:\n got %+v\nwant %+v", o, now, actual, got, want)
		}
	}
	steps := soak(20_000)
	for i := range steps {
		if rng.IntN(3) == 0 {
			now += rng.Int64N(2 * second)
		}
		number := rng.IntN(len(limits))
		p, key := limits[number], fmt.Sprint(number, " ", rng.IntN(6)) // the kinds of buckets must not share a key
		cost, name := 1+rng.Int64N(4), key
		if ref[name] == nil {
			ref[name] = &referenceState{words: make([]uint64, 200)}
		}
		switch n := rng.IntN(20); {
		case n < 8:
			r := step.Request{Cost: cost, Settles: true}
			got, want := one(group.Op{Key: key, Params: p, Request: r}), ref.take(name, p, now, r)
			if got != want {
				t.Fatalf("reserve %d of kind %d at %d:\n got %+v\nwant %+v", cost, p.Kind, now, got, want)
			}
			if got.Allowed {
				out = append(out, reserved{key, p, got.At, cost})
			}
		case n < 15 && len(out) > 0:
			j := rng.IntN(len(out))
			settle(j, rng.Int64N(2*out[j].charged))
		case n == 15:
			if got, want := take(tb, key, p, now, step.Request{}), ref.take(name, p, now, step.Request{}); got != want {
				t.Fatalf("peek\n got %+v\nwant %+v", got, want)
			}
		case n == 16:
			r := step.Request{Cost: cost, Charge: true}
			if got, want := one(group.Op{Key: key, Params: p, Request: r}), ref.take(name, p, now, r); got != want {
				t.Fatalf("charged\n got %+v\nwant %+v", got, want)
			}
		case n == 17 && i%50 == 0:
			back, err := Load(bytes.NewReader(saveAt(t, tb, now)), Config{MaxBytes: 4 << 20}, now)
			if err != nil {
				t.Fatal(err)
			}
			tb = back
			saved++
		default:
			want := ref.take(name, p, now, step.Request{Cost: cost})
			h := tb.Locate(group.RuleID{A: 1, B: 2}, key, p)
			fresh, retry, remaining := tb.Fast(h, p, now, cost)
			if retry != step.Undecided {
				plain++
				if retry != want.RetryAfter || remaining != want.Remaining || max(0, fresh-now) != want.ResetAfter {
					t.Fatalf("Fast returns fresh %d retry %d remaining %d, want %+v at %d", fresh, retry, remaining, want, now)
				}
			} else if got := tb.Take(h, p, now, step.Request{Cost: cost}); got != want {
				t.Fatalf("take\n got %+v\nwant %+v", got, want)
			}
		}
		if i%500 == 0 {
			most = max(most, wide(tb))
		}
	}
	for len(out) > 0 {
		settle(0, out[0].charged) // no further cost, but deletes the mark
	}
	if n := wide(tb); n != 0 {
		t.Errorf("all is settled, and %d keys have words", n)
	}
	t.Logf("up to %d of 18 keys with marks at once, %d takes were fast, %d snapshots", most, plain, saved)
	if most < 10 || plain < steps/100 || saved < 5 {
		t.Error("too much of one kind to show anything")
	}
}

func saveAt(t testing.TB, tb *Table, now int64) []byte {
	var b bytes.Buffer
	if err := tb.Save(&b, now); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Without room for a mark nothing is refunded, and the cost beyond the estimate is charged. The same holds for a key
// that is counted in the sketch.
func TestNoRoomNoMark(t *testing.T) {
	tb := New(Config{MaxBytes: MinBytes})
	take(tb, "here", &wholeParams, start, step.Request{Cost: 1}) // has its slot, but no words
	for i := 0; ; i++ {
		if tb.arena.alloc(tb, 1<<minClass) == 0 && tb.arena.alloc(tb, 1<<(minClass+1)) == 0 {
			break
		}
	}
	check := func(key string, remaining ...int64) {
		t.Helper()
		var a [1]step.Answer
		op := group.Op{Rule: group.RuleID{A: 1, B: 2}, Key: key, Params: &wholeParams, Request: step.Request{Cost: 10, Settles: true}}
		tb.Apply(start, []group.Op{op}, a[:])
		if !a[0].Allowed || a[0].Remaining != remaining[0] {
			t.Fatalf("%s: reserve: %+v", key, a[0])
		}
		settle := group.Op{Rule: op.Rule, Key: key, Params: op.Params, At: a[0].At, Charged: 10, Request: step.Request{Cost: -9, Settles: true}}
		if tb.Apply(start, []group.Op{settle}, a[:]); a[0].Granted != 0 || a[0].Remaining != remaining[0] {
			t.Errorf("%s: refunded without a mark: %+v", key, a[0])
		}
		settle.Request.Cost = 5
		if tb.Apply(start, []group.Op{settle}, a[:]); a[0].Granted != 5 || a[0].Remaining != remaining[1] {
			t.Errorf("%s: not charged: %+v", key, a[0])
		}
	}
	check("here", 89, 84)
	for i := 0; !tb.sketch.busy(start); i++ {
		take(tb, fmt.Sprint("flood", i), &wholeParams, start, step.Request{Cost: 1})
	}
	check("in the sketch", 90, 85)
	if n := wide(tb); n != 0 {
		t.Errorf("%d keys have words", n)
	}
}
