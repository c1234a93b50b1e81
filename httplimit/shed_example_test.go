package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/rules"
)

// Requests are shed while the maximum is in flight, here one.
func ExampleShedder() {
	set := sluice.Must(rules.New(rules.Config{AdaptiveLimits: []rules.AdaptiveLimit{{Name: "api", Min: 1, Max: 1}}}))
	shedder := httplimit.NewShedder(func() *rules.Set { return set })
	shedder.OnShed(func(_ *http.Request, limit string) { fmt.Println("shed by", limit) })
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go shedder.Run(ctx)

	var handler http.Handler
	handler = shedder.Middleware(shedder.MeasureUpstream(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/first" {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest("GET", "/second", nil))
			fmt.Println(w.Code)
		}
	})))
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/first", nil))
	for _, limit := range shedder.AdaptiveLimits() {
		fmt.Println(limit.Name, limit.InFlight, "of", limit.Limit)
	}
	fmt.Println(shedder.Pressure() >= 0)
	// Output:
	// shed by api
	// 503
	// api 0 of 1
	// true
}
