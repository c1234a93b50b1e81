package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

var hourly = limits(sluice.PerHour(2).With(sluice.FixedWindow).WithAlign(sluice.AlignFirstHit))

func TestQueueKeeps(t *testing.T) {
	queueing := rules.Rule{Name: "jobs", Per: refs("ip"), Limits: hourly, OnLimit: rules.Queue}
	with := func(change func(*rules.Rule)) rules.Rule {
		r := queueing
		change(&r)
		return r
	}
	reject := rules.Rule{Name: "all", Limits: limits(sluice.PerDay(2))}
	ordered := with(func(r *rules.Rule) { r.Name, r.Limits, r.Queue.Ordered = "line", limits(sluice.PerHour(100)), true })
	for _, tt := range []struct {
		name  string
		rules []rules.Rule
		want  string // who keeps the third request; none if it is denied
	}{
		{"kept", []rules.Rule{queueing}, "jobs"},
		{"two keep", []rules.Rule{queueing, with(func(r *rules.Rule) { r.Name = "other" })}, "jobs"},
		{"another has room", []rules.Rule{{Name: "all", Limits: limits(sluice.PerDay(9))}, queueing}, "jobs"},
		{"another refuses", []rules.Rule{queueing, reject}, ""},
		{"another would refuse", []rules.Rule{queueing, {Name: "all", Limits: limits(sluice.PerDay(2)), Shadow: true}}, "jobs"},
		{"an ordered line with room", []rules.Rule{queueing, ordered}, "line"},
		{"in shadow", []rules.Rule{with(func(r *rules.Rule) { r.Shadow = true }), reject}, ""},
		{"never fits", []rules.Rule{with(func(r *rules.Rule) { r.Cost.Fixed = 3 })}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			h := httplimit.Rules(limiter(memstore.New()), always(rules.Config{Rules: tt.rules}),
				httplimit.Queue(func(w http.ResponseWriter, r *http.Request, k *httplimit.Kept) {
					got = k.Rule
					w.WriteHeader(http.StatusAccepted)
				}))(ok)
			serve(h, request())
			serve(h, request())
			want := http.StatusAccepted
			if tt.want == "" {
				want = http.StatusTooManyRequests
			}
			resp := serve(h, request())
			if resp.StatusCode != want || got != tt.want {
				t.Errorf("status %d, kept by %q; want %d, %q", resp.StatusCode, got, want, tt.want)
			}
			if len(resp.Header["X-Ratelimit-Limit"]) > 0 && want == http.StatusAccepted {
				t.Error("the hook found headers")
			}
		})
	}
}

// TestQueueKept: what is kept lasts longer than the request.
func TestQueueKept(t *testing.T) {
	var all []*httplimit.Kept
	h := httplimit.Rules(limiter(memstore.New()), always(rules.Config{Rules: []rules.Rule{{
		Name: "jobs", Per: refs("query:who"), Limits: limits(sluice.Every(time.Hour)), OnLimit: rules.Queue,
		Queue: rules.QueueOptions{Keep: []string{"authorization"}, Attempts: 3},
	}}}), httplimit.Queue(func(_ http.ResponseWriter, _ *http.Request, k *httplimit.Kept) { all = append(all, k) }))(ok)
	for i := range 20 {
		r := httptest.NewRequest("GET", fmt.Sprintf("/?who=u%d", i%10), nil)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	for i, k := range all {
		want := rules.QueueOptions{Keep: []string{"Authorization"}, Attempts: 3, Expires: 24 * time.Hour, Results: time.Hour}
		if k.Key != fmt.Sprintf("u%d", i) || !reflect.DeepEqual(k.Options, want) || k.RetryAfter <= 59*time.Minute || k.RetryAfter > time.Hour {
			t.Errorf("%d: kept %+v", i, k)
		}
	}
	if len(all) != 10 {
		t.Errorf("kept %d, want 10", len(all))
	}
}

// TestWithoutQueue: who tries a kept request again is told, whichever rule denies it, and nothing is written.
func TestWithoutQueue(t *testing.T) {
	for name, onLimit := range map[string]rules.OnLimit{"queue": rules.Queue, "reject": rules.Reject} {
		t.Run(name, func(t *testing.T) {
			h := httplimit.Rules(limiter(memstore.New()), always(rules.Config{Rules: []rules.Rule{{
				Name: "jobs", Limits: limits(sluice.Every(time.Hour)), OnLimit: onLimit,
			}}}), httplimit.Queue(func(http.ResponseWriter, *http.Request, *httplimit.Kept) { t.Error("kept again") }))(ok)
			var denied *httplimit.Denial
			again := func() *httptest.ResponseRecorder {
				rec := httptest.NewRecorder()
				ctx := httplimit.WithoutQueue(context.Background(), func(d *httplimit.Denial) { denied = d })
				h.ServeHTTP(rec, request().WithContext(ctx))
				return rec
			}
			if rec := again(); rec.Code != 200 || denied != nil {
				t.Fatalf("status %d, denied %v; want it served", rec.Code, denied)
			}
			rec := again()
			if denied == nil || len(rec.Header()) > 0 || rec.Body.Len() > 0 {
				t.Fatalf("denied %v, answered %v %q; want a denial and no answer", denied, rec.Header(), rec.Body)
			}
			if after, never := denied.RetryAfter(); never || after <= 59*time.Minute || denied.Rules[0].Name != "jobs" {
				t.Errorf("after %v, never %t, rule %s", after, never, denied.Rules[0].Name)
			}
		})
	}
}

// TestObserve: each request that does not pass at once is told of once.
func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []httplimit.Observed
		h := httplimit.Rules(limiter(memstore.New()), always(rules.Config{Rules: []rules.Rule{
			{Name: "kept", Match: where("path", "/kept"), Limits: limits(sluice.Every(time.Hour)), OnLimit: rules.Queue},
			{Name: "denied", Match: where("path", "/denied"), Limits: limits(sluice.Every(time.Hour))},
			{Name: "delayed", Match: where("path", "/delayed"), Limits: limits(queue), OnLimit: rules.Delay},
		}}), httplimit.Observe(func(_ *http.Request, o httplimit.Observed) { seen = append(seen, o) }),
			httplimit.Queue(func(http.ResponseWriter, *http.Request, *httplimit.Kept) {}))(ok)
		for _, path := range []string{"/other", "/kept", "/denied", "/delayed"} {
			for range 2 {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
			}
		}
		want := []httplimit.Observed{
			{Kept: true, Rule: "kept"}, {Denied: true, Rule: "denied"}, {Rule: "delayed", Delay: time.Second},
		}
		if !slices.Equal(seen, want) {
			t.Errorf("observed %+v, want %+v", seen, want)
		}
	})
}

