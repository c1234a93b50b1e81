package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
)

// The response to a request whose cost exceeds the limit carries the limit but no time in any header: clients that sleep
// until a given time and retry would be denied again.
func TestExceedsLimitSuggestsNoRetry(t *testing.T) {
	formats := map[string][]httplimit.Option{
		"default":  nil,
		"x":        {httplimit.Headers(httplimit.HeadersXRateLimit)},
		"x epoch":  {httplimit.Headers(httplimit.HeadersXRateLimit), httplimit.ResetAsUnixTime()},
		"ietf":     {httplimit.Headers(httplimit.HeadersIETF)},
		"draft 03": {httplimit.Headers(httplimit.HeadersDraft03)},
	}
	algorithms := []sluice.Algorithm{
		sluice.TokenBucket, sluice.LeakyBucket, sluice.FixedWindow, sluice.SlidingWindowCounter, sluice.SlidingWindowLog,
	}
	for name, opts := range formats {
		for _, algorithm := range algorithms {
			for spent := range 3 {
				what := fmt.Sprintf("%s, %v, %d spent", name, algorithm, spent)
				limiter := sluice.Must(sluice.New(memstore.New(), "api", sluice.PerHour(5).WithAlgorithm(algorithm)))
				outer := sluice.Must(sluice.New(memstore.New(), "outer", sluice.PerHour(100)))
				cost := int64(1)
				opts := append([]httplimit.Option{httplimit.Cost(func(*http.Request) int64 { return cost })}, opts...)
				around := httplimit.Middleware(outer, httplimit.Global(), opts...)
				h := httplimit.Middleware(limiter, httplimit.Global(), opts...)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				for range spent {
					h.ServeHTTP(httptest.NewRecorder(), request())
				}
				cost = 7
				for where, h := range map[string]http.Handler{"alone": h, "behind another": around(h)} {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, request())
					if w.Code != http.StatusTooManyRequests {
						t.Fatalf("%s: %d", what, w.Code)
					}
					got := w.Header()
					for _, header := range []string{"Retry-After", "X-Ratelimit-Retry-After", "X-Ratelimit-Reset"} {
						if value, there := got[header]; there {
							t.Errorf("%s, %s: %s is %s", what, where, header, value)
						}
					}
					if all := strings.Join(got["Ratelimit"], ", "); strings.Contains(all, "t=") || name == "ietf" && !strings.Contains(all, `"api";r=`) {
						t.Errorf("%s, %s: Ratelimit is %s", what, where, all)
					}
					if name != "ietf" && (!strings.HasPrefix(got.Get("X-Ratelimit-Limit"), "5") || got.Get("X-Ratelimit-Remaining") != fmt.Sprint(5-spent)) {
						t.Errorf("%s, %s: %v", what, where, got)
					}
				}
			}
		}
	}
}
