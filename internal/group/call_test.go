package group

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sluiceproject/sluice/internal/step"
)

// counters is a minimal store: the remaining quota of each cell.
type counters struct {
	left    map[Cell]int64
	charged map[uint64]Charged
	adopted []Cell
}

func (s *counters) take(cell Cell, r step.Request) step.Answer {
	granted := r.Cost
	if granted > s.left[cell] && r.Min > 0 && r.Min <= s.left[cell] {
		granted = s.left[cell]
	}
	if granted > s.left[cell] {
		return step.Answer{Remaining: s.left[cell], RetryAfter: 7}
	}
	if !r.DryRun {
		s.left[cell] -= granted
	}
	return step.Answer{Allowed: true, Granted: granted, Remaining: s.left[cell], ResetAfter: 10 * granted, At: 100}
}

// apply is the loop that every store implements.
func (s *counters) apply(cells []Cell, ops []Op) []step.Answer {
	const now = 100
	c := Call{Tasks: make([]Task, len(ops)), Out: make([]step.Answer, len(ops))}
	veto := false
	for i := range ops {
		op := &ops[i]
		c.Tasks[i].Cell = cells[i]
		if k, ok := s.charged[op.ID]; ok && op.ID != 0 {
			c.Out[i], c.Tasks[i].Replayed = k.Replay(op, s.take(cells[i], op.Look()), s.take(cells[i], op.Again()), now), true
		} else if r, ask := c.Ask(i, op); ask {
			c.Out[i] = s.take(cells[i], r)
			if c.Answered(i, op) {
				c.Out[i] = s.take(cells[i], op.Look())
				c.TooLate(i, op, now)
			}
		}
		veto = veto || op.Vetoes(&c.Out[i])
	}
	for i := range ops {
		op, a := &ops[i], &c.Out[i]
		adopt, do := c.Commit(i, op, veto)
		if adopt {
			s.adopted = append(s.adopted, cells[i])
		}
		switch do {
		case Look:
			*a = Unspent(s.take(cells[i], op.Look()), a.At)
		case Adjust:
			s.left[cells[i]] -= op.Request.Cost
			a.Granted, a.Remaining = op.Request.Cost, s.left[cells[i]]
		case Charge:
			*a = s.take(cells[i], op.Request)
		}
		if op.ID != 0 && (do == Adjust || do == Charge) {
			s.charged[op.ID] = Charged{At: a.At, Until: now + IdempotencyTTL, Granted: a.Granted, Denied: !a.Allowed}
		}
	}
	return c.Out
}

