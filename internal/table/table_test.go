package table

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

const (
	second = int64(1_000_000)
	minute = 60 * second
	start  = int64(1_772_413_200) * second // 2026-03-02 01:00:00 UTC
)

var (
	bucketParams  = step.Compile(step.Params{Kind: step.Bucket, Count: 7, Length: minute, Burst: 7})
	initialParams = step.Compile(step.Params{Kind: step.Bucket, Count: 7, Length: minute, Burst: 7, HasInitial: true, Initial: 5})
	windowParams  = step.Compile(step.Params{Kind: step.Window, Count: 5, Length: minute})
	counterParams = step.Compile(step.Params{Kind: step.Counter, Count: 9, Length: minute})
	slicesParams  = step.Compile(step.Params{Kind: step.Slices, Count: 9, Length: minute, Slices: 6})
	logParams     = step.Compile(step.Params{Kind: step.Log, Count: 20, Length: minute})
	allParams     = []*step.Params{&bucketParams, &initialParams, &windowParams, &counterParams, &slicesParams, &logParams}
)

// reference keeps each key's state in a map, with unlimited room.
type reference map[string]*referenceState

type referenceState struct {
	state step.State
	words []uint64
}

func (r reference) take(name string, p *step.Params, now int64, req step.Request) step.Answer {
	k := r[name]
	if k == nil {
		k = &referenceState{words: make([]uint64, 64)}
		r[name] = k
	}
	var a step.Answer
	k.state, a = p.Take(k.state, k.words, now, req)
	return a
}

func take(tb *Table, key string, p *step.Params, now int64, req step.Request) step.Answer {
	return tb.Take(tb.Locate(group.RuleID{A: 1, B: 2}, key, p), p, now, req)
}

// checkOrder fails unless every segment is sorted, every slot can be found and the number of slots is right.
func checkOrder(t *testing.T, tb *Table) {
	t.Helper()
	for i := range tb.segments {
		seg := &tb.segments[i]
		var last uint64
		live := uint32(0)
		for j := range seg.slots.len {
			s := seg.slots.at(j)
			if s.tag == 0 {
				continue
			}
			live++
			if s.tag < last {
				t.Fatalf("segment %d: slot %d is out of order", i, j)
			}
			last = s.tag
			if at, ok := seg.find(s.tag, s.word&extraMask); !ok || at != j {
				t.Fatalf("segment %d: slot %d is not found (%d, %v)", i, j, at, ok)
			}
		}
		if live != seg.live {
			t.Fatalf("segment %d: %d slots are in use, it says %d", i, live, seg.live)
		}
	}
}

// A table decides like a map, through growth, expiry and reuse, for all kinds at once.
func TestTableAnswersLikeAMap(t *testing.T) {
	for _, maxBytes := range []int64{MinBytes, 64 << 20} {
		t.Run(fmt.Sprint(maxBytes), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, uint64(maxBytes)))
			tb, ref := New(Config{MaxBytes: maxBytes}), reference{}
			keys := int64(2000)
			if maxBytes > MinBytes {
				keys = 200_000 // so that segments leave the heap
			}
			now := start
			for i := range soak(120_000) {
				now += rng.Int64N(2 * minute * 100 / keys)
				p := allParams[rng.IntN(len(allParams))]
				key := fmt.Sprint(rng.Int64N(keys))
				req := step.Request{Cost: rng.Int64N(3), Min: 0}
				got := take(tb, key, p, now, req)
				want := ref.take(fmt.Sprint(key, p.Identity()), p, now, req)
				if got != want {
					t.Fatalf("take %d: kind %d key %s at %d cost %d:\n got %+v\nwant %+v", i, p.Kind, key, now, req.Cost, got, want)
				}
				if i%40_000 == 0 {
					checkOrder(t, tb)
				}
			}
			checkOrder(t, tb)
			if tb.Bytes() > tb.MaxBytes() {
				t.Errorf("uses %d bytes, the limit is %d", tb.Bytes(), tb.MaxBytes())
			}
			if n := tb.Len(now + day + 3*minute); n != 0 {
				t.Errorf("%d keys are live after all have expired", n)
			}
		})
	}
}

