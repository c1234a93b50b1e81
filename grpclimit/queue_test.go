package grpclimit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/grpclimit"
	"github.com/sluiceproject/sluice/memstore"
)

// queued returns a function that calls through the interceptor and returns the delay of the handler.
func queued(l *sluice.Limiter, opts ...grpclimit.Option) func(ctx context.Context) (time.Duration, error) {
	interceptor := grpclimit.UnaryServerInterceptor(l, grpclimit.Global(), opts...)
	return func(ctx context.Context) (took time.Duration, err error) {
		start := time.Now()
		_, err = interceptor(ctx, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) {
			took = time.Since(start)
			return nil, nil
		})
		return took, err
	}
}

// queues returns limiters with a leaky queue of 1/min, each called by another method.
func queues(t *testing.T) map[string]func(context.Context) (time.Duration, error) {
	t.Helper()
	queue := sluice.Every(time.Minute).WithAlgorithm(sluice.LeakyQueue).WithBurst(3)
	built := sluice.Must(queue.Build())
	rule := sluice.Rule{Name: "queue", Limit: queue}
	plain := sluice.Rule{Name: "plain", Limit: sluice.PerHour(1000)}
	return map[string]func(context.Context) (time.Duration, error){
		"one rule":  queued(limiterOf(t, memstore.New(), rule)),
		"two rules": queued(limiterOf(t, memstore.New(), plain, rule)),
		"with a tighter rule": queued(limiterOf(t, memstore.New(),
			sluice.Rule{Name: "queue", Limit: queue.WithBurst(100)}, sluice.Rule{Name: "plain", Limit: sluice.PerHour(4)})),
		"LimitFor": queued(limiterOf(t, memstore.New(), plain),
			grpclimit.LimitFor(func(context.Context, string, string) *sluice.Limit { return built })),
		"ChargeIf": queued(limiterOf(t, memstore.New(), rule), grpclimit.ChargeIf(func(codes.Code) bool { return true })),
	}
}

func TestQueueWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, call := range queues(t) {
			results := make(chan time.Duration, 3)
			for range 3 {
				go func() {
					took, err := call(context.Background())
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
					results <- took
				}()
				synctest.Wait() // until it is in the queue
			}
			for _, want := range []time.Duration{0, time.Minute, 2 * time.Minute} {
				if got := <-results; got != want {
					t.Errorf("%s: a call waited %v, want %v", name, got, want)
				}
			}
		}
	})
}

func TestQueueGivesPlaceBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, call := range queues(t) {
			if took, err := call(context.Background()); took != 0 || err != nil {
				t.Fatalf("%s: first call waited %v, %v", name, took, err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			result := make(chan error)
			go func() {
				_, err := call(ctx)
				result <- err
			}()
			synctest.Wait() // until it is in the queue
			cancel()
			if err := <-result; status.Code(err) != codes.Canceled {
				t.Errorf("%s: cancelled call: %v, want CANCELLED", name, err)
			}
			if took, err := call(context.Background()); took != time.Minute || err != nil {
				t.Errorf("%s: the next call waited %v, %v; want the refunded place", name, took, err)
			}
		}
	})
}

// A call whose deadline is before the end of its delay fails at once.
func TestQueueBeyondDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, call := range queues(t) {
			if _, err := call(context.Background()); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			start := time.Now()
			if _, err := call(ctx); status.Code(err) != codes.DeadlineExceeded || time.Since(start) != 0 {
				t.Errorf("%s: after %v %v, want DEADLINE_EXCEEDED at once", name, time.Since(start), err)
			}
			cancel()
			if took, err := call(context.Background()); took != time.Minute || err != nil {
				t.Errorf("%s: the next call waited %v, %v; want the refunded place", name, took, err)
			}
		}
	})
}
