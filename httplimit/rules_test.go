package httplimit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

// always returns the same set.
func always(c rules.Config) func() *rules.Set {
	set := ruleSet(c)
	return func() *rules.Set { return set }
}

// byRules returns a handler with rules that responds with 200.
func byRules(store sluice.Store, c rules.Config, opts ...httplimit.Option) http.Handler {
	return httplimit.RulesMiddleware(limiter(store), always(c), opts...)(ok)
}

// perUser returns the rule of most tests.
func perUser(name string, all ...sluice.Limit) rules.Rule {
	return rules.Rule{Name: name, Per: refs("header:X-User"), Limits: limits(all...)}
}

// post makes a request for a path.
func post(path string, edit ...func(*http.Request)) *http.Request {
	r := httptest.NewRequest("POST", path, nil)
	r.RemoteAddr = "192.0.2.1:4711"
	for _, e := range edit {
		e(r)
	}
	return r
}

// body reads a response.
func body(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func quotaHeaders(h http.Header) (names []string) {
	for name := range h {
		if strings.Contains(strings.ToLower(name), "ratelimit") || name == "Retry-After" {
			names = append(names, name)
		}
	}
	return names
}

// TestRulesVerdicts: outcomes that are decided before anything is counted.
func TestRulesVerdicts(t *testing.T) {
	c := rules.Config{
		DenyList:  []rules.Match{where("ip", "203.0.113.0/24"), where("path", "/secret-door")},
		AllowList: []rules.Match{where("path", "/healthz")},
		Rules: []rules.Rule{
			{
				Name: "posts", Match: where("method", "POST", "path", "/posts"), Per: refs("header:X-User"),
				OnMissing: rules.MissingReject, Limits: limits(sluice.PerHour(2)),
				Overrides: []rules.Override{{Key: []string{"root"}, Limits: []rules.Limit{{Unlimited: true}}}},
			},
		},
	}
	stranger := func(r *http.Request) { r.RemoteAddr = "203.0.113.7:1" }
	for _, unmatched := range []rules.Unmatched{rules.UnmatchedAllow, rules.UnmatchedDeny} {
		c.Unmatched = unmatched
		other := map[rules.Unmatched]int{rules.UnmatchedAllow: 200, rules.UnmatchedDeny: 403}[unmatched]
		h := byRules(newClock().store(), c)
		for _, step := range []struct {
			name   string
			r      *http.Request
			want   int
			quotas bool
		}{
			{"limited", post("/posts", header("X-User", "ada")), 200, true},
			{"unlimited key", post("/posts", header("X-User", "root")), 200, false},
			{"lacks its key", post("/posts"), 403, false},
			{"exempt", post("/healthz"), 200, false},
			{"on the deny list", post("/posts", header("X-User", "ada"), stranger), 403, false},
			{"on both lists", post("/healthz", stranger), 403, false},
			{"not matched", post("/other"), other, false},
		} {
			got := serve(h, step.r)
			if got.StatusCode != step.want || (len(quotaHeaders(got.Header)) > 0) != step.quotas {
				t.Errorf("%s, unmatched %d: status %d, headers %v; want %d",
					step.name, unmatched, got.StatusCode, got.Header, step.want)
			}
			if text := body(t, got); step.want == 403 &&
				(got.Header.Get("Content-Type") != "application/problem+json" || !strings.Contains(text, `"about:blank"`) ||
					strings.Contains(text, "list") || strings.Contains(text, "posts\",") || strings.Contains(text, "X-User")) {
				t.Errorf("%s: body %s; want a problem without internal details", step.name, text)
			}
		}
	}
}

// TestRulesErrors: requests that cannot be counted are not served.
func TestRulesErrors(t *testing.T) {
	c := rules.Config{Rules: []rules.Rule{{
		Name: "posts", Match: where("path", "/posts"), Per: refs("header:X-User"), Limits: limits(sluice.PerHour(100)),
		Cost: rules.Cost{From: &rules.Ref{Name: "query:cost"}},
	}}}
	for _, tt := range []struct {
		name string
		r    *http.Request
		want int
		err  error
	}{
		{"twice", post("/posts", header("X-User", "a", "b")), 400, rules.ErrAmbiguous},
		{"path", post("/posts%2f"), 400, rules.ErrAmbiguousPath},
		{"parameters", post("/posts;v=1"), 400, rules.ErrAmbiguousPath},
		{"cost", post("/posts?cost=-1"), 400, rules.ErrInvalidCost},
		{"cost twice", post("/posts?cost=1&cost=1"), 400, rules.ErrAmbiguous},
		{"long", post("/posts", header("X-User", strings.Repeat("a", 8<<10+1))), 431, rules.ErrAttributeTooLong},
	} {
		next := &count{}
		set := always(c)
		got := serve(httplimit.RulesMiddleware(limiter(memstore.New()), set)(next), tt.r)
		text := body(t, got)
		if got.StatusCode != tt.want || !strings.Contains(text, `"detail":`) || strings.Contains(text, "X-User") {
			t.Errorf("%s: status %d, body %s; want %d", tt.name, got.StatusCode, text, tt.want)
		}
		var seen error
		report := httplimit.ErrorHandler(func(w http.ResponseWriter, _ *http.Request, err error) {
			seen = err
			w.WriteHeader(http.StatusTeapot)
		})
		got = serve(httplimit.RulesMiddleware(limiter(memstore.New()), set, report)(next), tt.r)
		if got.StatusCode != http.StatusTeapot || !errors.Is(seen, tt.err) {
			t.Errorf("%s: OnError: status %d, error %v; want %v", tt.name, got.StatusCode, seen, tt.err)
		}
		if next.n != 0 {
			t.Errorf("%s: was served", tt.name)
		}
	}
}

// TestRulesNoSet: without a set no request is served.
func TestRulesNoSet(t *testing.T) {
	next := &count{}
	h := httplimit.RulesMiddleware(limiter(memstore.New()), func() *rules.Set { return nil })(next)
	if got := serve(h, request()); got.StatusCode != 500 || next.n != 0 {
		t.Errorf("status %d, served %d times; want 500 and not at all", got.StatusCode, next.n)
	}
}

func TestRulesWrongUse(t *testing.T) {
	l, set := limiter(memstore.New()), always(rules.Config{})
	any := func(*http.Request) *sluice.Limit { return nil }
	for name, f := range map[string]func(){
		"nil limiter": func() { httplimit.RulesMiddleware(nil, set) },
		"nil set":     func() { httplimit.RulesMiddleware(l, nil) },
		"other rules": func() { httplimit.RulesMiddleware(limiter(memstore.New(), rule("a", sluice.PerHour(1))), set) },
		"cost":        func() { httplimit.RulesMiddleware(l, set, httplimit.Cost(func(*http.Request) int64 { return 1 })) },
		"limit for":   func() { httplimit.RulesMiddleware(l, set, httplimit.LimitFor(any)) },
		"charge if":   func() { httplimit.RulesMiddleware(l, set, failedLogins) },
		"two families": func() {
			httplimit.RulesMiddleware(l, set, httplimit.Headers(httplimit.HeadersXRateLimit|httplimit.HeadersDraft03))
		},
	} {
		mustPanic(t, name, f)
	}
}

// TestRulesAllOrNothing: a request that one rule denies is not charged under the others.
func TestRulesAllOrNothing(t *testing.T) {
	c := rules.Config{Rules: []rules.Rule{
		perUser("per-user", sluice.PerHour(2)),
		{Name: "per-tenant", Per: refs("header:X-Tenant"), Limits: limits(sluice.PerHour(3), sluice.PerDay(4))},
	}}
	h := byRules(newClock().store(), c)
	do := func(user string) *http.Response {
		return serve(h, request(header("X-User", user), header("X-Tenant", "acme")))
	}
	for i, step := range []struct {
		user     string
		want     int
		violated string
	}{
		{"ada", 200, ""},
		{"ada", 200, ""},
		{"ada", 429, `["per-user"]`}, // not charged to the tenant
		{"ada", 429, `["per-user"]`},
		{"bob", 200, ""},
		{"bob", 429, `["per-tenant"]`},
	} {
		got := do(step.user)
		text := body(t, got)
		if got.StatusCode != step.want || step.violated != "" && !strings.Contains(text, `policies":`+step.violated) {
			t.Errorf("step %d: status %d, body %s; want %d and %s", i, got.StatusCode, text, step.want, step.violated)
		}
		const policies = `"per-user";q=2;w=3600, "per-tenant";q=3;w=3600, "per-tenant#2";q=4;w=86400`
		if p := got.Header["Ratelimit-Policy"]; !slices.Equal(p, []string{policies}) {
			t.Errorf("step %d: policies %q, want %q", i, p, policies)
		}
	}
}

func TestRulesTiersAndOverrides(t *testing.T) {
	r := perUser("api", sluice.PerHour(1))
	r.Tiers = &rules.Tiers{By: rules.Ref{Name: "plan"}, Limits: map[string][]rules.Limit{
		"pro": limits(sluice.PerHour(3), sluice.PerDay(100)), "enterprise": {{Unlimited: true}}, "banned": {{DenyAll: true}},
	}}
	r.Overrides = []rules.Override{
		{Key: []string{"ada"}, Limits: limits(sluice.PerHour(5))},
		{Key: []string{"mallory"}, Limits: []rules.Limit{{DenyAll: true}}},
		{Key: []string{"root"}, Limits: []rules.Limit{{Unlimited: true}}},
	}
	free := "free"
	c := rules.Config{
		Attributes: []rules.Attribute{{Name: "plan", Sources: refs("claim:plan"), Default: &free}},
		Rules:      []rules.Rule{r},
	}
	h := byRules(newClock().store(), c)
	for _, tt := range []struct {
		user, plan string
		allowed    int
		policy     string
	}{
		{"bob", "", 1, `"api";q=1;w=3600`},
		{"eve", "free", 1, `"api";q=1;w=3600`},
		{"carol", "pro", 3, `"api";q=3;w=3600, "api#2";q=100;w=86400`},
		{"dan", "enterprise", 10, ""},
		{"zed", "banned", 0, ""},
		{"ada", "free", 5, `"api";q=5;w=3600`},
		{"mallory", "enterprise", 0, ""},
		{"root", "banned", 10, ""},
	} {
		allowed := 0
		for range 10 {
			edit := func(*http.Request) {}
			if tt.plan != "" {
				edit = claims(map[string]string{"plan": tt.plan})
			}
			got := serve(h, request(header("X-User", tt.user), edit))
			if got.StatusCode == 200 {
				allowed++
			}
			if p := got.Header.Get("Ratelimit-Policy"); p != tt.policy {
				t.Errorf("%s, %s: policy %s, want %s", tt.user, tt.plan, p, tt.policy)
			}
		}
		if allowed != tt.allowed {
			t.Errorf("%s, %s: %d allowed, want %d", tt.user, tt.plan, allowed, tt.allowed)
		}
	}
}

// TestRulesChargeStatus: each rule charges its own statuses and refunds all others.
func TestRulesChargeStatus(t *testing.T) {
	failures := perUser("failed-logins", sluice.PerHour(10))
	failures.ChargeStatus = rules.StatusRanges{{From: 401, To: 401}, {From: 403, To: 403}}
	errs := perUser("errors", sluice.PerHour(10), sluice.PerDay(10))
	errs.ChargeStatus = rules.StatusRanges{{From: 400, To: 599}}
	c := rules.Config{Rules: []rules.Rule{failures, errs, perUser("all", sluice.PerHour(10))}}
	c.Rules[2].Shadow = true
	for status, want := range map[int][4]int64{ // remaining quota of each limit
		200: {10, 10, 10, 9},
		401: {9, 9, 9, 9},
		403: {9, 9, 9, 9},
		404: {10, 9, 9, 9},
		500: {10, 9, 9, 9},
	} {
		store := newClock().store()
		answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		serve(httplimit.RulesMiddleware(limiter(store), always(c))(answer), request(header("X-User", "ada")))
		for i, name := range []string{"failed-logins", "errors", "errors#2", "all"} {
			limit := sluice.PerHour(10)
			if name == "errors#2" {
				limit = sluice.PerDay(10)
			}
			d, err := limiter(store, rule(name, limit)).Peek(t.Context(), "ada")
			if err != nil || d.Remaining != want[i] {
				t.Errorf("%d: %s has %d left, %v; want %d", status, name, d.Remaining, err, want[i])
			}
		}
	}
}

// TestRulesFailedLogins: successful logins are unlimited, failed ones limited to two.
func TestRulesFailedLogins(t *testing.T) {
	r := rules.Rule{
		Name: "failed-logins", Match: where("path", "/login"), Per: refs("basic_user", "ip"),
		Limits: limits(sluice.PerHour(2)), ChargeStatus: rules.StatusRanges{{From: 401, To: 401}},
	}
	h := httplimit.RulesMiddleware(limiter(newClock().store()), always(rules.Config{Rules: []rules.Rule{r}}))(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, password, _ := r.BasicAuth(); password != "right" {
				w.WriteHeader(http.StatusUnauthorized)
			}
		}))
	for i, step := range []struct {
		password string
		want     int
	}{{"right", 200}, {"right", 200}, {"right", 200}, {"a", 401}, {"right", 200}, {"b", 401}, {"c", 429}, {"right", 429}} {
		if got := serve(h, post("/login", basic("ada:"+step.password))).StatusCode; got != step.want {
			t.Errorf("attempt %d: status %d, want %d", i, got, step.want)
		}
	}
}

