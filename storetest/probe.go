package storetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluiceproject/sluice"
)

// probe calls a store and records the first error. It is safe for concurrent use.
type probe struct {
	store sluice.Store
	clock *Clock

	mu  sync.Mutex // guards the fields below
	err error
}

// failf records an error, if it is the first.
func (p *probe) failf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

func (p *probe) fault() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// apply applies several takes in one call.
func (p *probe) apply(takes ...sluice.Take) []sluice.Decision {
	out := make([]sluice.Decision, len(takes))
	if err := p.store.Apply(context.Background(), takes, out); err != nil {
		p.failf("apply: %w", err)
	}
	return out
}

// take applies one take.
func (p *probe) take(r *sluice.Rule, key string, cost int64) sluice.Decision {
	return p.apply(sluice.Take{Rule: r, Key: key, Cost: cost})[0]
}

func (p *probe) peek(r *sluice.Rule, key string) sluice.Decision { return p.take(r, key, 0) }

// spent returns the usage of a key.
func (p *probe) spent(r *sluice.Rule, key string) int64 {
	d := p.peek(r, key)
	return d.Limit - d.Remaining
}

func (p *probe) reset(r *sluice.Rule, key string) {
	if err := p.store.(sluice.StoreAdmin).Reset(context.Background(), sluice.Bucket{Rule: r, Key: key}); err != nil {
		p.failf("reset: %w", err)
	}
}

// expect records an error unless a count is as expected.
func (p *probe) expect(what string, got, want int64) {
	if got != want {
		p.failf("%s: %d, want %d", what, got, want)
	}
}

// admitted takes n times and returns the granted cost.
func (p *probe) admitted(r *sluice.Rule, key string, n int, cost int64) (granted int64) {
	for range n {
		granted += p.take(r, key, cost).Granted
	}
	return granted
}

// at sets the clock to a time after the start.
func (p *probe) at(d time.Duration) { p.clock.Set(ClockStart.Add(d)) }

// together runs f in n goroutines and waits for all of them. It returns an error if the store deadlocks.
func together(n int, f func(i int)) error {
	done := make(chan struct{})
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-start
			f(i)
		})
	}
	go func() {
		all.Wait()
		close(done)
	}()
	close(start)
	select {
	case <-done:
		return nil
	case <-time.After(lockedUp):
		return fmt.Errorf("%d concurrent callers have not returned after %v: the store is deadlocked", n, lockedUp)
	}
}

// lockedUp is the time after which a check that should take a moment counts as deadlocked.
const lockedUp = time.Minute

// algorithm is an algorithm with options, and its invariant.
type algorithm struct {
	name string
	with func(sluice.Limit) sluice.Limit
	// holds checks the admitted takes, in order of time, against the algorithm's invariant.
	holds func(l *sluice.Limit, admitted []grant) error
}

// rule returns a rule with the algorithm.
func (a *algorithm) rule(name string, count int64, window time.Duration) *sluice.Rule {
	return newRule(name, a.with(sluice.Per(count, window)))
}

func newRule(name string, l sluice.Limit) *sluice.Rule {
	return sluice.Must(sluice.NewRule(sluice.Rule{Name: name, Limit: l}))
}

func with(a sluice.Algorithm) func(sluice.Limit) sluice.Limit {
	return func(l sluice.Limit) sluice.Limit { return l.WithAlgorithm(a) }
}

// soft is a fixed window with a soft excess of 3.
var soft = algorithm{name: "fixed_window_soft", with: func(l sluice.Limit) sluice.Limit {
	return l.WithAlgorithm(sluice.FixedWindow).WithSoftExcess(3, l.Window/4)
}}

// algorithms lists all algorithms, with the options that change how they count.
var algorithms = []algorithm{
	{"token_bucket", with(sluice.TokenBucket), bucketHolds},
	{"token_bucket_interval", func(l sluice.Limit) sluice.Limit {
		l.Refill = sluice.RefillInterval
		return l
	}, intervalHolds},
	{"leaky_bucket", with(sluice.LeakyBucket), bucketHolds},
	{"leaky_queue", with(sluice.LeakyQueue), queueHolds},
	{"fixed_window", with(sluice.FixedWindow), windowHolds},
	{"fixed_window_first_hit", func(l sluice.Limit) sluice.Limit {
		return l.WithAlgorithm(sluice.FixedWindow).WithAlign(sluice.AlignFirstRequest)
	}, boundaryHolds},
	{"sliding_log", with(sluice.SlidingWindowLog), logHolds},
	{"concurrency", func(l sluice.Limit) sluice.Limit { // without releases
		return l.WithAlgorithm(sluice.Concurrency).WithPermitTTL(min(l.Window, 24*time.Hour))
	}, logHolds},
	{"sliding_counter", with(sluice.SlidingWindowCounter), counterHolds},
	{"sliding_counter_subwindows", func(l sluice.Limit) sluice.Limit {
		l.SubWindows = 5
		return l.WithAlgorithm(sluice.SlidingWindowCounter)
	}, subWindowsHold},
}