// Fast returns the same as Take.
func TestFastEqualsTake(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for _, p := range allParams {
		tb, ref := New(Config{MaxBytes: MinBytes}), reference{}
		now := start
		plain := 0
		for range soak(20_000) {
			now += rng.Int64N(20 * second)
			key, cost := fmt.Sprint(rng.IntN(50)), 1+rng.Int64N(4)
			h := tb.Locate(group.RuleID{}, key, p)
			fresh, retry, remaining := tb.Fast(h, p, now, cost)
			want := ref.take(key, p, now, step.Request{Cost: cost})
			if retry == step.Undecided {
				if got := tb.Take(h, p, now, step.Request{Cost: cost}); got != want {
					t.Fatalf("kind %d: Take %+v, want %+v", p.Kind, got, want)
				}
				continue
			}
			plain++
			if (retry == step.Fits) != want.Allowed || retry != want.RetryAfter || remaining != want.Remaining || max(0, fresh-now) != want.ResetAfter {
				t.Fatalf("kind %d: Fast returns fresh %d retry %d remaining %d, Take %+v at %d", p.Kind, fresh, retry, remaining, want, now)
			}
		}
		if isPlain := p.Kind == step.Window || p.Kind == step.Counter; isPlain && plain == 0 {
			t.Errorf("kind %d: no take was fast", p.Kind)
		}
	}
	whole := step.Compile(step.Params{Kind: step.Bucket, Count: 6, Length: minute, Burst: 6})
	tb, ref := New(Config{MaxBytes: MinBytes}), reference{}
	now := start
	for range soak(20_000) {
		now += rng.Int64N(20 * second)
		cost := 1 + rng.Int64N(6)
		h := tb.Locate(group.RuleID{}, "k", &whole)
		fresh, retry, remaining := tb.Fast(h, &whole, now, cost)
		want := ref.take("k", &whole, now, step.Request{Cost: cost})
		if retry == step.Undecided {
			tb.Take(h, &whole, now, step.Request{Cost: cost})
			continue
		}
		if retry != want.RetryAfter || remaining != want.Remaining || max(0, fresh-now) != want.ResetAfter {
			t.Fatalf("Fast returns fresh %d retry %d remaining %d, Take %+v at %d", fresh, retry, remaining, want, now)
		}
	}
}

// When the memory limit is reached, keys in the table stay exact, and other keys are never allowed more than the limit.
func TestOverflowNeverUnderCounts(t *testing.T) {
	for _, p := range allParams {
		t.Run(p.Name(), func(t *testing.T) {
			tb := New(Config{MaxBytes: MinBytes})
			now := start
			protected := make([]string, 100)
			for i := range protected {
				protected[i] = fmt.Sprint("protected", i)
				for range 50 {
					take(tb, protected[i], p, now, step.Request{Cost: 1})
				}
			}
			admitted := map[string][]int64{}
			for i := range 50_000 {
				now += 60 // 9 s in total: no window ends, little is replenished
				take(tb, fmt.Sprint("flood", i), p, now, step.Request{Cost: 1})
				if i%10 == 0 {
					key := fmt.Sprint("late", i%1000)
					if take(tb, key, p, now, step.Request{Cost: 1}).Allowed {
						admitted[key] = append(admitted[key], now)
					}
				}
			}
			if tb.Bytes() > tb.MaxBytes() {
				t.Errorf("uses %d bytes, the limit is %d", tb.Bytes(), tb.MaxBytes())
			}
			if !tb.sketch.busy(now) {
				t.Fatal("the flood did not reach the sketch")
			}
			for _, key := range protected {
				if a := take(tb, key, p, now, step.Request{Cost: p.Limit()}); a.Allowed {
					t.Errorf("%s was reset by the flood: %+v", key, a)
				}
			}
			for key, times := range admitted {
				most := p.Limit()
				if p.Kind == step.Bucket {
					most += (times[len(times)-1] - times[0]) * p.Count / p.Length
				}
				if int64(len(times)) > most {
					t.Errorf("%s: %d admitted, %d due", key, len(times), most)
				}
			}
		})
	}
}

