package loadgen_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/loadgen"
)

// A fake is a server with a virtual clock.
type fake struct {
	serve func(ctx context.Context, n int) (loadgen.Answer, error) // n is the number of requests before

	mu     sync.Mutex
	asked  int
	keys   map[int64]int
	groups map[int]int // by size
}

func newFake(serve func(ctx context.Context, n int) (loadgen.Answer, error)) *fake {
	return &fake{serve: serve, keys: map[int64]int{}, groups: map[int]int{}}
}

func (f *fake) Dial(context.Context) (loadgen.Caller, error) { return f, nil }
func (f *fake) Close() error                                 { return nil }

func (f *fake) Ask(ctx context.Context, keys []int64, answered func(loadgen.Answer)) error {
	f.mu.Lock()
	f.groups[len(keys)]++
	f.mu.Unlock()
	for _, key := range keys {
		f.mu.Lock()
		n := f.asked
		f.asked++
		f.keys[key]++
		f.mu.Unlock()
		a, err := f.serve(ctx, n)
		if err != nil {
			return err
		}
		answered(a)
	}
	return nil
}

// pause waits on the virtual clock.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var yes = loadgen.Answer{Kind: loadgen.Allowed, Code: "OK"}

func run(t *testing.T, p loadgen.Plan) *loadgen.Result {
	t.Helper()
	if p.Timeout == 0 {
		p.Timeout = 5 * time.Second
	}
	r, err := loadgen.Run(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func counts(r *loadgen.Result) string {
	return fmt.Sprintf("%d allowed, %d denied, %d failed", r.Sum.Allowed, r.Sum.Denied, r.Sum.Failed)
}

// stalling responds in 1 ms, except during a stall of 1 s.
func stalling(begun time.Time) *fake {
	return newFake(func(ctx context.Context, _ int) (loadgen.Answer, error) {
		ends := time.Since(begun) + time.Millisecond
		if ends >= time.Second && ends < 2*time.Second {
			ends = 2*time.Second + time.Millisecond
		}
		return yes, pause(ctx, ends-time.Since(begun))
	})
}

func near(got, want time.Duration) bool {
	return got >= want && float64(got) <= float64(want)*(1+loadgen.Precision)
}

// The latencies of an open loop include those of all requests that were due during a stall of 1 s: with enough callers, and
// with a single one, which sends the requests late.
func TestStallIsSeenByAllWhoWouldWait(t *testing.T) {
	const rate = 100
	for _, callers := range []int{150, 1} {
		synctest.Test(t, func(t *testing.T) {
			r := run(t, loadgen.Plan{Target: stalling(time.Now()), Callers: callers, Rate: rate, Duration: 3 * time.Second})
			var want loadgen.Histogram // each request is sent when it is due, or when the caller is free
			free := make([]time.Duration, callers)
			for i := range 3 * rate {
				due := time.Duration(i) * time.Second / rate
				begin := max(due, free[i%callers])
				end := begin + time.Millisecond
				if end >= time.Second && end < 2*time.Second {
					end = 2*time.Second + time.Millisecond
				}
				free[i%callers] = end
				want.Record(end - due)
			}
			if r.Sum.Allowed != 3*rate || r.Requests() != 3*rate {
				t.Errorf("%d callers: %d of %d requests", callers, r.Sum.Allowed, 3*rate)
			}
			h := &r.Sum.Latency
			if h.Max() != want.Max() || h.Mean() != want.Mean() {
				t.Errorf("%d callers: mean %v, max %v; want %v, %v", callers, h.Mean(), h.Max(), want.Mean(), want.Max())
			}
			for _, p := range []float64{50, 66, 67, 70, 90, 99} {
				if got := h.Percentile(p); got != want.Percentile(p) {
					t.Errorf("%d callers: p%v is %v, want %v", callers, p, got, want.Percentile(p))
				}
			}
			if !near(h.Percentile(99), 971*time.Millisecond) { // the third of 300 requests due during the stall
				t.Errorf("%d callers: p99 is %v, although requests waited for up to 1 s", callers, h.Percentile(99))
			}
			if r.Behind() != (callers == 1) {
				t.Errorf("%d callers: %d late, on schedule: %t", callers, r.Late, !r.Behind())
			}
			if took := r.Elapsed; took != 3*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// In a closed loop one request per caller waits for the stall, because it measures capacity instead of latency.
func TestClosedLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := stalling(time.Now())
		r := run(t, loadgen.Plan{Target: f, Callers: 2, Duration: 3 * time.Second})
		if want := int64(2 * 1999); math.Abs(float64(r.Sum.Allowed-want)) > 4 || r.Sum.Allowed != int64(f.asked) {
			t.Errorf("%d responses of %d requests, want %d", r.Sum.Allowed, f.asked, want)
		}
		if p := r.Sum.Latency.Percentile(99); !near(p, time.Millisecond) || r.Sum.Latency.Max() < time.Second {
			t.Errorf("p99 %v, max %v", p, r.Sum.Latency.Max())
		}
		// Each point is 100 ms long, and those during the stall have no responses.
		sum := loadgen.Point{}
		for _, p := range r.Points {
			sum.Allowed += p.Allowed
			if inside := p.At > 1100*time.Millisecond && p.At < 2*time.Second; inside && p.Allowed > 0 {
				t.Errorf("%d responses until %v", p.Allowed, p.At)
			}
		}
		if len(r.Points) < 29 || len(r.Points) > 31 || sum.Allowed != r.Sum.Allowed {
			t.Errorf("%d points with %d responses", len(r.Points), sum.Allowed)
		}
	})
}

func TestRequestsAreExact(t *testing.T) {
	for _, p := range []loadgen.Plan{
		{Callers: 7, Requests: 100},
		{Callers: 7, Requests: 100, Pipeline: 16},
		{Callers: 3, Requests: 1000, Rate: 500},
		{Callers: 3, Requests: 1000, Rate: 500, Pipeline: 8, Duration: time.Hour},
		{Callers: 200, Requests: 5},
		{Callers: 5, Requests: 64, Warmup: time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			var warm atomic.Int64
			begun := time.Now()
			f := newFake(func(ctx context.Context, n int) (loadgen.Answer, error) {
				if time.Since(begun) < p.Warmup {
					warm.Add(1)
				}
				kind := []loadgen.Answer{yes, {Kind: loadgen.Denied, Code: "NO"}, {Kind: loadgen.Failed, Code: "500"}}[n%3]
				if n%10 == 9 {
					return kind, errors.New("broken")
				}
				return kind, pause(ctx, 10*time.Millisecond)
			})
			p.Target, p.Keys = f, loadgen.Keys{Count: 10}
			r := run(t, p)
			if got := r.Requests(); got != p.Requests || r.Sum.Allowed+r.Sum.Denied+r.Sum.Failed != p.Requests {
				t.Errorf("%+v: %d requests, %s", p, got, counts(r))
			}
			answers, without := int64(0), int64(0)
			for _, n := range r.Codes {
				answers += n
			}
			for _, n := range r.Reasons {
				without += n
			}
			if answers+without != p.Requests {
				t.Errorf("%d responses and %d requests without one", answers, without)
			}
			if p.Pipeline <= 1 && int64(f.asked)-warm.Load() != p.Requests { // the rest of a failed group is not sent
				t.Errorf("%d requests were sent", int64(f.asked)-warm.Load())
			}
		})
	}
}

// Requests that are due at the same time are pipelined, and no others.
func TestOpenLoopPipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(func(ctx context.Context, n int) (loadgen.Answer, error) {
			if n == 0 {
				return yes, pause(ctx, 100*time.Millisecond) // so that the next 10 are due
			}
			return yes, nil
		})
		run(t, loadgen.Plan{Target: f, Callers: 1, Rate: 100, Requests: 31, Pipeline: 4})
		if f.groups[4] != 2 || f.groups[1] != 21 || f.groups[2] != 1 {
			t.Errorf("groups by size: %v", f.groups)
		}
	})
}

