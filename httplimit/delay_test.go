package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/redisstore"
	"github.com/sluiceproject/sluice/rules"
)

// departures records the requests that a delay queue releases.
type departures struct {
	mu  sync.Mutex
	all []httplimit.DelayEvent
}

func (d *departures) option() httplimit.Option {
	return httplimit.OnDelay(func(_ *http.Request, one httplimit.DelayEvent) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.all = append(d.all, one)
	})
}

// check fails the test unless requests were released in order of arrival and at least apart from each other.
func (d *departures) check(t *testing.T, apart time.Duration) {
	t.Helper()
	slices.SortFunc(d.all, func(a, b httplimit.DelayEvent) int { return a.ReleasedAt.Compare(b.ReleasedAt) })
	for i := 1; i < len(d.all); i++ {
		before, one := &d.all[i-1], &d.all[i]
		if gap := one.ReleasedAt.Sub(before.ReleasedAt); gap < apart {
			t.Errorf("release %d: %v after the previous one, want at least %v", i, gap, apart)
		}
		if one.EnqueuedAt.Before(before.EnqueuedAt) {
			t.Errorf("release %d arrived before the previous one", i)
		}
	}
}

var fifty = rules.Rule{
	Name: "fifty", Limits: limits(sluice.PerSecond(50).WithAlgorithm(sluice.LeakyQueue).WithBurst(100)), OnLimit: rules.OnLimitDelay,
}

// TestDelayWorkedExample: 5 concurrent requests to a queue of 3 at 1/s: delays of 0, 1 and 2 s, two denied.
func TestDelayWorkedExample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := httplimit.RulesMiddleware(limiter(memstore.New()), always(rules.Config{Rules: []rules.Rule{{
			Name: "queue", Limits: limits(queue), OnLimit: rules.OnLimitDelay,
		}}}))(ok)
		var group sync.WaitGroup
		answers := make([]*http.Response, 5)
		for i := range answers {
			group.Go(func() { answers[i] = serve(h, request()) })
			synctest.Wait()
		}
		group.Wait()
		for i, want := range []struct{ status, delay, remaining, retry string }{
			{"200", "", "2", ""}, {"200", "1.000", "1", ""}, {"200", "2.000", "2", ""}, {"429", "", "0", "1"}, {"429", "", "0", "1"},
		} {
			a := answers[i].Header
			got := []string{fmt.Sprint(answers[i].StatusCode), a.Get("X-Ratelimit-Delay"), a.Get("X-Ratelimit-Remaining"), a.Get("Retry-After")}
			if !slices.Equal(got, []string{want.status, want.delay, want.remaining, want.retry}) {
				t.Errorf("%d: status, delay, remaining and retry are %q, want %v", i, got, want)
			}
			if a.Get("X-Ratelimit-Limit") != "3" {
				t.Errorf("%d: limit %s, want 3", i, a.Get("X-Ratelimit-Limit"))
			}
		}
	})
}

// TestDelayLength: of 101 concurrent requests to a queue of 100 at 50/s the last is denied and all others are served
// 20 ms apart in order of arrival. Requests whose clients disconnect make room for the same number of new ones.
func TestDelayLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left departures
		w := newRuleWaiting([]rules.Rule{fifty}, left.option())
		ctx, leave := context.WithCancel(context.Background())
		for i := range 101 {
			if i%10 == 5 {
				w.arrive(ctx)
			} else {
				w.arrive(context.Background())
			}
		}
		leave()
		synctest.Wait()
		for range 11 {
			w.arrive(context.Background())
		}
		count := make(map[int]int)
		for _, s := range w.statuses() {
			count[s]++
		}
		if count[200] != 100 || count[499] != 10 || count[429] != 2 {
			t.Errorf("statuses %v, want 100 served, 10 disconnected and 2 denied", count)
		}
		left.check(t, 20*time.Millisecond)
		if last := left.all[99].ReleasedAt.Sub(w.start); len(left.all) != 100 || last != 99*20*time.Millisecond {
			t.Errorf("%d released, the last after %v", len(left.all), last)
		}
	})
}

