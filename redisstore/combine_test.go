package redisstore

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/group"
)

// fakeRuns is a server that replies when the test releases a run. The At of an answer is the cost of its take, so that
// mixed-up answers are noticed.
type fakeRuns struct {
	release chan error // one message per run
	mu      sync.Mutex // guards sizes
	sizes   []int      // groups of each run so far
	plain   []bool
}

func (f *fakeRuns) run(ctx context.Context, c *call) error {
	groups := 0
	for i := range c.ops {
		if c.ops[i].ends {
			groups++
		}
	}
	f.mu.Lock()
	f.sizes = append(f.sizes, groups)
	f.plain = append(f.plain, c.allFast)
	f.mu.Unlock()
	select {
	case err := <-f.release:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	for i := range c.ops {
		c.answers[i].At = c.ops[i].Request.Cost
	}
	return nil
}

func groupOf(cost int64, takes int) *call {
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerHour(1_000_000)}))
	all := make([]sluice.Take, takes)
	for i := range all {
		all[i] = sluice.Take{Rule: rule, Key: "k" + strconv.Itoa(i), Cost: cost}
		if takes > 1 {
			all[i].MaxDelay = time.Second // so that it is not a fast take
		}
	}
	return sluice.Must(newCall(&namer{}, &group.Registry{}, sluice.Must(opsOf(all))))
}

// TestCombiner checks that calls are sent at once while few runs are in flight, and in batches otherwise.
func TestCombiner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRuns{release: make(chan error)}
		b := &batcher{run: f.run}
		var all sync.WaitGroup
		const callers = 40
		for i := range callers {
			all.Go(func() {
				takes := 1
				if i%4 == 3 {
					takes = 2
				}
				c := groupOf(int64(i+1), takes)
				err := b.apply(context.Background(), c)
				answers := c.answers
				if err != nil || len(answers) != takes || answers[0].At != int64(i+1) || answers[takes-1].At != int64(i+1) {
					t.Errorf("caller %d got %v, %v", i, answers, err)
				}
			})
		}
		synctest.Wait()
		if len(f.sizes) != batchThreshold {
			t.Fatalf("%d runs in flight, want %d", len(f.sizes), batchThreshold)
		}
		f.release <- nil
		synctest.Wait()
		f.release <- nil
		synctest.Wait()
		close(f.release) // all succeed from here on
		all.Wait()
		synctest.Wait()
		if len(f.sizes) != batchThreshold+2 || f.sizes[batchThreshold]+f.sizes[batchThreshold+1] != callers-batchThreshold {
			t.Errorf("runs of %v groups: want %d runs of one group, then one run of the fast takes and one of the others", f.sizes, batchThreshold)
		}
		if b.inFlight != 0 || len(b.waiting) != 0 {
			t.Errorf("%d runs in flight and %d calls waiting at the end", b.inFlight, len(b.waiting))
		}
	})
}

// TestCombinerDeadlines checks that a caller returns at its deadline, that the others get their answers, and that a
// call that no run included is not charged.
func TestCombinerDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRuns{release: make(chan error)}
		b := &batcher{run: f.run}
		var all sync.WaitGroup
		for range batchThreshold {
			all.Go(func() {
				if err := b.apply(context.Background(), groupOf(1, 1)); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		impatient, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		all.Go(func() {
			err := b.apply(impatient, groupOf(7, 1))
			if !errors.Is(err, sluice.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("deadline exceeded: error %v", err)
			}
		})
		all.Go(func() {
			if err := b.apply(context.Background(), groupOf(2, 1)); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		<-impatient.Done()
		synctest.Wait()
		close(f.release)
		all.Wait()
		if last := f.sizes[len(f.sizes)-1]; last != 1 {
			t.Errorf("the last run had %d groups: calls of callers that had left were sent", last)
		}
	})
}

// TestCombinerErrors checks that an error reaches all callers of the batch, and no others.
func TestCombinerErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRuns{release: make(chan error)}
		b := &batcher{run: f.run}
		var all sync.WaitGroup
		var mu sync.Mutex
		failed := 0
		broken := errors.New("broken")
		for range batchThreshold + 5 {
			all.Go(func() {
				if err := b.apply(context.Background(), groupOf(1, 1)); err != nil {
					mu.Lock()
					failed++
					mu.Unlock()
				}
			})
			synctest.Wait()
		}
		for range batchThreshold {
			f.release <- nil
		}
		f.release <- broken
		all.Wait()
		if failed != 5 {
			t.Errorf("%d callers failed, want the 5 of the batch", failed)
		}
	})
}

