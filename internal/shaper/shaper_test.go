package shaper_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice/internal/shaper"
)

const interval = 20 * time.Millisecond

func queueOf(places int) shaper.Shape {
	return shaper.Shape{Interval: interval, MaxBacklog: time.Duration(places) * interval, Paced: true}
}

// meter is who says when the first may leave: one an interval, as a store that others share.
type meter struct {
	greedy bool // others are always there first
	mu     sync.Mutex
	free   time.Time
}

func (m *meter) ask(cost int64) (retry time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.greedy {
		return interval
	}
	if retry = m.free.Sub(now); retry > 0 {
		return retry
	}
	m.free = now.Add(time.Duration(cost) * interval)
	return 0
}

type departure struct {
	came, left time.Time
	cost       int64
}

// crowd goes through lines and notes what becomes of everybody.
type crowd struct {
	lines shaper.Queues
	meter meter
	group sync.WaitGroup

	mu       sync.Mutex // guards the following
	departed []departure
	refused  []time.Duration
	gone     int
	late     int
}

func (c *crowd) come(ctx context.Context, shape shaper.Shape, cost int64, maxWait time.Duration) {
	c.group.Go(func() {
		var w shaper.Waiter
		if retry, ok := c.lines.Enqueue(&w, shaper.ID{Rule: "r", Key: "k"}, shape, cost, maxWait); !ok {
			c.note(func() { c.refused = append(c.refused, retry) })
			return
		}
		for {
			err := w.Wait(ctx)
			if err == nil {
				retry := c.meter.ask(cost)
				if retry == 0 {
					released := w.Release()
					c.note(func() { c.departed = append(c.departed, departure{w.EnqueuedAt, released, cost}) })
					return
				}
				err = w.Postpone(retry)
			}
			if errors.Is(err, shaper.ErrDeadlineTooSoon) {
				c.note(func() { c.late++ })
				return
			} else if err != nil {
				c.note(func() { c.gone++ })
				return
			}
		}
	})
}

func (c *crowd) note(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// check tells whether departures are in the order of arrivals, and as far apart as they have to be.
func (c *crowd) check(t *testing.T, shape shaper.Shape) {
	t.Helper()
	for i, d := range c.departed {
		if wait := d.left.Sub(d.came); wait > shape.MaxBacklog {
			t.Errorf("departure %d waited for %v, want at most %v", i, wait, shape.MaxBacklog)
		}
		if i == 0 {
			continue
		}
		before := c.departed[i-1]
		if gap, want := d.left.Sub(before.left), time.Duration(before.cost)*interval; gap < want {
			t.Errorf("departure %d came %v after the one before it, want at least %v", i, gap, want)
		}
		if d.came.Before(before.came) {
			t.Errorf("departure %d overtook the one before it", i)
		}
	}
}

// TestWorkedExample: a queue of 3 and 5 at once: delays of 0, 1 and 2 intervals, and two refused.
func TestWorkedExample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, start := new(crowd), time.Now()
		for range 5 {
			c.come(context.Background(), queueOf(3), 1, time.Hour)
			synctest.Wait()
		}
		c.group.Wait()
		var released []time.Duration
		for _, d := range c.departed {
			released = append(released, d.left.Sub(start))
		}
		if want := []time.Duration{0, interval, 2 * interval}; !slices.Equal(released, want) {
			t.Errorf("left at %v, want %v", released, want)
		}
		if want := []time.Duration{interval, interval}; !slices.Equal(c.refused, want) {
			t.Errorf("refused with %v, want %v", c.refused, want)
		}
	})
}

// TestAnyCrowd: whoever comes and goes, departures are spaced and in order, the line is never longer than it may be,
// and everybody is accounted for.
func TestAnyCrowd(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 7))
				c, shape := new(crowd), queueOf(1+rng.IntN(12))
				const callers = 120
				for range callers {
					ctx, cancel := context.Background(), context.CancelFunc(func() {})
					if rng.IntN(3) == 0 {
						ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(int(10*interval))))
					}
					defer cancel()
					cost := int64(1)
					if rng.IntN(8) == 0 {
						cost = min(3, int64(shape.MaxBacklog/interval))
					}
					c.come(ctx, shape, cost, time.Hour)
					if rng.IntN(3) > 0 {
						<-time.After(time.Duration(1 + rng.IntN(int(2*interval))))
					}
					synctest.Wait()
				}
				c.group.Wait()
				c.check(t, shape)
				if n := len(c.departed) + len(c.refused) + c.gone; n != callers || c.late > 0 {
					t.Errorf("%d departed, %d were refused, %d left and %d were late: %d of %d",
						len(c.departed), len(c.refused), c.gone, c.late, n, callers)
				}
			})
		})
	}
}