// TestRulesKeysAreOwn: a refund uses the key of its own request, although other requests have reused the buffers while the
// handler ran. Keys of two parts are written into such a buffer.
func TestRulesKeysAreOwn(t *testing.T) {
	r := rules.Rule{
		Name: "pairs", Per: refs("header:X-User", "header:X-Tenant"), Limits: limits(sluice.PerHour(10)),
		ChargeStatus: rules.StatusRanges{{From: 500, To: 599}},
	}
	store := newClock().store()
	var h http.Handler
	by := func(user string) *http.Request { return request(header("X-User", user), header("X-Tenant", "acme")) }
	h = httplimit.RulesMiddleware(limiter(store), always(rules.Config{Rules: []rules.Rule{r}}))(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.Header.Get("X-User") {
			case "ada":
				for range 5 {
					serve(h, by("bob"))
				}
			case "bob":
				w.WriteHeader(500)
			}
		}))
	serve(h, by("ada"))
	peek := limiter(store, rule("pairs", sluice.PerHour(10)))
	for user, want := range map[string]int64{"ada": 10, "bob": 5} {
		if d, err := peek.Peek(t.Context(), httplimit.JoinKey(user, "acme")); err != nil || d.Remaining != want {
			t.Errorf("%s has %d left, %v; want %d", user, d.Remaining, err, want)
		}
	}
}