func TestCall(t *testing.T) {
	a, b := Cell{A: 1}, Cell{A: 1, B: 1}
	plain := step.Compile(step.Params{Kind: step.Window, Count: 10, Length: 1000})
	queue := step.Compile(step.Params{Kind: step.Bucket, Queue: true, Count: 10, Length: 1000, Burst: 10})
	cost := func(n int64) Op { return Op{Params: &plain, Request: step.Request{Cost: n}} }
	with := func(op Op, change func(*Op)) Op { change(&op); return op }
	id := func(op *Op) { op.ID = 9 }
	charge := func(op *Op) { op.Request.Charge = true }
	tests := []struct {
		name    string
		cells   []Cell
		ops     []Op
		left    [2]int64 // remaining quota of a and b, of 10 each
		allowed string   // y or n for each op
		granted []int64
		adopted []Cell
	}{
		{"one", []Cell{a}, []Op{cost(3)}, [2]int64{7, 10}, "y", []int64{3}, nil},
		{"one after the other", []Cell{a, a}, []Op{cost(6), cost(4)}, [2]int64{0, 10}, "yy", []int64{6, 4}, nil},
		{"too much together", []Cell{a, a}, []Op{cost(6), cost(5)}, [2]int64{10, 10}, "yn", []int64{0, 0}, []Cell{a, a}},
		{"a denial denies the others", []Cell{a, b}, []Op{cost(3), cost(11)}, [2]int64{10, 10}, "yn", []int64{0, 0}, []Cell{a, b}},
		{"a shadow op denies no other", []Cell{a, b}, []Op{cost(3), with(cost(11), func(o *Op) { o.Shadow = true })}, [2]int64{7, 10}, "yn", []int64{3, 0}, []Cell{b}},
		{"a peek denies no other", []Cell{a, b}, []Op{cost(3), cost(0)}, [2]int64{7, 10}, "yy", []int64{3, 0}, []Cell{b}},
		{"a dry run changes nothing", []Cell{a}, []Op{with(cost(0), func(o *Op) { o.Request.DryRun = true })}, [2]int64{10, 10}, "y", []int64{0}, nil},
		{"charged denials", []Cell{a, b}, []Op{with(cost(3), charge), cost(11)}, [2]int64{7, 10}, "yn", []int64{3, 0}, []Cell{b}},
		{"a part", []Cell{a, a}, []Op{cost(6), with(cost(8), func(o *Op) { o.Request.Min = 1 })}, [2]int64{0, 10}, "yy", []int64{6, 4}, nil},
		{"twice in one call", []Cell{a, a}, []Op{with(cost(4), id), with(cost(4), id)}, [2]int64{6, 10}, "yy", []int64{4, 4}, []Cell{a}},
		{"one ID, two cells", []Cell{a, b}, []Op{with(cost(4), id), with(cost(4), id)}, [2]int64{6, 6}, "yy", []int64{4, 4}, nil},
		{
			"a settlement comes before",
			[]Cell{a, a},
			[]Op{with(cost(5), func(o *Op) { o.At = 50 }), cost(6)},
			[2]int64{10, 10},
			"yn",
			[]int64{0, 0},
			[]Cell{a, a},
		},
		{
			"a place behind another's",
			[]Cell{a, a},
			[]Op{{Params: &queue, Request: step.Request{Cost: 2, MaxDelay: 30}}, {Params: &queue, Request: step.Request{Cost: 1, MaxDelay: 15}}},
			[2]int64{10, 10},
			"yn",
			[]int64{0, 0},
			[]Cell{a, a},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &counters{left: map[Cell]int64{a: 10, b: 10}, charged: map[uint64]Charged{}}
			out := s.apply(tt.cells, tt.ops)
			var allowed string
			var granted []int64
			for i := range out {
				allowed += map[bool]string{true: "y", false: "n"}[out[i].Allowed]
				granted = append(granted, out[i].Granted)
			}
			if allowed != tt.allowed || !slices.Equal(granted, tt.granted) {
				t.Errorf("allowed %s, granted %v, want %s and %v", allowed, granted, tt.allowed, tt.granted)
			}
			if left := [2]int64{s.left[a], s.left[b]}; left != tt.left {
				t.Errorf("left %v, want %v", left, tt.left)
			}
			if !slices.Equal(s.adopted, tt.adopted) {
				t.Errorf("adopted %v, want %v", s.adopted, tt.adopted)
			}
		})
	}
}

// A repeated take is decided as before and not charged again, even if no quota remains.
func TestReplay(t *testing.T) {
	p := step.Compile(step.Params{Kind: step.Window, Count: 10, Length: 1000})
	a := Cell{A: 1}
	s := &counters{left: map[Cell]int64{a: 10}, charged: map[uint64]Charged{}}
	first := Op{Params: &p, ID: 1, Request: step.Request{Cost: 10}}
	refused := Op{Params: &p, ID: 2, Request: step.Request{Cost: 1, Charge: true}}
	for range 2 {
		if got := s.apply([]Cell{a}, []Op{first})[0]; !got.Allowed || got.Granted != 10 || got.Remaining != 0 {
			t.Errorf("got %+v, want 10 granted and nothing left", got)
		}
		if got := s.apply([]Cell{a}, []Op{refused})[0]; got.Allowed || got.RetryAfter == 0 {
			t.Errorf("got %+v, want a denial", got)
		}
	}
	s.left[a] = 10
	if got := s.apply([]Cell{a}, []Op{refused})[0]; got.Allowed || got.RetryAfter != IdempotencyTTL {
		t.Errorf("got %+v, want a denial until the ID expires", got)
	}
}

func TestBlocked(t *testing.T) {
	free, idle := step.Answer{RetryAfter: 50}, step.Answer{ResetAfter: 20}
	want := step.Answer{Blocked: true, RetryAfter: 50, ResetAfter: 30, At: 100}
	if got := Blocked(&free, &idle, 100, 130); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	free.Never = true
	want.Never, want.RetryAfter = true, 0
	if got := Blocked(&free, &idle, 100, 130); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func ExampleCall() {
	p := step.Compile(step.Params{Kind: step.Window, Count: 10, Length: 1000})
	ops := []Op{{Params: &p, Request: step.Request{Cost: 3}}, {Params: &p, Request: step.Request{Cost: 8}}}
	c := Call{Tasks: make([]Task, 2), Out: make([]step.Answer, 2)} // both on one state with 10 remaining
	c.Ask(0, &ops[0])
	c.Out[0] = step.Answer{Allowed: true, Granted: 3}
	c.Answered(0, &ops[0])
	r, _ := c.Ask(1, &ops[1])
	fmt.Println(r.Cost)
	// Output: 11
}