// A timeout counts as latency; an immediate failure does not.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(func(ctx context.Context, n int) (loadgen.Answer, error) {
			switch n % 3 {
			case 0:
				return yes, pause(ctx, time.Millisecond)
			case 1:
				return yes, pause(ctx, time.Hour)
			}
			return yes, errors.New("read tcp 127.0.0.1:4711->127.0.0.1:80: reset")
		})
		r := run(t, loadgen.Plan{Target: f, Callers: 1, Requests: 9, Timeout: time.Second})
		if r.Sum.Allowed != 3 || r.Sum.Failed != 6 || r.Reasons["no response in time"] != 3 || r.Reasons["read tcp 127.0.0.1:80: reset"] != 3 {
			t.Errorf("%s %v", counts(r), r.Reasons)
		}
		if h := &r.Sum.Latency; h.Count() != 6 || h.Max() != time.Second || !near(h.Percentile(50), time.Millisecond) {
			t.Errorf("%d latencies up to %v, half of them %v", h.Count(), h.Max(), h.Percentile(50))
		}
	})
}

// A server that never responds does not delay the end of a run, and all requests that were due are counted.
func TestNeverSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		f := newFake(func(ctx context.Context, _ int) (loadgen.Answer, error) { return yes, pause(ctx, time.Hour) })
		r := run(t, loadgen.Plan{Target: f, Callers: 2, Rate: 10, Duration: 10 * time.Second, Timeout: 3 * time.Second})
		if took := time.Since(begun); took > 17*time.Second {
			t.Errorf("took %v", took)
		}
		if r.Requests() != 100 || r.Sum.Failed != 100 || r.Missed != 100-int64(f.asked) || f.asked != 10 || !r.Behind() {
			t.Errorf("%d failed, %d never sent, %d asked", r.Sum.Failed, r.Missed, f.asked)
		}
		if h := &r.Sum.Latency; h.Count() != 100 || h.Percentile(50) < 3*time.Second {
			t.Errorf("%d latencies, half of them %v", h.Count(), h.Percentile(50))
		}
	})
}

