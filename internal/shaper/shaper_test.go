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

// meter decides when the first waiter may be released: one per interval, like a store that other instances share.
type meter struct {
	greedy bool // other instances always use the limit first
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

// crowd sends callers through a queue and records their outcomes.
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
	c.send(ctx, shape, cost, maxWait, func() time.Duration { return c.meter.ask(cost) })
}

// send is come with a decision of its own, which returns 0 or the time to wait.
func (c *crowd) send(ctx context.Context, shape shaper.Shape, cost int64, maxWait time.Duration, decide func() time.Duration) {
	c.group.Go(func() {
		var w shaper.Waiter
		if retry, ok := c.lines.Enqueue(&w, shaper.ID{Rule: "r", Key: "k"}, shape, cost, maxWait); !ok {
			c.note(func() { c.refused = append(c.refused, retry) })
			return
		}
		for {
			err := w.Wait(ctx)
			if err == nil {
				retry := decide()
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

// check fails the test unless releases are in order of arrival and at least as far apart as required.
func (c *crowd) check(t *testing.T, shape shaper.Shape) {
	t.Helper()
	for i, d := range c.departed {
		if wait := d.left.Sub(d.came); wait > shape.MaxBacklog {
			t.Errorf("release %d waited for %v, want at most %v", i, wait, shape.MaxBacklog)
		}
		if i == 0 {
			continue
		}
		before := c.departed[i-1]
		if gap, want := d.left.Sub(before.left), time.Duration(before.cost)*interval; gap < want {
			t.Errorf("release %d was %v after the previous one, want at least %v", i, gap, want)
		}
		if d.came.Before(before.came) {
			t.Errorf("release %d arrived before the previous one", i)
		}
	}
}

// TestWorkedExample: 5 concurrent callers of a queue of 3: delays of 0, 1 and 2 intervals, and two denied.
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
			t.Errorf("denied with %v, want %v", c.refused, want)
		}
	})
}

// TestAnyCrowd: for random arrivals and cancellations, releases are spaced and in order, the backlog never exceeds its
// maximum, and every caller has an outcome.
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
					t.Errorf("%d released, %d denied, %d cancelled and %d too late: %d of %d",
						len(c.departed), len(c.refused), c.gone, c.late, n, callers)
				}
			})
		})
	}
}

// TestCancelMakesRoom: a cancelled waiter frees its place at once, and the waiters behind it move up.
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
			t.Errorf("%d released, %d cancelled, %d denied; want 5, 4, 0", len(c.departed), c.gone, len(c.refused))
		}
		if last := c.departed[4].left.Sub(start); last != 4*interval {
			t.Errorf("the last was released at %v, want %v", last, 4*interval)
		}
	})
}

// TestMaxWait: a caller that would wait too long is denied on arrival, with the time after which it would not.
func TestMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(crowd)
		for range 4 {
			c.come(context.Background(), queueOf(100), 1, interval+interval/2)
			synctest.Wait()
		}
		c.group.Wait()
		if want := []time.Duration{interval / 2, interval / 2}; len(c.departed) != 2 || !slices.Equal(c.refused, want) {
			t.Errorf("%d released, denied with %v; want 2, %v", len(c.departed), c.refused, want)
		}
	})
}

// TestOthers: if other instances use up the limit, no caller waits for more than twice its maximum.
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
			t.Errorf("after %v %d released, %d too late and %d denied", since, len(c.departed), c.late, len(c.refused))
		}
	})
}

// TestForgets: empty queues are removed, and their number is bounded.
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
			t.Errorf("%d queues, want the 100 of the last second and not many more", n)
		}
		for i := range 100_000 {
			visit(i, time.Hour)
		}
		if n := lines.Len(); n > 70_000 {
			t.Errorf("%d queues without waiters", n)
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
		t.Errorf("%v allocations for a queue without other waiters", n)
	}
}

// TestLongQueue: a queue of 30 has the same spacing as one of 3. Its weakness is that old requests fill it while the newest
// are denied, which Oldest shows.
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
				t.Errorf("Oldest is %v, want %v", age, at)
			}
		}
		c.group.Wait()
		for i, d := range c.departed {
			if at := d.left.Sub(start); at != time.Duration(i)*time.Second {
				t.Errorf("release %d was after %v", i, at)
			}
		}
		if len(c.departed) != 30 || len(c.refused) != 5 {
			t.Errorf("%d released and %d denied, want 30 and 5", len(c.departed), len(c.refused))
		}
		if age := shaper.Oldest(); age != 0 {
			t.Errorf("Oldest is %v without waiters", age)
		}
	})
}
