package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
)

// waiting serves delayed requests and records the time and status of each response.
type waiting struct {
	h     http.Handler
	start time.Time
	group sync.WaitGroup

	mu      sync.Mutex // guards served
	served  []time.Duration
	answers chan int
}

func newWaiting(rules []*sluice.Rule, opts ...httplimit.Option) *waiting {
	w := &waiting{start: time.Now(), answers: make(chan int, 1000)}
	w.h = httplimit.Middleware(limiter(memstore.New(), rules...), httplimit.ByIP(), opts...)(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.served = append(w.served, time.Since(w.start))
		}))
	return w
}

// arrive sends a request and returns when it is delayed or has its response.
func (w *waiting) arrive(ctx context.Context) {
	w.group.Go(func() { w.answers <- serve(w.h, request().WithContext(ctx)).StatusCode })
	synctest.Wait()
}

func (w *waiting) statuses() (all []int) {
	w.group.Wait()
	close(w.answers)
	for s := range w.answers {
		all = append(all, s)
	}
	slices.Sort(all)
	return all
}

func seconds(n ...int) (all []time.Duration) {
	for _, s := range n {
		all = append(all, time.Duration(s)*time.Second)
	}
	return all
}

var (
	queue  = sluice.PerSecond(1).WithAlgorithm(sluice.LeakyQueue).WithBurst(3)
	queues = map[string][]*sluice.Rule{
		"one rule": {rule("queue", queue)},
		"several":  {rule("queue", queue), rule("day", sluice.PerDay(100))},
	}
)

func TestQueueWaits(t *testing.T) {
	for name, rules := range queues {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWaiting(rules)
				for range 4 {
					w.arrive(context.Background())
				}
				if got, want := w.statuses(), []int{200, 200, 200, 429}; !slices.Equal(got, want) {
					t.Errorf("statuses %v, want %v", got, want)
				}
				if want := seconds(0, 1, 2); !slices.Equal(w.served, want) {
					t.Errorf("served at %v, want %v", w.served, want)
				}
			})
		})
	}
}

// TestQueueClientLeaves: a request whose client disconnects is not served and frees its place for the next one.
func TestQueueClientLeaves(t *testing.T) {
	for name, rules := range queues {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWaiting(rules)
				w.arrive(context.Background())
				w.arrive(context.Background())
				ctx, leave := context.WithCancel(context.Background())
				w.arrive(ctx) // would be served at 2 s
				w.arrive(context.Background())
				leave()
				synctest.Wait()
				w.arrive(context.Background()) // takes the place
				if got, want := w.statuses(), []int{200, 200, 200, 429, 499}; !slices.Equal(got, want) {
					t.Errorf("statuses %v, want %v", got, want)
				}
				if want := seconds(0, 1, 2); !slices.Equal(w.served, want) {
					t.Errorf("served at %v, want %v", w.served, want)
				}
			})
		})
	}
}

// TestQueueMaxWait: a request that would wait too long is denied at once, and its place stays free.
func TestQueueMaxWait(t *testing.T) {
	for name, rules := range queues {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWaiting(rules, httplimit.MaxDelay(1500*time.Millisecond))
				for range 3 {
					w.arrive(context.Background())
				}
				rec := httptest.NewRecorder()
				w.h.ServeHTTP(rec, request())
				if rec.Code != 429 || rec.Header().Get("Retry-After") != "1" {
					t.Errorf("status %d, Retry-After %q; want 429 and 1: half a second, rounded up", rec.Code, rec.Header().Get("Retry-After"))
				}
				<-time.After(time.Second)
				w.arrive(context.Background()) // denied requests took no place
				if got, want := w.statuses(), []int{200, 200, 200, 429}; !slices.Equal(got, want) {
					t.Errorf("statuses %v, want %v", got, want)
				}
				if want := seconds(0, 1, 2); !slices.Equal(w.served, want) {
					t.Errorf("served at %v, want %v", w.served, want)
				}
			})
		})
	}
}

func TestQueueDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiting(queues["one rule"])
		w.arrive(context.Background())
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		w.arrive(ctx)
		if since := time.Since(w.start); since != 0 {
			t.Errorf("response after %v, want at once", since)
		}
		if got, want := w.statuses(), []int{200, 429}; !slices.Equal(got, want) {
			t.Errorf("statuses %v, want %v", got, want)
		}
	})
}

// TestQueueLimitFor: only the limit of this request is a leaky queue.
func TestQueueLimitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := sluice.Must(queue.Build())
		w := newWaiting([]*sluice.Rule{rule("api", sluice.PerSecond(100))},
			httplimit.LimitFor(func(*http.Request) *sluice.Limit { return slow }))
		w.arrive(context.Background())
		ctx, leave := context.WithCancel(context.Background())
		w.arrive(ctx)
		leave()
		synctest.Wait()
		w.arrive(context.Background())
		if got, want := w.statuses(), []int{200, 200, 499}; !slices.Equal(got, want) {
			t.Errorf("statuses %v, want %v", got, want)
		}
		if want := seconds(0, 1); !slices.Equal(w.served, want) {
			t.Errorf("served at %v, want %v", w.served, want)
		}
	})
}

// TestQueueHoldsUpNobody: a queue in shadow mode delays no request, and requests of cost 0 are not delayed.
func TestQueueHoldsUpNobody(t *testing.T) {
	free := httplimit.Cost(func(r *http.Request) int64 { return int64(len(r.Header["Cost"])) })
	for name, rule := range map[string]*sluice.Rule{
		"shadow": rule("queue", queue, shadow),
		"free":   rule("queue", queue),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts := []httplimit.Option{free}
				if rule.Shadow {
					opts = nil
				}
				h := httplimit.Middleware(limiter(memstore.New(), rule), httplimit.ByIP(), opts...)(ok)
				start := time.Now()
				serve(h, request(header("Cost", "1")))
				for range 5 {
					if got := serve(h, request()).StatusCode; got != 200 {
						t.Errorf("status %d, want 200", got)
					}
				}
				if since := time.Since(start); since != 0 {
					t.Errorf("delayed by %v", since)
				}
			})
		})
	}
}