// TestDelayOverHTTP: in real time and over real connections, with clients that disconnect while they wait. Releases are
// 20 ms apart by their timestamps and in order; all other clients are served or denied.
func TestDelayOverHTTP(t *testing.T) {
	t.Parallel()
	var left departures
	s := httptest.NewServer(httplimit.RulesMiddleware(limiter(memstore.New()), always(rules.Config{Rules: []rules.Rule{fifty}}), left.option())(ok))
	defer s.Close()
	const stay, leave = 60, 30
	var group sync.WaitGroup
	var mu sync.Mutex
	count := make(map[int]int)
	for i := range stay + leave {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if i%3 == 1 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(i)*5*time.Millisecond)
			defer cancel()
		}
		group.Go(func() {
			r, err := http.NewRequestWithContext(ctx, "GET", s.URL, http.NoBody)
			if err != nil {
				t.Error(err)
				return
			}
			status := 0
			if resp, err := s.Client().Do(r); err == nil {
				status = resp.StatusCode
				_ = resp.Body.Close()
			} else if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			count[status]++
		})
	}
	group.Wait()
	left.check(t, 20*time.Millisecond)
	if count[200] < stay || count[200]+count[0] != stay+leave || count[0] == 0 {
		t.Errorf("statuses %v (0: disconnected); want at least %d served and some disconnected", count, stay)
	}
	if served := len(left.all); served < count[200] || served > count[200]+count[0] {
		t.Errorf("%d released, %d served", served, count[200])
	}
}

// TestDelayShared: three instances on one Redis together do not exceed the rate, and each releases in order.
func TestDelayShared(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rule := fifty
	rule.Name = "shared"
	var group sync.WaitGroup
	var all, each departures
	const nodes, callers = 3, 12
	for range nodes {
		store, err := redisstore.Open(redisstore.Config{URL: server.URL()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		node := new(departures)
		h := httplimit.RulesMiddleware(sluice.Must(sluice.NewWithRules(store, nil, sluice.WithStoreTimeout(10*time.Second))),
			always(rules.Config{Rules: []rules.Rule{rule}}), node.option())(ok)
		group.Go(func() {
			var callersOf sync.WaitGroup
			for range callers {
				callersOf.Go(func() {
					if status := serve(h, request()).StatusCode; status != 200 {
						t.Errorf("status %d", status)
					}
				})
			}
			callersOf.Wait()
			node.check(t, 20*time.Millisecond)
			each.mu.Lock()
			defer each.mu.Unlock()
			all.all = append(all.all, node.all...)
		})
	}
	group.Wait()
	slices.SortFunc(all.all, func(a, b httplimit.DelayEvent) int { return a.ReleasedAt.Compare(b.ReleasedAt) })
	if len(all.all) != nodes*callers {
		t.Fatalf("%d released, want %d", len(all.all), nodes*callers)
	}
	// The store spaces grants by its own clock. Network delays vary, so that two releases of different instances may seem
	// closer; but all releases together take at least the time given by the rate.
	took := all.all[len(all.all)-1].ReleasedAt.Sub(all.all[0].EnqueuedAt)
	if least := (nodes*callers - 1) * 20 * time.Millisecond; took < least {
		t.Errorf("%d released in %v, want at least %v", len(all.all), took, least)
	}
}

// TestDelayGivesBack: a request that is not released is not charged by other rules.
func TestDelayGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		day := rules.Rule{Name: "day", Limits: limits(sluice.PerDay(4).WithAlgorithm(sluice.FixedWindow))}
		line := rules.Rule{Name: "line", Limits: limits(queue), OnLimit: rules.OnLimitDelay}
		w := newRuleWaiting([]rules.Rule{day, line})
		w.arrive(context.Background())
		ctx, leave := context.WithCancel(context.Background())
		w.arrive(ctx)
		w.arrive(context.Background())
		w.arrive(context.Background()) // queue full: denied
		leave()
		synctest.Wait()
		w.arrive(context.Background()) // takes the place of the disconnected client
		<-time.After(10 * time.Second)
		w.arrive(context.Background())
		w.arrive(context.Background()) // the daily limit is used up by the four served requests
		w.expect(t, []int{200, 200, 200, 200, 429, 429, 499}, 0, 1, 2, 10)
	})
}

// TestDelayAfterDelay: a request waits in two delay queues one after the other.
func TestDelayAfterDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRuleWaiting([]rules.Rule{
			{Name: "one", Per: refs("ip"), Limits: limits(queue.WithBurst(5))},
			{Name: "day", Limits: limits(sluice.PerDay(100))},
			{Name: "two", Limits: limits(sluice.Every(2 * time.Second).WithAlgorithm(sluice.LeakyQueue).WithBurst(3))},
		})
		for range 5 {
			w.arrive(context.Background())
		}
		w.expect(t, []int{200, 200, 200, 200, 200}, 0, 2, 4, 6, 8)
	})
}