// TestCancelMakesRoom: who leaves frees the place at once, and those behind move up.
func TestCancelMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, start := new(crowd), time.Now()
		ctx, leave := context.WithCancel(context.Background())
		c.come(context.Background(), queueOf(5), 1, time.Hour)
		synctest.Wait()
		for range 4 {
			c.come(ctx, queueOf(5), 1, time.Hour)
			synctest.Wait()
		}
		leave()
		synctest.Wait()
		for range 4 {
			c.come(context.Background(), queueOf(5), 1, time.Hour)
			synctest.Wait()
		}
		c.group.Wait()
		if len(c.departed) != 5 || c.gone != 4 || len(c.refused) != 0 {
			t.Errorf("%d departed, %d left, %d were refused; want 5, 4, 0", len(c.departed), c.gone, len(c.refused))
		}
		if last := c.departed[4].left.Sub(start); last != 4*interval {
			t.Errorf("the last left at %v, want %v", last, 4*interval)
		}
	})
}

// TestMaxWait: who would be too late is refused when it comes, and told when it would not have been.
func TestMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(crowd)
		for range 4 {
			c.come(context.Background(), queueOf(100), 1, interval+interval/2)
			synctest.Wait()
		}
		c.group.Wait()
		if want := []time.Duration{interval / 2, interval / 2}; len(c.departed) != 2 || !slices.Equal(c.refused, want) {
			t.Errorf("%d departed, refused with %v; want 2, %v", len(c.departed), c.refused, want)
		}
	})
}

// TestOthers: where others use up what is metered, nobody waits for more than twice as long as it would.
func TestOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, maxWait := &crowd{meter: meter{greedy: true}}, 10*interval
		start := time.Now()
		for range 10 {
			c.come(context.Background(), queueOf(10), 1, maxWait)
			synctest.Wait()
		}
		c.group.Wait()
		if since := time.Since(start); since > 2*maxWait+interval || c.late+len(c.refused) != 10 || c.late < 9 {
			t.Errorf("after %v %d departed, %d were late and %d refused", since, len(c.departed), c.late, len(c.refused))
		}
	})
}

// TestForgets: lines in which nobody waits do not stay for ever, and never are too many.
func TestForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines shaper.Queues
		visit := func(i int, every time.Duration) {
			var w shaper.Waiter
			id := shaper.ID{Rule: "r", Key: fmt.Sprint(i)}
			if _, ok := lines.Enqueue(&w, id, shaper.Shape{Interval: every, MaxBacklog: every, Paced: true}, 1, 0); ok {
				w.Release()
			}
		}
		for i := range 10_000 {
			visit(i, time.Second)
			if i%10 == 9 {
				<-time.After(100 * time.Millisecond)
			}
		}
		if n := lines.Len(); n < 100 || n > 200 {
			t.Errorf("%d lines are kept, want the hundred of the last second and not many more", n)
		}
		for i := range 100_000 {
			visit(i, time.Hour)
		}
		if n := lines.Len(); n > 70_000 {
			t.Errorf("%d lines are kept although nobody waits", n)
		}
	})
}

func TestEnqueueAllocates(t *testing.T) {
	var lines shaper.Queues
	var w shaper.Waiter
	if n := testing.AllocsPerRun(100, func() {
		if _, ok := lines.Enqueue(&w, shaper.ID{Rule: "r", Key: "k"}, shaper.Shape{Interval: 1, Paced: true}, 1, time.Hour); ok {
			w.Release()
		}
	}); n > 0 {
		t.Errorf("%v allocations for a line in which nobody waits", n)
	}
}

// TestLongQueue: a queue of 30 has the same spacing as one of 3. Its weakness is that old requests fill it and the newest
// are dropped; how old the oldest is can be seen.
func TestLongQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, start := new(crowd), time.Now()
		shape := shaper.Shape{Interval: time.Second, MaxBacklog: 30 * time.Second, Paced: true}
		for range 35 {
			c.come(context.Background(), shape, 1, time.Hour)
			synctest.Wait()
		}
		for _, at := range []time.Duration{0, 10500 * time.Millisecond, 28500 * time.Millisecond} {
			<-time.After(at - time.Since(start))
			if age := shaper.Oldest(); age != at {
				t.Errorf("the oldest has waited for %v, want %v", age, at)
			}
		}
		c.group.Wait()
		for i, d := range c.departed {
			if at := d.left.Sub(start); at != time.Duration(i)*time.Second {
				t.Errorf("departure %d was after %v", i, at)
			}
		}
		if len(c.departed) != 30 || len(c.refused) != 5 {
			t.Errorf("%d departed and %d were refused, want 30 and 5", len(c.departed), len(c.refused))
		}
		if age := shaper.Oldest(); age != 0 {
			t.Errorf("no request waits, and the oldest has waited for %v", age)
		}
	})
}