// TestRulesReload: a rule keeps its usage in a new set, also with other numbers; a rule with a new name starts from zero.
func TestRulesReload(t *testing.T) {
	config := func(name string, limit int64) *rules.Set {
		return ruleSet(rules.Config{Rules: []rules.Rule{perUser(name, sluice.PerHour(limit).WithAlgorithm(sluice.FixedWindow))}})
	}
	var current atomic.Pointer[rules.Set]
	asked := 0
	h := httplimit.RulesMiddleware(limiter(newClock().store()), func() *rules.Set { asked++; return current.Load() })(ok)
	for i, step := range []struct {
		set       *rules.Set // nil: the same as before
		status    int
		remaining string
		policy    string
	}{
		{config("api", 3), 200, "2", `"api";q=3;w=3600`},
		{nil, 200, "1", `"api";q=3;w=3600`},
		{config("api", 3), 200, "0", `"api";q=3;w=3600`},
		{nil, 429, "0", `"api";q=3;w=3600`},
		{config("api", 5), 200, "1", `"api";q=5;w=3600`},
		{config("renamed", 3), 200, "2", `"renamed";q=3;w=3600`},
		{config("api", 5), 200, "0", `"api";q=5;w=3600`},
		{ruleSet(rules.Config{}), 200, "", ""},
	} {
		if step.set != nil {
			current.Store(step.set)
		}
		got := serve(h, request(header("X-User", "ada")))
		remaining, policy := got.Header.Get("X-Ratelimit-Remaining"), got.Header.Get("Ratelimit-Policy")
		if got.StatusCode != step.status || remaining != step.remaining || policy != step.policy {
			t.Errorf("step %d: status %d, remaining %s, policy %s; want %d, %s, %s", i,
				got.StatusCode, remaining, policy, step.status, step.remaining, step.policy)
		}
		if asked != i+1 {
			t.Errorf("step %d: the set function was called %d times", i, asked)
		}
	}
}