// A key that was counted in the sketch does not start from zero when room is found for it.
func TestLeavingTheSketchForgetsNothing(t *testing.T) {
	p := &windowParams
	tb := New(Config{MaxBytes: MinBytes})
	now := start
	for i := range 100_000 { // fill the table with keys that live for a minute
		take(tb, fmt.Sprint("flood", i), p, now, step.Request{Cost: 1})
	}
	var h Hash // of a key without room
	for i := 0; ; i++ {
		h = tb.Locate(group.RuleID{A: 1, B: 2}, fmt.Sprint("late", i), p)
		tb.Take(h, p, now, step.Request{Cost: 1})
		seg := &tb.segments[h.segment()]
		// A key that sorts after the last slot of a full segment stays in the sketch until the segment is rebuilt:
		// expired slots are reused by keys that sort before it.
		if at, ok := seg.find(h.tagFor(p.Identity()), h.extra()); !ok && at < seg.slots.len {
			break
		}
	}
	admitted := int64(1)
	spend := func() {
		for range 20 {
			if tb.Take(h, p, now, step.Request{Cost: 1}).Allowed {
				admitted++
			}
		}
	}
	spend()
	// All other keys expire; there is room for the key again, within its window.
	for i := range tb.segments {
		seg := &tb.segments[i]
		for j := range seg.slots.len {
			seg.slots.at(j).set(step.State{})
		}
	}
	now += 30 * second
	spend()
	if admitted > p.Count {
		t.Errorf("%d admitted in one window, %d due", admitted, p.Count)
	}
	now += 2 * minute
	admitted = 0
	spend()
	if admitted != p.Count {
		t.Errorf("after its time in the sketch the key is admitted %d, want %d", admitted, p.Count)
	}
	if _, ok := tb.segments[h.segment()].find(h.tagFor(p.Identity()), h.extra()); !ok {
		t.Error("the key did not return to the table")
	}
}

// Takes that share segments and keys, in both orders, from many goroutines: no deadlock, and all or nothing.
func TestApplyIsAllOrNothing(t *testing.T) {
	p := step.Compile(step.Params{Kind: step.Window, Count: 1000, Length: 3600 * second})
	small := step.Compile(step.Params{Kind: step.Window, Count: 500, Length: 3600 * second})
	tb := New(Config{MaxBytes: MinBytes})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			ops := []group.Op{
				{Key: "a", Params: &p, Request: step.Request{Cost: 1}},
				{Key: "b", Params: &small, Request: step.Request{Cost: 1}},
				{Key: "c", Params: &p, Request: step.Request{Cost: 1}},
			}
			if g%2 == 0 {
				slices.Reverse(ops)
			}
			out := make([]step.Answer, len(ops))
			for range 200 {
				tb.Apply(start, ops, out)
			}
		})
	}
	wg.Wait()
	for _, key := range []string{"a", "c"} {
		a := tb.Take(tb.Locate(group.RuleID{}, key, &p), &p, start, step.Request{})
		if a.Remaining != 500 {
			t.Errorf("%s: %d remain of 1000, want 500: the call was charged without b", key, a.Remaining)
		}
	}
}

// The same ID twice in a call is charged once, and a settlement counts for the takes after it.
func TestApplyTwiceOnOneKey(t *testing.T) {
	p := &windowParams // 5 per minute
	tb := New(Config{MaxBytes: MinBytes})
	out := make([]step.Answer, 3)
	one := group.Op{Key: "k", Params: p, Request: step.Request{Cost: 1}}
	once := one
	once.ID = 7
	tb.Apply(start, []group.Op{once, once}, out)
	if a := tb.Take(tb.Hash(group.RuleID{}, "k"), p, start, step.Request{}); a.Remaining != 4 || !out[0].Allowed || !out[1].Allowed {
		t.Errorf("one ID twice: %d remain, want 4; %+v", a.Remaining, out[:2])
	}
	settle, three, other := one, one, one
	settle.At, settle.Request.Cost = start, 3
	three.Request.Cost = 3
	other.Key = "other"
	tb.Apply(start, []group.Op{other, settle, three}, out)
	if out[2].Allowed {
		t.Errorf("3 more allowed of 5 with 1 used and 3 settled: %+v", out[2])
	}
	for _, key := range []string{"k", "other"} {
		want := map[string]int64{"k": 4, "other": 5}[key]
		if a := tb.Take(tb.Hash(group.RuleID{}, key), p, start, step.Request{}); a.Remaining != want {
			t.Errorf("%s: %d remain, want %d: the denied call was charged", key, a.Remaining, want)
		}
	}
}

