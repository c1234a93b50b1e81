package httplimit_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
)

// hello is the limited handler of the examples.
var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintln(w, "hello")
})

// try sends a request to a handler and prints the status and a header.
func try(h http.Handler, r *http.Request, name string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Println(strings.TrimSpace(fmt.Sprintf("%d, %s: %s", w.Code, name, w.Header().Get(name))))
}

func ExampleMiddleware() {
	limiter, err := sluice.New(memstore.New(), "api", sluice.PerHour(2))
	if err != nil {
		panic(err)
	}
	handler := httplimit.Middleware(limiter, httplimit.ByIP())(hello)

	for range 3 {
		try(handler, httptest.NewRequest("GET", "/", nil), "Ratelimit")
	}
	// Output:
	// 200, Ratelimit: "api";r=1;t=1800
	// 200, Ratelimit: "api";r=0;t=1800
	// 429, Ratelimit: "api";r=0;t=1800
}

// 10 requests per second and 1000 per day for each user.
func ExampleMiddleware_severalRules() {
	limiter := sluice.Must(sluice.NewWithRules(memstore.New(), []*sluice.Rule{
		sluice.Must(sluice.NewRule(sluice.Rule{Name: "second", Limit: sluice.PerSecond(10)})),
		sluice.Must(sluice.NewRule(sluice.Rule{Name: "day", Limit: sluice.PerDay(1000)})),
	}))
	handler := httplimit.Middleware(limiter, httplimit.ByHeader("X-User"))(hello)

	try(handler, httptest.NewRequest("GET", "/", nil), "Ratelimit-Policy")
	// Output:
	// 200, Ratelimit-Policy: "second";q=10;w=1, "day";q=1000;w=86400
}

func ExampleByIP() {
	key := httplimit.ByIP(httplimit.TrustedProxies(netip.MustParsePrefix("10.0.0.0/8")))

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.1.2.3:443"
	r.Header.Set("X-Forwarded-For", "1.1.1.1, 198.51.100.7") // the client wrote the first, the proxy the second
	fmt.Println(key(r))

	r.RemoteAddr = "203.0.113.5:443" // not a trusted proxy
	fmt.Println(key(r))

	r.RemoteAddr = "[2001:db8:1:2:3:4:5:6]:443"
	fmt.Println(key(r))
	// Output:
	// 198.51.100.7 <nil>
	// 203.0.113.5 <nil>
	// 2001:db8:1:2::/64 <nil>
}

func ExampleCombine() {
	key := httplimit.Combine(httplimit.ByHeader("X-Tenant"), httplimit.ByHeader("X-User"))

	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-Tenant", "acme")
	r.Header.Set("X-User", "alice")
	got, _ := key(r)
	fmt.Println(got == httplimit.JoinKey("acme", "alice"))
	// Output:
	// true
}

// Only failed logins are charged.
func ExampleChargeIf() {
	login := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "correct" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	limiter := sluice.Must(sluice.New(memstore.New(), "logins", sluice.PerHour(2)))
	handler := httplimit.Middleware(limiter, httplimit.ByBasicAuthUser(),
		httplimit.ChargeIf(func(status int) bool { return status == http.StatusUnauthorized }))(login)

	for _, password := range []string{"correct", "correct", "correct", "1234", "0000", "correct"} {
		r := httptest.NewRequest("POST", "/login", nil)
		r.SetBasicAuth("alice", password)
		try(handler, r, "Retry-After")
	}
	// Output:
	// 200, Retry-After:
	// 200, Retry-After:
	// 200, Retry-After:
	// 401, Retry-After:
	// 401, Retry-After:
	// 429, Retry-After: 1800
}

// A higher limit for the paid plan.
func ExampleLimitFor() {
	paying := sluice.Must(sluice.PerHour(1000).Build())
	limiter := sluice.Must(sluice.New(memstore.New(), "api", sluice.PerHour(10)))
	handler := httplimit.Middleware(limiter, httplimit.ByHeader("X-User"),
		httplimit.LimitFor(func(r *http.Request) *sluice.Limit {
			if r.Header.Get("X-Plan") == "paying" {
				return paying
			}
			return nil
		}))(hello)

	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-Plan", "paying")
	try(handler, r, "X-Ratelimit-Limit")
	// Output:
	// 200, X-Ratelimit-Limit: 1000
}

func ExampleDenialHandler() {
	limiter := sluice.Must(sluice.New(memstore.New(), "api", sluice.PerHour(1)))
	handler := httplimit.Middleware(limiter, httplimit.ByIP(),
		httplimit.DenialHandler(func(w http.ResponseWriter, _ *http.Request, d *httplimit.Denial) {
			after, _ := d.RetryAfter()
			w.WriteHeader(d.Status)
			fmt.Fprintln(w, "Slow down, please. Come back in", after.Round(time.Minute))
		}))(hello)

	for range 2 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Print(w.Code, " ", w.Body)
	}
	// Output:
	// 200 hello
	// 429 Slow down, please. Come back in 1h0m0s
}

// The key is a value in the body, which only the handler reads.
func ExampleWriteDenial() {
	limiter := sluice.Must(sluice.New(memstore.New(), "mails-per-recipient", sluice.PerDay(1)))
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var mail struct{ To string }
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&mail); err != nil {
			http.Error(w, "not a mail", http.StatusBadRequest)
			return
		}
		d, err := limiter.Allow(r.Context(), mail.To)
		switch {
		case err != nil:
			http.Error(w, "limiter failed", http.StatusInternalServerError)
		case !d.Allowed:
			httplimit.WriteDenial(w, r, limiter.Rules(), []sluice.Decision{d})
		default:
			httplimit.SetQuotaHeaders(w, r, limiter.Rules(), []sluice.Decision{d})
			fmt.Fprintln(w, "sent")
		}
	})

	for range 2 {
		body := strings.NewReader(`{"to": "alice@example.org"}`)
		try(handler, httptest.NewRequest("POST", "/mails", body), "X-Ratelimit-Retry-After")
	}
	// Output:
	// 200, X-Ratelimit-Retry-After:
	// 429, X-Ratelimit-Retry-After: 86400
}
