package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

// A request that a rule in shadow mode would deny is served, and reported as shadow-denied.
func TestShadowReports(t *testing.T) {
	set, err := rules.New(rules.Config{Rules: []rules.Rule{{
		Name: "users", Shadow: true, Per: []rules.Ref{{Name: "cookie:sid"}}, OnMissing: rules.MissingReject,
		Limits: []rules.Limit{{Limit: sluice.PerHour(1)}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	reported := 0
	limiter, err := sluice.NewWithRules(memstore.New(), nil, sluice.WithEvents(sluice.Events{
		OnDenial: func(_ context.Context, take sluice.Take, d sluice.Decision) {
			if take.Rule.Name == "users" && d.ShadowDenied && d.Allowed {
				reported++
			}
		},
	}))
	if err != nil {
		t.Fatal(err)
	}
	handler := httplimit.RulesMiddleware(limiter, func() *rules.Set { return set })(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	}))
	for i, cookies := range []string{"", "sid=a; sid=b", "sid=a\"b"} {
		w := httptest.NewRecorder()
		r := request()
		if cookies != "" {
			r = request(header("Cookie", cookies))
		}
		if handler.ServeHTTP(w, r); w.Code != http.StatusTeapot || reported != i+1 {
			t.Errorf("cookies %q: status %d, %d were reported", cookies, w.Code, reported)
		}
	}
}