// Two of ten million keys are confused with a probability below 1e-9, because 76 bits distinguish them.
func TestHashBits(t *testing.T) {
	if got := 64 + segmentBits + 2; got < 76 {
		t.Fatalf("%d bits tell keys apart", got)
	}
	tb := New(Config{})
	seen := map[Hash]string{}
	check := func(key string) {
		h := tb.Hash(group.RuleID{A: 1, B: 2}, key)
		if other, ok := seen[h]; ok && other != key {
			t.Fatalf("%q and %q have one hash", key, other)
		}
		seen[h] = key
	}
	for n := range 70 { // all lengths around the loop's bounds, one bit apart
		base := make([]byte, n)
		check(string(base))
		for i := range base {
			base[i] = 1
			check(string(base))
			base[i] = 0
		}
	}
	if tb.Hash(group.RuleID{A: 1, B: 2}, "a") == tb.Hash(group.RuleID{A: 2, B: 1}, "a") {
		t.Error("the rule is not hashed")
	}
	if New(Config{}).Hash(group.RuleID{}, "a") == tb.Hash(group.RuleID{}, "a") {
		t.Error("two tables have one seed")
	}
}

// Every output bit depends on every input bit: on average 50 % of them change.
func TestHashAvalanche(t *testing.T) {
	seed := Seed{0x243F6A8885A308D3, 0x13198A2E03707345, 0xA4093822299F31D1, 0x082EFA98EC4E6C89} // fixed, so that the test is deterministic
	tb := New(Config{Seed: &seed})
	for _, n := range []int{3, 4, 7, 8, 12, 16, 17, 31, 64} {
		var flips [128]int
		trials := 0
		rng := rand.New(rand.NewPCG(3, uint64(n)))
		for range 200 {
			key := make([]byte, n)
			for i := range key {
				key[i] = byte(rng.Uint32())
			}
			h := tb.Hash(group.RuleID{}, string(key))
			for bit := range 8 * n {
				key[bit/8] ^= 1 << (bit % 8)
				g := tb.Hash(group.RuleID{}, string(key))
				key[bit/8] ^= 1 << (bit % 8)
				trials++
				for i := range 64 {
					flips[i] += int((h.tag ^ g.tag) >> i & 1)
					flips[64+i] += int((h.spot ^ g.spot) >> i & 1)
				}
			}
		}
		tolerance := 3 / math.Sqrt(float64(trials)) // six standard deviations
		for i, f := range flips {
			if share := float64(f) / float64(trials); math.Abs(share-0.5) > tolerance {
				t.Errorf("length %d: output bit %d changes in %.3f of the cases", n, i, share)
			}
		}
	}
}

func TestBlocks(t *testing.T) {
	tb := New(Config{MaxBytes: MinBytes})
	p := &windowParams
	h := tb.Locate(group.RuleID{}, "k", p)
	if !tb.Block(h, start, start+10*second) {
		t.Fatal("no room for one block")
	}
	if a := tb.Take(h, p, start+4*second, step.Request{Cost: 1}); a.Allowed || a.RetryAfter != 6*second {
		t.Errorf("blocked key: %+v", a)
	}
	if a := tb.Take(h, p, start+10*second, step.Request{Cost: 1}); !a.Allowed {
		t.Errorf("the block has ended: %+v", a)
	}
	used := tb.Bytes()
	n := 0
	for tb.Block(tb.Locate(group.RuleID{}, fmt.Sprint(n), p), start, start+minute) {
		n++
	}
	if tb.Bytes() > tb.MaxBytes() || n < 1000 {
		t.Errorf("%d blocks, %d bytes of %d", n, tb.Bytes(), tb.MaxBytes())
	}
	for i := range n {
		tb.Block(tb.Locate(group.RuleID{}, fmt.Sprint(i), p), start, start)
	}
	if tb.Bytes() > used {
		t.Errorf("lifting all blocks leaves %d bytes of %d", tb.Bytes()-used, used)
	}
}

// soak scales a count up in long test runs.
func soak(n int) int {
	if os.Getenv("SLUICE_SOAK") != "" {
		return 10 * n
	}
	return n
}