// An interrupt ends a run at once. Requests in flight count as cut, not as responses or errors.
func TestInterrupt(t *testing.T) {
	for _, rate := range []float64{0, 1000} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(func(ctx context.Context, n int) (loadgen.Answer, error) {
				if n >= 10 {
					return yes, pause(ctx, time.Hour)
				}
				return yes, nil
			})
			ctx, stop := context.WithCancel(t.Context())
			time.AfterFunc(500*time.Millisecond, stop)
			begun := time.Now()
			r, err := loadgen.Run(ctx, loadgen.Plan{Target: f, Callers: 4, Rate: rate, Duration: time.Minute, Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			if time.Since(begun) != 500*time.Millisecond || !r.Interrupted {
				t.Errorf("ended after %v", time.Since(begun))
			}
			if r.Sum.Allowed != 10 || r.Cut != 4 || r.Sum.Failed != 0 || r.Requests() != int64(f.asked) {
				t.Errorf("%s, %d cut off, %d asked", counts(r), r.Cut, f.asked)
			}
		})
	}
}

// An unavailable server gets a request every 10 ms per caller, not as many as possible.
func TestDeadServerIsNotHammered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(func(ctx context.Context, _ int) (loadgen.Answer, error) {
			_ = pause(ctx, 50*time.Microsecond)
			return yes, errors.New("refused")
		})
		r := run(t, loadgen.Plan{Target: f, Callers: 3, Duration: time.Second})
		if r.Sum.Failed != int64(f.asked) || f.asked > 303 {
			t.Errorf("%d failed, %d asked", r.Sum.Failed, f.asked)
		}
	})
}

func TestKeys(t *testing.T) {
	const keys = 100
	share := func(zipf float64) (all int, first float64) {
		var f *fake
		synctest.Test(t, func(t *testing.T) {
			f = newFake(func(context.Context, int) (loadgen.Answer, error) { return yes, nil })
			run(t, loadgen.Plan{Target: f, Callers: 3, Requests: 20_000, Keys: loadgen.Keys{Count: keys, Zipf: zipf, Seed: 1}})
		})
		for key := range f.keys {
			if key < 0 || key >= keys {
				t.Errorf("key %d", key)
			}
		}
		return len(f.keys), float64(f.keys[0]) / 20_000
	}
	if all, first := share(0); all != keys || first < 0.005 || first > 0.015 {
		t.Errorf("uniform: %d keys, the first with a share of %v", all, first)
	}
	if all, first := share(1.1); all != keys || first < 0.15 || first > 0.4 {
		t.Errorf("zipf: %d keys, the first with a share of %v", all, first)
	}
}

// The number of points of a long run is bounded, and they include all requests.
func TestPointsStayFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(func(context.Context, int) (loadgen.Answer, error) { return yes, nil })
		told, last := 0, loadgen.Progress{}
		r := run(t, loadgen.Plan{Target: f, Callers: 1, Rate: 2, Duration: 10 * time.Minute, Progress: func(p loadgen.Progress) {
			told++
			last = p
		}})
		if len(r.Points) > 200 || len(r.Points) < 80 {
			t.Errorf("%d points", len(r.Points))
		}
		sum, at := int64(0), time.Duration(0)
		for _, p := range r.Points {
			sum += p.Allowed
			if at += p.For; p.At != at {
				t.Fatalf("the point until %v ends at %v", p.At, at)
			}
		}
		if sum != 1200 || r.Requests() != 1200 || r.Elapsed != 10*time.Minute {
			t.Errorf("%d responses in points, %d in total, in %v", sum, r.Requests(), r.Elapsed)
		}
		if told < 80 || last.Allowed < 1150 || last.PerSecond < 1.5 || last.PerSecond > 2.5 {
			t.Errorf("Progress was called %d times, last with %+v", told, last)
		}
	})
}

func TestEndlessPlan(t *testing.T) {
	if _, err := loadgen.Run(t.Context(), loadgen.Plan{Target: newFake(nil)}); err == nil {
		t.Error("a plan without an end is accepted")
	}
}