// TestRulesConcurrently: exactly the limit is admitted while sets change, and the race detector reports nothing.
func TestRulesConcurrently(t *testing.T) {
	config := func() *rules.Set {
		return ruleSet(rules.Config{Rules: []rules.Rule{{
			Name: "api", Per: refs("header:X-User", "query:q"), Limits: limits(sluice.PerDay(50), sluice.PerDay(1000)),
		}}})
	}
	var current atomic.Pointer[rules.Set]
	current.Store(config())
	var allowed [4]atomic.Int64
	h := httplimit.RulesMiddleware(limiter(memstore.New()), current.Load)(ok)
	var group sync.WaitGroup
	for user := range allowed {
		for range 2 {
			group.Go(func() {
				for i := range 50 {
					if i%10 == 0 {
						current.Store(config())
					}
					r := request(header("X-User", fmt.Sprint(user)), query("q=1"))
					if serve(h, r).StatusCode == 200 {
						allowed[user].Add(1)
					}
				}
			})
		}
	}
	group.Wait()
	for user := range allowed {
		if n := allowed[user].Load(); n != 50 {
			t.Errorf("user %d: %d allowed, want 50", user, n)
		}
	}
}

// TestRulesShadow: a rule in shadow mode is reported and denies no request; a rule enforced for a share of keys denies those.
func TestRulesShadow(t *testing.T) {
	trial := perUser("trial", sluice.PerHour(1))
	trial.Shadow = true
	partly := perUser("partly", sluice.PerHour(1))
	partly.EnforceBasisPoints = 50_00
	for _, tt := range []struct {
		rule     rules.Rule
		from, to int // range of the number of denied users of 100
	}{{trial, 0, 0}, {partly, 20, 80}} {
		h := byRules(newClock().store(), rules.Config{Rules: []rules.Rule{tt.rule}})
		denied := 0
		for user := range 100 {
			serve(h, request(header("X-User", fmt.Sprint(user))))
			got := serve(h, request(header("X-User", fmt.Sprint(user))))
			if got.StatusCode == 429 {
				denied++
			}
			want := "" // headers do not list a rule that never denies
			if got.StatusCode == 429 {
				want = `"` + tt.rule.Name + `";q=1;w=3600`
			}
			if p := got.Header.Get("Ratelimit-Policy"); p != want || (got.Header.Get("X-Ratelimit-Limit") == "") != (want == "") {
				t.Errorf("%s: status %d, headers %v", tt.rule.Name, got.StatusCode, got.Header)
			}
		}
		if denied < tt.from || denied > tt.to {
			t.Errorf("%s: %d of 100 denied, want %d to %d", tt.rule.Name, denied, tt.from, tt.to)
		}
	}
}

