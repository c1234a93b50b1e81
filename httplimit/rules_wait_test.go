package httplimit_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

// newRuleWaiting is newWaiting with a rule set.
func newRuleWaiting(all []rules.Rule, opts ...httplimit.Option) *waiting {
	w := &waiting{start: time.Now(), answers: make(chan int, 1000)}
	w.h = httplimit.RulesMiddleware(limiter(memstore.New()), always(rules.Config{Rules: all}), opts...)(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.served = append(w.served, time.Since(w.start))
		}))
	return w
}

func (w *waiting) expect(t *testing.T, statuses []int, served ...int) {
	t.Helper()
	if got := w.statuses(); !slices.Equal(got, statuses) {
		t.Errorf("statuses %v, want %v", got, statuses)
	}
	if want := seconds(served...); !slices.Equal(w.served, want) {
		t.Errorf("served at %v, want %v", w.served, want)
	}
}

// waitingRules delay three requests at 1/s: a leaky queue, and a bucket with on_limit: delay.
var waitingRules = map[string][]rules.Rule{
	"queue": {{Name: "queue", Per: refs("ip"), Limits: limits(queue)}},
	"queue and others": {
		{Name: "day", Limits: limits(sluice.PerDay(100))},
		{Name: "queue", Per: refs("ip"), Limits: limits(queue), OnLimit: rules.OnLimitDelay},
	},
	"delay": {{
		Name: "bucket", Per: refs("ip"), Limits: limits(sluice.PerSecond(1)), OnLimit: rules.OnLimitDelay, MaxDelay: 2 * time.Second,
	}},
	"delay of two parts": {{
		Name: "bucket", Per: refs("ip", "host"), Limits: limits(sluice.PerSecond(1), sluice.PerDay(1000)),
		OnLimit: rules.OnLimitDelay, MaxDelay: 2 * time.Second,
	}},
}

func TestRulesWait(t *testing.T) {
	for name, all := range waitingRules {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newRuleWaiting(all)
				for range 4 {
					w.arrive(context.Background())
				}
				w.expect(t, []int{200, 200, 200, 429}, 0, 1, 2)
			})
		})
	}
}

// TestRulesWaitLeave: a request whose client disconnects is not served and frees its place for the next one.
func TestRulesWaitLeave(t *testing.T) {
	for name, all := range waitingRules {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newRuleWaiting(all)
				w.arrive(context.Background())
				w.arrive(context.Background())
				ctx, leave := context.WithCancel(context.Background())
				w.arrive(ctx) // would be served at 2 s
				w.arrive(context.Background())
				leave()
				synctest.Wait()
				w.arrive(context.Background()) // takes the place
				w.expect(t, []int{200, 200, 200, 429, 499}, 0, 1, 2)
			})
		})
	}
}

// TestRulesWaitBounds: the option and the deadline also bound the delay, and a request denied for it takes no place.
func TestRulesWaitBounds(t *testing.T) {
	for name, all := range waitingRules {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newRuleWaiting(all, httplimit.MaxDelay(1500*time.Millisecond))
				for range 3 { // the third would wait for 2 s
					w.arrive(context.Background())
				}
				<-time.After(time.Second)
				ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
				defer cancel()
				w.arrive(ctx) // would be served at 2 s, half a second after its deadline
				if since := time.Since(w.start); since != time.Second {
					t.Errorf("response after %v, want at once", since)
				}
				w.arrive(context.Background())
				w.expect(t, []int{200, 200, 200, 429, 429}, 0, 1, 2)
			})
		})
	}
}

// TestRulesWaitMaxDelay: the rule's max_delay bounds the delay in a leaky queue.
func TestRulesWaitMaxDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rules.Rule{Name: "queue", Limits: limits(queue.WithBurst(100)), OnLimit: rules.OnLimitDelay, MaxDelay: time.Second}
		w := newRuleWaiting([]rules.Rule{r})
		for range 3 {
			w.arrive(context.Background())
		}
		w.expect(t, []int{200, 200, 429}, 0, 1)
	})
}

// TestRulesWaitNever: rules in shadow mode delay no request, and one with on_limit: queue denies, without a durable queue.
func TestRulesWaitNever(t *testing.T) {
	for _, tt := range []struct {
		name     string
		rule     rules.Rule
		statuses []int
		served   []int
	}{
		{"shadow of a queue", rules.Rule{
			Name: "a", Limits: limits(queue), Shadow: true,
		}, []int{200, 200, 200}, []int{0, 0, 0}},
		{"shadow of a delay", rules.Rule{
			Name: "a", Limits: limits(sluice.PerSecond(1)), OnLimit: rules.OnLimitDelay, MaxDelay: time.Minute, Shadow: true,
		}, []int{200, 200, 200}, []int{0, 0, 0}},
		{"on_limit: queue", rules.Rule{
			Name: "a", Limits: limits(sluice.PerSecond(1)), OnLimit: rules.OnLimitQueue,
		}, []int{200, 429, 429}, []int{0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newRuleWaiting([]rules.Rule{tt.rule})
				for range 3 {
					w.arrive(context.Background())
				}
				w.expect(t, tt.statuses, tt.served...)
			})
		})
	}
}

// TestRulesWaitAndStatus: a delayed request whose status is not charged is refunded.
func TestRulesWaitAndStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rules.Rule{
			Name: "queue", Limits: limits(sluice.PerHour(1).WithAlgorithm(sluice.LeakyQueue).WithBurst(2)), OnLimit: rules.OnLimitDelay,
			ChargeStatus: rules.StatusRanges{{From: 500, To: 599}},
		}
		w := newRuleWaiting([]rules.Rule{r})
		for range 5 {
			w.arrive(context.Background()) // each finds an empty queue
		}
		w.expect(t, []int{200, 200, 200, 200, 200}, 0, 0, 0, 0, 0)
	})
}