// Who comes while others of its key wait stands in line behind them, although there is room, and pays nothing for it.
func TestInLine(t *testing.T) {
	store := memstore.New()
	waits := map[string]bool{}
	var kept []string
	h := httplimit.Rules(limiter(store), always(rules.Config{Rules: []rules.Rule{{
		Name: "jobs", Per: refs("query:who"), Limits: limits(sluice.PerHour(2)), OnLimit: rules.Queue, Queue: rules.QueueOptions{Ordered: true},
	}}}),
		httplimit.Queue(func(w http.ResponseWriter, _ *http.Request, k *httplimit.Kept) {
			kept = append(kept, k.Key)
			w.WriteHeader(http.StatusAccepted)
		}),
		httplimit.InLine(func(rule, key string) bool { return rule == "jobs" && waits[key] }))(ok)
	ask := func(ctx context.Context, who string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/?who="+who, nil).WithContext(ctx))
		return w.Code
	}
	waits["ada"] = true
	for range 5 {
		if got := ask(t.Context(), "ada"); got != http.StatusAccepted {
			t.Fatalf("ada overtakes: %d", got)
		}
	}
	if got := ask(t.Context(), "bob"); got != http.StatusOK {
		t.Errorf("bob, of whom nothing waits, is answered %d", got)
	}
	// The first of the line is tried, and finds that nobody was charged while it waited.
	for i, want := range []int{http.StatusOK, http.StatusOK, 0} {
		denied := false
		got := ask(httplimit.WithoutQueue(t.Context(), func(*httplimit.Denial) { denied = true }), "ada")
		if denied != (want == 0) || !denied && got != want {
			t.Errorf("delivery %d: %d, denied %v", i+1, got, denied)
		}
	}
	if want := []string{"ada", "ada", "ada", "ada", "ada"}; !slices.Equal(kept, want) {
		t.Errorf("kept %q", kept)
	}
}

// TestQueuedOnce: a queued request is reported as denied once, however often it is tried before there is room, and charged
// once by a rule that charges denied requests; by the rule that queues it when it comes, if that charges them, and when it
// is delivered.
func TestQueuedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs := rules.Rule{Name: "jobs", Limits: limits(sluice.PerHour(2).With(sluice.FixedWindow)), OnLimit: rules.Queue}
		all := rules.Rule{Name: "all", Limits: limits(sluice.PerDay(100).With(sluice.SlidingLog)), ChargeDenied: true}
		set := always(rules.Config{Rules: []rules.Rule{all, jobs}})
		denied := map[string]int{}
		l := sluice.Must(sluice.NewRules(memstore.New(), nil, sluice.WithEvents(sluice.Events{
			Denied: func(_ context.Context, t sluice.Take, _ sluice.Decision) { denied[t.Rule.Name]++ },
		})))
		kept, waits := 0, false
		h := httplimit.Rules(l, set, httplimit.Queue(func(w http.ResponseWriter, _ *http.Request, _ *httplimit.Kept) {
			kept++
			w.WriteHeader(http.StatusAccepted)
		}), httplimit.InLine(func(string, string) bool { return waits }))(ok)
		for range 6 {
			serve(h, request())
		}
		if kept != 4 || denied["jobs"] != 4 {
			t.Fatalf("%d queued, %v denied", kept, denied)
		}
		delivered := 0
		for range 3 {
			for range 4 - delivered {
				ok := true
				ctx := httplimit.WithoutQueue(t.Context(), func(d *httplimit.Denial) {
					ok = false
					if after, never := d.RetryAfter(); after > time.Hour || after <= 0 || never {
						t.Errorf("to be tried after %v, never %v", after, never)
					}
				})
				h.ServeHTTP(httptest.NewRecorder(), request().WithContext(ctx))
				if ok {
					delivered++
				}
			}
			<-time.After(time.Hour)
		}
		var left [1]sluice.Decision
		peek := sluice.Take{Rule: sluice.Must(sluice.NewRule(sluice.Rule{Name: "all", Limit: all.Limits[0].Limit}))}
		if _, err := l.Decide(t.Context(), []sluice.Take{peek}, left[:]); err != nil || left[0].Remaining != 94 {
			t.Errorf("%+v %v: 6 requests are not charged 6", left[0], err)
		}
		if delivered != 4 || denied["jobs"] != 4 || denied["all"] != 0 {
			t.Errorf("%d delivered, %v denied", delivered, denied)
		}
	})
}