// TestCombinerClose checks that waiting callers get an answer, that close waits for runs on no caller's goroutine, and
// that later calls run alone.
func TestCombinerClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRuns{release: make(chan error)}
		b := &batcher{run: f.run}
		var all sync.WaitGroup
		for i := range 3 * batchThreshold {
			all.Go(func() {
				c := groupOf(int64(i+1), 1+i%2)
				if err := b.apply(context.Background(), c); err != nil || c.answers[0].At != int64(i+1) {
					t.Errorf("caller %d got %v, %v", i, c.answers, err)
				}
			})
		}
		synctest.Wait()
		f.release <- nil // so that the next run is on its own goroutine
		synctest.Wait()
		closed := make(chan struct{})
		go func() {
			b.close()
			close(closed)
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("close returned while a run on no caller's goroutine was in flight")
		default:
		}
		close(f.release)
		<-closed
		all.Wait()
		if b.inFlight != 0 || len(b.waiting) != 0 {
			t.Errorf("%d runs in flight and %d calls waiting at the end", b.inFlight, len(b.waiting))
		}
		before := len(f.sizes)
		for range 2 {
			if err := b.apply(context.Background(), groupOf(1, 1)); err != nil {
				t.Error(err)
			}
		}
		if len(f.sizes) != before+2 {
			t.Errorf("%d runs for two calls after close, want 2", len(f.sizes)-before)
		}
	})
}

// TestCombinerFarAway checks that with a slow server no caller waits long for a batch, nor for runs that are stuck.
func TestCombinerFarAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const trip = 5 * time.Millisecond
		b := &batcher{run: func(context.Context, *call) error {
			<-time.After(trip)
			return nil
		}}
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				<-time.After(time.Duration(i) * 300 * time.Microsecond)
				began := time.Now()
				if err := b.apply(context.Background(), groupOf(1, 1)); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > trip+maxBatchDelay {
					t.Errorf("caller %d waited for %v", i, took)
				}
			})
		}
		all.Wait()
		synctest.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.inFlight != 0 || len(b.waiting) != 0 {
			t.Errorf("%d runs in flight and %d calls waiting at the end", b.inFlight, len(b.waiting))
		}
	})
}

// TestCombinerGathersThoseWhoComeBack checks that callers that call again as soon as they have an answer share the next
// run.
func TestCombinerGathersThoseWhoComeBack(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) { // otherwise the timer sends batches early on a slow machine
		const callers, rounds = 8, 100
		var runs, takes atomic.Int64
		b := &batcher{inFlight: batchThreshold - 1} // other runs are in flight all the time
		b.run = func(_ context.Context, c *call) error {
			runs.Add(1)
			takes.Add(int64(len(c.ops)))
			for range 3 * callers { // meanwhile other goroutines run
				runtime.Gosched()
			}
			return nil
		}
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for range rounds {
					if err := b.apply(context.Background(), groupOf(1, 1)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if takes.Load() != callers*rounds {
			t.Errorf("%d takes were run instead of %d", takes.Load(), callers*rounds)
		}
		if most := int64(callers * rounds / 5); runs.Load() > most { // 1/4 of the takes if the first caller gets a run to itself
			t.Errorf("%d runs for %d takes: want at most %d", runs.Load(), takes.Load(), most)
		}
	})
}