// TestDelayFailModes: while the store is unavailable the rule's fail mode decides.
func TestDelayFailModes(t *testing.T) {
	for _, tt := range []struct {
		mode     sluice.FailMode
		statuses []int
		served   []int
	}{
		{sluice.FailLocal, []int{200, 200, 200, 429}, []int{0, 1, 2}},
		{sluice.FailOpen, []int{200, 200, 200, 200}, []int{0, 0, 0, 0}},
		{sluice.FailClosed, []int{503, 503, 503, 503}, nil},
	} {
		t.Run(fmt.Sprint(tt.mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &waiting{start: time.Now(), answers: make(chan int, 1000)}
				w.h = httplimit.RulesMiddleware(limiter(awayStore{}), always(rules.Config{Rules: []rules.Rule{{
					Name: "line", Limits: limits(queue), OnLimit: rules.OnLimitDelay, OnFailure: tt.mode,
				}}}))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					w.mu.Lock()
					defer w.mu.Unlock()
					w.served = append(w.served, time.Since(w.start))
				}))
				for range 4 {
					w.arrive(context.Background())
				}
				w.expect(t, tt.statuses, tt.served...)
			})
		})
	}
}

type awayStore struct{}

func (awayStore) Apply(context.Context, []sluice.Take, []sluice.Decision) error {
	return sluice.ErrUnavailable
}

// TestDelayEvents: a delayed request is reported once as decided, and one that finds the queue full once as denied.
func TestDelayEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		decided, denied := 0, 0
		l := sluice.Must(sluice.NewWithRules(memstore.New(), nil, sluice.WithEvents(sluice.Events{
			OnDecision: func(context.Context, sluice.Take, sluice.Decision) { mu.Lock(); decided++; mu.Unlock() },
			OnDenial:   func(context.Context, sluice.Take, sluice.Decision) { mu.Lock(); denied++; mu.Unlock() },
		})))
		h := httplimit.RulesMiddleware(l, always(rules.Config{Rules: []rules.Rule{{
			Name: "line", Limits: limits(sluice.PerSecond(1)), OnLimit: rules.OnLimitDelay, MaxDelay: 2 * time.Second, ChargeDenied: true,
		}}}))(ok)
		var group sync.WaitGroup
		for range 5 {
			group.Go(func() { serve(h, request()) })
			synctest.Wait()
		}
		group.Wait()
		if decided != 5 || denied != 2 {
			t.Errorf("%d decisions, %d denials; want 5 and 2", decided, denied)
		}
	})
}

// TestDelaySuspended: a suspended rule does not delay requests.
func TestDelaySuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(memstore.New())
		h := httplimit.RulesMiddleware(l, always(rules.Config{Rules: []rules.Rule{{Name: "line", Limits: limits(queue), OnLimit: rules.OnLimitDelay}}}))(ok)
		start := time.Now()
		serve(h, request())
		l.Suspend("line")
		for range 10 {
			if status := serve(h, request()).StatusCode; status != 200 || time.Since(start) > 0 {
				t.Fatalf("status %d after %v", status, time.Since(start))
			}
		}
		l.Resume("line")
		if serve(h, request()); time.Since(start) != time.Second {
			t.Errorf("served after %v, want a second", time.Since(start))
		}
	})
}

// TestDelayTogether: 20 concurrent requests to a bucket of 4 that refills 2/s, with max_delay 1s: 4 are served at once, 2 more
// after 0.5 and 1 s, and all others are denied at once.
func TestDelayTogether(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			h := httplimit.RulesMiddleware(limiter(memstore.New()), always(rules.Config{Rules: []rules.Rule{{
				Name: "bucket", Limits: limits(sluice.PerSecond(2).WithBurst(4)), OnLimit: rules.OnLimitDelay, MaxDelay: time.Second,
			}}}))(ok)
			start := time.Now()
			var mu sync.Mutex
			var served []time.Duration
			var group sync.WaitGroup
			for range 20 {
				group.Go(func() {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
					mu.Lock()
					defer mu.Unlock()
					if took := time.Since(start); w.Code == http.StatusOK {
						served = append(served, took)
					} else if took > 0 {
						t.Errorf("denied after %v", took)
					}
				})
			}
			group.Wait()
			if want := []time.Duration{0, 0, 0, 0, time.Second / 2, time.Second}; !slices.Equal(served, want) {
				t.Errorf("served after %v, want %v", served, want)
			}
		})
	}
}