func TestRulesDegraded(t *testing.T) {
	for _, tt := range []struct {
		mode     sluice.FailMode
		charge   int // charged status; responses are 200
		statuses []int
		degraded string
	}{
		{sluice.FailLocal, 200, []int{200, 429}, "local"},
		{sluice.FailLocal, 500, []int{200, 200}, "local"}, // refunded to the local fallback
		{sluice.FailOpen, 500, []int{200, 200}, "open"},
		{sluice.FailClosed, 500, []int{503, 503}, "closed"},
	} {
		r := perUser("api", sluice.PerHour(1))
		r.OnFailure = tt.mode
		r.ChargeStatus = rules.StatusRanges{{From: tt.charge, To: tt.charge + 99}}
		h := byRules(downStore, rules.Config{Rules: []rules.Rule{r}})
		for i, want := range tt.statuses {
			got := serve(h, request(header("X-User", "ada")))
			if got.StatusCode != want || got.Header.Get("X-Ratelimit-Degraded") != tt.degraded {
				t.Errorf("request %d: status %d, headers %v; want %d, %s", i, got.StatusCode, got.Header, want, tt.degraded)
			}
		}
	}
}

func TestRulesOptions(t *testing.T) {
	c := rules.Config{Rules: []rules.Rule{perUser("a", sluice.PerHour(1)), perUser("b", sluice.PerDay(1))}}
	var denial *httplimit.Denial
	h := byRules(newClock().store(), c,
		httplimit.Headers(httplimit.HeadersDraft03),
		httplimit.Skip(func(r *http.Request) bool { return r.URL.Path == "/skip" }),
		httplimit.DenialHandler(func(w http.ResponseWriter, _ *http.Request, d *httplimit.Denial) {
			denial = d
			w.WriteHeader(http.StatusTeapot)
		}))
	ada := header("X-User", "ada")
	origin := header("Origin", "https://app.example")
	first := serve(h, request(ada, origin))
	if got, want := first.Header.Get("X-Ratelimit-Limit"), `1, 1;w=3600;name="a", 1;w=86400;name="b"`; got != want {
		t.Errorf("limit %s, want %s", got, want)
	}
	if got := first.Header.Get("Access-Control-Expose-Headers"); !strings.Contains(got, "X-Ratelimit-Limit") {
		t.Errorf("exposed %q", got)
	}
	if got := serve(h, request(ada)); got.StatusCode != http.StatusTeapot || got.Header.Get("Retry-After") != "86400" {
		t.Errorf("status %d, headers %v", got.StatusCode, got.Header)
	}
	serve(h, request(header("X-User", "bob"))) // the denial is not overwritten by other requests
	if denial.Status != 429 || denial.Rules[denial.MostRestrictive].Name != "b" || denial.Decisions[0].Allowed {
		t.Errorf("denial %+v", denial)
	}
	if got := serve(h, post("/skip", ada)); got.StatusCode != 200 || len(quotaHeaders(got.Header)) > 0 {
		t.Errorf("skipped: status %d, headers %v", got.StatusCode, got.Header)
	}
}

