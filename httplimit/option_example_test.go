package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

func ExampleOption() {
	limiter := sluice.Must(sluice.New(memstore.New(), "uploads", sluice.PerHour(5)))
	handler := httplimit.Middleware(limiter, httplimit.ByHeader("X-User"),
		httplimit.Headers(httplimit.HeadersXRateLimit),
		httplimit.Skip(func(r *http.Request) bool { return r.URL.Path == "/healthz" }),
		httplimit.Cost(func(r *http.Request) int64 { return r.ContentLength }),
		httplimit.ErrorHandler(func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}),
	)(hello)

	upload := httptest.NewRequest("POST", "/", strings.NewReader("abc"))
	upload.Header.Set("X-User", "ada")
	try(handler, upload, "X-Ratelimit-Remaining")
	try(handler, upload, "X-Ratelimit-Remaining")
	try(handler, httptest.NewRequest("GET", "/healthz", nil), "X-Ratelimit-Remaining")
	// Output:
	// 200, X-Ratelimit-Remaining: 2
	// 429, X-Ratelimit-Remaining: 2
	// 200, X-Ratelimit-Remaining:
}

// A leaky queue releases requests one by one, here 10 per second.
func ExampleOnDelay() {
	limit := sluice.Per(10, time.Second).WithAlgorithm(sluice.LeakyQueue)
	limiter := sluice.Must(sluice.New(memstore.New(), "mail", limit))
	handler := httplimit.Middleware(limiter, httplimit.Global(),
		httplimit.MaxDelay(time.Second),
		httplimit.OnDelay(func(_ *http.Request, d httplimit.DelayEvent) {
			fmt.Println(d.Rule, d.Waited > 0)
		}),
	)(hello)
	for range 2 {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}
	// Output:
	// mail false
	// mail true
}

func ExampleResetAsUnixTime() {
	limiter := sluice.Must(sluice.New(memstore.New(), "api", sluice.PerHour(2)))
	handler := httplimit.Middleware(limiter, httplimit.Global(), httplimit.ResetAsUnixTime())(hello)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	var reset int64
	_, _ = fmt.Sscan(w.Header().Get("X-Ratelimit-Reset"), &reset)
	fmt.Println(time.Until(time.Unix(reset, 0)).Round(time.Minute))
	// Output: 30m0s
}

// All statuses are charged, whatever statuses the rule charges.
func ExampleChargeAnyStatus() {
	set := sluice.Must(rules.New(rules.Config{Rules: []rules.Rule{{
		Name: "logins", Limits: []rules.Limit{{Limit: sluice.PerHour(5)}}, ChargeStatus: rules.StatusRanges{{From: 401, To: 401}},
	}}}))
	limiter := sluice.Must(sluice.NewWithRules(memstore.New(), nil))
	all := httplimit.RulesMiddleware(limiter, func() *rules.Set { return set }, httplimit.ChargeAnyStatus())(hello)
	for range 2 {
		try(all, httptest.NewRequest("GET", "/", nil), "X-Ratelimit-Remaining")
	}
	// Output:
	// 200, X-Ratelimit-Remaining: 4
	// 200, X-Ratelimit-Remaining: 3
}

// A handler that calls the limiter itself sends the same quota headers as the middleware.
func ExampleSetQuotaHeaders() {
	limiter := sluice.Must(sluice.New(memstore.New(), "api", sluice.PerHour(2)))
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, err := limiter.Allow(r.Context(), r.RemoteAddr)
		if err != nil {
			http.Error(w, "limiter failed", http.StatusServiceUnavailable)
			return
		}
		httplimit.SetQuotaHeaders(w, r, limiter.Rules(), []sluice.Decision{d})
	})
	try(handler, httptest.NewRequest("GET", "/", nil), "Ratelimit")
	// Output: 200, Ratelimit: "api";r=1;t=1800
}

func ExampleDenial() {
	limiter := sluice.Must(sluice.New(memstore.New(), "api", sluice.PerHour(1)))
	handler := httplimit.Middleware(limiter, httplimit.Global(),
		httplimit.DenialHandler(func(w http.ResponseWriter, _ *http.Request, d *httplimit.Denial) {
			after, never := d.RetryAfter()
			fmt.Println(d.Rules[d.MostRestrictive].Name, after.Round(time.Minute), never)
			http.Error(w, d.Detail(), d.Status)
		}))(hello)
	for range 2 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Print(w.Code, " ", w.Body)
	}
	// Output:
	// 200 hello
	// api 1h0m0s false
	// 429 Rate limit api exceeded; retry in 3600 s.
}

// A page of another origin can read the denial. Its preflights get a response and are not counted.
func ExampleCORS() {
	limiter := sluice.Must(sluice.New(memstore.New(), "api", sluice.PerHour(1)))
	handler := httplimit.Middleware(limiter, httplimit.ByIP(), httplimit.CORS(httplimit.CORSConfig{
		AllowedOrigins: []string{"https://app.example.com", "https://*.example.org"},
	}))(hello)

	get := httptest.NewRequest("GET", "/", nil)
	get.Header.Set("Origin", "https://app.example.com")
	preflight := httptest.NewRequest("OPTIONS", "/", nil)
	preflight.Header.Set("Origin", "https://app.example.com")
	preflight.Header.Set("Access-Control-Request-Method", "GET")

	try(handler, preflight, "Access-Control-Allow-Origin")
	try(handler, get, "Access-Control-Allow-Origin")
	try(handler, get, "Access-Control-Allow-Origin")
	// Output:
	// 204, Access-Control-Allow-Origin: https://app.example.com
	// 200, Access-Control-Allow-Origin: https://app.example.com
	// 429, Access-Control-Allow-Origin: https://app.example.com
}
