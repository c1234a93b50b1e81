package admission_test

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
	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

var hourly = limits(sluice.PerHour(2).WithAlgorithm(sluice.FixedWindow).WithAlign(sluice.AlignFirstRequest))

func TestQueueKeeps(t *testing.T) {
	queueing := rules.Rule{Name: "jobs", Per: refs("ip"), Limits: hourly, OnLimit: rules.OnLimitQueue}
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
		want  string // the rule that queues the third request; empty if it is denied
	}{
		{"queued", []rules.Rule{queueing}, "jobs"},
		{"two keep", []rules.Rule{queueing, with(func(r *rules.Rule) { r.Name = "other" })}, "jobs"},
		{"another allows it", []rules.Rule{{Name: "all", Limits: limits(sluice.PerDay(9))}, queueing}, "jobs"},
		{"another denies", []rules.Rule{queueing, reject}, ""},
		{"another would deny", []rules.Rule{queueing, {Name: "all", Limits: limits(sluice.PerDay(2)), Shadow: true}}, "jobs"},
		{"an ordered rule that allows it", []rules.Rule{queueing, ordered}, "line"},
		{"in shadow", []rules.Rule{with(func(r *rules.Rule) { r.Shadow = true }), reject}, ""},
		{"never fits", []rules.Rule{with(func(r *rules.Rule) { r.Cost.Default = 3 })}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			h := newEdge(limiter(memstore.New()), always(rules.Config{Rules: tt.rules}), nil,
				func(w http.ResponseWriter, k *admission.QueueTarget) {
					got = k.Rule
					w.WriteHeader(http.StatusAccepted)
				})
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
				t.Error("headers were set before the request was queued")
			}
		})
	}
}

// TestQueueKept: a QueueTarget stays valid after the request.
func TestQueueKept(t *testing.T) {
	var all []*admission.QueueTarget
	h := newEdge(limiter(memstore.New()), always(rules.Config{Rules: []rules.Rule{{
		Name: "jobs", Per: refs("query:who"), Limits: limits(sluice.Every(time.Hour)), OnLimit: rules.OnLimitQueue,
		Queue: rules.QueueOptions{KeepHeaders: []string{"authorization"}, MaxAttempts: 3},
	}}}), nil, func(_ http.ResponseWriter, k *admission.QueueTarget) { all = append(all, k) })
	for i := range 20 {
		r := httptest.NewRequest("GET", fmt.Sprintf("/?who=u%d", i%10), nil)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	for i, k := range all {
		want := rules.QueueOptions{KeepHeaders: []string{"Authorization"}, MaxAttempts: 3, ExpiresAfter: 24 * time.Hour, ResultTTL: time.Hour}
		if k.Key != fmt.Sprintf("u%d", i) || !reflect.DeepEqual(k.Options, want) || k.RetryAfter <= 59*time.Minute || k.RetryAfter > time.Hour {
			t.Errorf("%d: kept %+v", i, k)
		}
	}
	if len(all) != 10 {
		t.Errorf("queued %d, want 10", len(all))
	}
}

// TestRetried: an attempt to deliver a queued request returns the denial, whichever rule denies it, and writes nothing.
func TestRetried(t *testing.T) {
	for name, onLimit := range map[string]rules.OnLimit{"queue": rules.OnLimitQueue, "reject": rules.OnLimitDeny} {
		t.Run(name, func(t *testing.T) {
			h := newEdge(limiter(memstore.New()), always(rules.Config{Rules: []rules.Rule{{
				Name: "jobs", Limits: limits(sluice.Every(time.Hour)), OnLimit: onLimit,
			}}}), nil, func(http.ResponseWriter, *admission.QueueTarget) { t.Error("queued again") })
			again := func() (*httptest.ResponseRecorder, *admission.Admission) {
				rec := httptest.NewRecorder()
				return rec, h.again(rec, request())
			}
			if rec, denied := again(); rec.Code != 200 || denied != nil {
				t.Fatalf("status %d, denied %v; want it served", rec.Code, denied)
			}
			rec, denied := again()
			if denied == nil || len(rec.Header()) > 0 || rec.Body.Len() > 0 {
				t.Fatalf("denied %v, response %v %q; want a denial and no response", denied, rec.Header(), rec.Body)
			}
			if after, never := denied.RetryAfter, denied.ExceedsLimit; never || after <= 59*time.Minute || denied.Rule != "jobs" {
				t.Errorf("after %v, never %t, rule %s", after, never, denied.Rule)
			}
		})
	}
}

// TestOutcome: the Admission of a request that is not allowed at once has the reason.
func TestOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newEdge(limiter(memstore.New()), always(rules.Config{Rules: []rules.Rule{
			{Name: "kept", Match: where("/kept"), Limits: limits(sluice.Every(time.Hour)), OnLimit: rules.OnLimitQueue},
			{Name: "denied", Match: where("/denied"), Limits: limits(sluice.Every(time.Hour))},
			{Name: "delayed", Match: where("/delayed"), Limits: limits(sluice.PerSecond(1).WithAlgorithm(sluice.LeakyQueue).WithBurst(3)), OnLimit: rules.OnLimitDelay},
		}}), nil, func(http.ResponseWriter, *admission.QueueTarget) {})
		for _, path := range []string{"/other", "/kept", "/denied", "/delayed"} {
			for range 2 {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
			}
		}
		want := []observed{
			{Kept: true, Rule: "kept"}, {Denied: true, Rule: "denied"}, {Rule: "delayed", Delay: time.Second},
		}
		if !slices.Equal(h.seen, want) {
			t.Errorf("observed %+v, want %+v", h.seen, want)
		}
	})
}