// TestRulesSecrets: a credential used as a key occurs nowhere afterwards.
func TestRulesSecrets(t *testing.T) {
	const canary = "Bearer canary-4f9d2c"
	file := filepath.Join(t.TempDir(), "snapshot")
	store := sluice.Must(memstore.Open(memstore.Config{SnapshotFile: file}))
	c := rules.Config{Rules: []rules.Rule{
		{Name: "per-token", Per: refs("header:Authorization"), Limits: limits(sluice.PerHour(2))},
		{
			Name: "per-session", Per: refs("cookie:sid", "header:Authorization"),
			Limits: limits(sluice.PerHour(50).WithAlgorithm(sluice.SlidingWindowLog)),
		},
	}}
	set := ruleSet(c)
	var all bytes.Buffer
	h := httplimit.RulesMiddleware(limiter(store), func() *rules.Set { return set },
		httplimit.ErrorHandler(func(w http.ResponseWriter, _ *http.Request, err error) { http.Error(w, err.Error(), 400) }))(ok)
	signed := request(header("Authorization", canary), header("Cookie", "sid=canary-4f9d2c"))
	statuses := []int{}
	for _, r := range []*http.Request{
		signed, signed, signed,
		request(header("Authorization", canary, canary)),
		request(header("Authorization", strings.Repeat(canary, 1000))),
	} {
		got := serve(h, r)
		statuses = append(statuses, got.StatusCode)
		if err := got.Write(&all); err != nil {
			t.Fatal(err)
		}
	}
	if want := []int{200, 200, 429, 400, 400}; !slices.Equal(statuses, want) {
		t.Errorf("statuses %v, want %v", statuses, want)
	}
	var m rules.MatchResult
	if err := set.Match(httplimit.NewRulesRequest(signed, set), &m); err != nil {
		t.Fatal(err)
	}
	for _, take := range m.Takes {
		all.WriteString(take.Key)
	}
	fmt.Fprintf(&all, "%+v", set.Explain(httplimit.NewRulesRequest(signed, set)))
	if err := store.SaveSnapshot(); err != nil {
		t.Fatal(err)
	}
	saved, err := os.ReadFile(file)
	if err != nil || len(saved) == 0 {
		t.Fatal(err)
	}
	all.Write(saved)
	if bytes.Contains(all.Bytes(), []byte("canary")) {
		t.Error("the credential is in a response, a key, an explanation or the store's snapshot")
	}
}

// TestRulesClientGone: a request whose context is done is neither served nor reported as an error.
func TestRulesClientGone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	next := &count{}
	report := httplimit.ErrorHandler(func(http.ResponseWriter, *http.Request, error) { t.Error("reported as an error") })
	c := rules.Config{Rules: []rules.Rule{perUser("api", sluice.PerHour(1))}}
	h := httplimit.RulesMiddleware(limiter(memstore.New()), always(c), report)(next)
	if got := serve(h, request().WithContext(ctx)).StatusCode; got != 499 || next.n != 0 {
		t.Errorf("status %d, served %d times; want 499 and not at all", got, next.n)
	}
}

// TestChargeAnyStatus: every request is charged, whatever statuses a rule charges.
func TestChargeAnyStatus(t *testing.T) {
	failed := perUser("failed", sluice.PerHour(1))
	failed.ChargeStatus = rules.StatusRanges{{From: 401, To: 401}}
	for i, opts := range [][]httplimit.Option{nil, {httplimit.ChargeAnyStatus()}} {
		h := byRules(memstore.New(), rules.Config{Rules: []rules.Rule{failed}}, opts...)
		var last int
		for range 2 {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, post("/"))
			last = w.Code
		}
		if want := []int{http.StatusOK, http.StatusTooManyRequests}[i]; last != want {
			t.Errorf("%d options: the second request is %d, want %d", len(opts), last, want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("ChargeIf and ChargeAnyStatus can be combined")
		}
	}()
	httplimit.SetQuotaHeaders(httptest.NewRecorder(), post("/"), nil, make([]sluice.Decision, 1),
		httplimit.ChargeAnyStatus(), httplimit.ChargeIf(func(int) bool { return true }))
}
