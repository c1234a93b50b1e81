package queue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestScheduler runs random subqueues in virtual time: the limits of one item per subqueue are checked at a time, ordered
// subqueues deliver one item at a time and in order, no item is scheduled before notBefore or while its subqueue is blocked, and
// all items are delivered in the end.
func TestScheduler(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, now := newScheduler(2, rapid.Bool().Draw(t, "wide")), time.Unix(1000, 0)
		tries, limitedUntil := map[subqueueID]int{}, map[subqueueID]time.Time{}
		flights := map[subqueueID][]*entry{}
		var asking []*entry
		left, seq := 0, uint64(0)
		last := map[subqueueID]uint64{}
		add := func() {
			seq++
			e := &entry{id: fmt.Sprint(seq), seq: seq, itemHeader: itemHeader{rule: "r", key: fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "key")), ordered: rapid.Bool().Draw(t, "ordered")}}
			l.add(e)
			left++
		}
		pop := func() {
			e, _ := l.pop(now)
			if e == nil {
				return
			}
			n := subqueueID{e.rule, e.key, e.ordered}
			if tries[n]++; tries[n] > 1 || e.notBefore.After(now) || limitedUntil[n].After(now) || len(flights[n]) >= 2 {
				t.Fatalf("%v is popped: %d checks, not before %v, blocked until %v, %d delivering, now %v", e.seq, tries[n], e.notBefore, limitedUntil[n], len(flights[n]), now)
			}
			if e.ordered && (len(flights[n]) > 0 || e.seq < last[n]) {
				t.Fatalf("%d is popped while %d are delivering, after %d", e.seq, len(flights[n]), last[n])
			}
			last[n] = e.seq
			asking = append(asking, e)
		}
		answer := func() {
			if len(asking) == 0 {
				return
			}
			i := rapid.IntRange(0, len(asking)-1).Draw(t, "which")
			e := asking[i]
			asking = slices.Delete(asking, i, i+1)
			n := subqueueID{e.rule, e.key, e.ordered}
			tries[n]--
			if rapid.Bool().Draw(t, "admitted") {
				flights[n] = append(flights[n], e)
				l.onStart(e)
				return
			}
			limitedUntil[n] = now.Add(time.Second)
			l.reschedule(e, limitedUntil[n], limitedUntil[n])
		}
		land := func() {
			for n, all := range flights {
				if len(all) == 0 {
					continue
				}
				e := all[0]
				flights[n] = all[1:]
				l.release(e)
				if rapid.IntRange(0, 3).Draw(t, "done") > 0 {
					left--
					return
				}
				e.notBefore = now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "later")) * time.Second)
				l.add(e)
				return
			}
		}
		step := map[string]func(*rapid.T){
			"add": func(*rapid.T) { add() }, "pop": func(*rapid.T) { pop() }, "answer": func(*rapid.T) { answer() },
			"land": func(*rapid.T) { land() }, "time": func(*rapid.T) { now = now.Add(time.Second / 2) },
		}
		t.Repeat(step)
		for range 10_000 {
			if left == 0 {
				break
			}
			pop()
			for _, e := range asking {
				n := subqueueID{e.rule, e.key, e.ordered}
				tries[n]--
				flights[n] = append(flights[n], e)
				l.onStart(e)
			}
			asking = nil
			for n, all := range flights {
				for _, e := range all {
					l.release(e)
					left--
				}
				delete(flights, n)
			}
			now = now.Add(time.Second / 4)
		}
		if left != 0 || len(l.all) != 0 || len(l.due) != 0 {
			t.Fatalf("%d items and %d subqueues are left", left, len(l.all))
		}
	})
}