// A request is queued behind others of its key, although the limit allows it, and is not charged.
func TestInLine(t *testing.T) {
	store := memstore.New()
	waits := map[string]bool{}
	var kept []string
	h := newEdge(limiter(store), always(rules.Config{Rules: []rules.Rule{{
		Name: "jobs", Per: refs("query:who"), Limits: limits(sluice.PerHour(2)), OnLimit: rules.OnLimitQueue, Queue: rules.QueueOptions{Ordered: true},
	}}}), func(rule, key string) bool { return rule == "jobs" && waits[key] },
		func(w http.ResponseWriter, k *admission.QueueTarget) {
			kept = append(kept, k.Key)
			w.WriteHeader(http.StatusAccepted)
		})
	who := func(name string) *http.Request { return httptest.NewRequest("GET", "/?who="+name, nil) }
	waits["ada"] = true
	for range 5 {
		if got := serve(h, who("ada")).StatusCode; got != http.StatusAccepted {
			t.Fatalf("ada overtakes: %d", got)
		}
	}
	if got := serve(h, who("bob")).StatusCode; got != http.StatusOK {
		t.Errorf("status %d for bob, who has no queued requests", got)
	}
	// The first queued request is tried, and the requests queued behind it were not charged.
	for i, want := range []int{http.StatusOK, http.StatusOK, 0} {
		w := httptest.NewRecorder()
		denied := h.again(w, who("ada")) != nil
		if denied != (want == 0) || !denied && w.Code != want {
			t.Errorf("delivery %d: %d, denied %v", i+1, w.Code, denied)
		}
	}
	if want := []string{"ada", "ada", "ada", "ada", "ada"}; !slices.Equal(kept, want) {
		t.Errorf("queued %q", kept)
	}
}

// TestQueuedOnce: a queued request is reported as denied once, however often its delivery is tried, and charged once by
// another rule that charges denied requests. The rule that queues it, if it charges denied requests, charges it on arrival
// and on delivery.
func TestQueuedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs := rules.Rule{Name: "jobs", Limits: limits(sluice.PerHour(2).WithAlgorithm(sluice.FixedWindow)), OnLimit: rules.OnLimitQueue}
		all := rules.Rule{Name: "all", Limits: limits(sluice.PerDay(100).WithAlgorithm(sluice.SlidingWindowLog)), ChargeDenied: true}
		set := always(rules.Config{Rules: []rules.Rule{all, jobs}})
		denied := map[string]int{}
		l := sluice.Must(sluice.NewWithRules(memstore.New(), nil, sluice.WithEvents(sluice.Events{
			OnDenial: func(_ context.Context, t sluice.Take, _ sluice.Decision) { denied[t.Rule.Name]++ },
		})))
		kept, waits := 0, false
		h := newEdge(l, set, func(string, string) bool { return waits }, func(w http.ResponseWriter, _ *admission.QueueTarget) {
			kept++
			w.WriteHeader(http.StatusAccepted)
		})
		for range 6 {
			serve(h, request())
		}
		if kept != 4 || denied["jobs"] != 4 {
			t.Fatalf("%d queued, %v denied", kept, denied)
		}
		delivered := 0
		for range 3 {
			for range 4 - delivered {
				d := h.again(httptest.NewRecorder(), request())
				if d == nil {
					delivered++
				} else if after, never := d.RetryAfter, d.ExceedsLimit; after > time.Hour || after <= 0 || never {
					t.Errorf("retry after %v, never %v", after, never)
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
