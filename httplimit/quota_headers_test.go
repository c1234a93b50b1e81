package httplimit_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/internal/quota"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

// TakeHeaders sets the same headers as the middleware, for one rule and several, allowed and denied.
func TestTellerAgreesWithRules(t *testing.T) {
	three := rules.Rule{Name: "three", Limits: limits(sluice.PerHour(3)), Per: refs("header:X-User")}
	five := rules.Rule{Name: "five", Limits: limits(sluice.PerDay(5).WithAlgorithm(sluice.FixedWindow))}
	for name, all := range map[string][]rules.Rule{"one": {three}, "two": {three, five}} {
		t.Run(name, func(t *testing.T) {
			set, err := rules.New(rules.Config{Rules: all})
			if err != nil {
				t.Fatal(err)
			}
			next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
			h := httplimit.RulesMiddleware(sluice.Must(sluice.NewWithRules(memstore.New(), nil)), func() *rules.Set { return set })(next)
			own := sluice.Must(sluice.NewWithRules(memstore.New(), nil))
			teller := quota.NewTakeHeaders(quota.DefaultHeaders())
			for i := range 5 {
				r := request(header("X-User", "ada"))
				want := httptest.NewRecorder()
				h.ServeHTTP(want, r)
				want.Header().Del("Content-Type")

				var m rules.MatchResult
				if err := set.Match(httplimit.NewRulesRequest(r, set), &m); err != nil {
					t.Fatal(err)
				}
				out := make([]sluice.Decision, len(m.Takes))
				allowed, err := own.Decide(t.Context(), m.Takes, out)
				if err != nil || allowed != (i < 3) {
					t.Fatalf("request %d: %t, %v", i+1, allowed, err)
				}
				got := http.Header{}
				teller.SetFor(got, r, m.Takes, out, !allowed)
				if !maps.EqualFunc(got, want.Header(), slices.Equal[[]string]) {
					t.Errorf("request %d: TakeHeaders sets\n%v, the middleware\n%v", i+1, got, want.Header())
				}
				if allowed {
					continue
				}
				d := quota.NewDenial(m.Takes, out)
				var body struct{ Detail string }
				if err := json.Unmarshal(want.Body.Bytes(), &body); err != nil || d.Status != want.Code || d.Detail() != body.Detail {
					t.Errorf("NewDenial has %d %s, the middleware %d %s", d.Status, d.Detail(), want.Code, want.Body)
				}
			}
		})
	}
}
