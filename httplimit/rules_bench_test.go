package httplimit_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/internal/testenv/allocs"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

// plentyPer returns a rule with a limit that benchmarks never reach.
func plentyPer(name string, per ...string) rules.Rule {
	return rules.Rule{Name: name, Per: refs(per...), Limits: limits(plenty)}
}

// manyRoutes returns n rules for other paths, and one for the root.
func manyRoutes(n int) []rules.Rule {
	all := []rules.Rule{plentyPer("root", "ip")}
	all[0].Match = where("method", "GET", "path", "/")
	for i := range n - 1 {
		r := plentyPer(fmt.Sprint("route-", i), "ip")
		r.Match = where("method", "GET", "path", fmt.Sprintf("/route/%d/{id}", i))
		all = append(all, r)
	}
	return all
}

var apiRule = []*sluice.Rule{rule("api", plenty)}

// equivalents are the same limits for Middleware and for RulesMiddleware.
var equivalents = []struct {
	name  string
	key   httplimit.KeyFunc
	other []*sluice.Rule // rules of the limiter for Middleware
	rules []rules.Rule
	most  float64 // allocations: one string and one array for the headers, plus those for the key
}{
	{"ip", httplimit.ByIP(), apiRule, []rules.Rule{plentyPer("api", "ip")}, 2},
	{"header", httplimit.ByHeader("X-User"), apiRule, []rules.Rule{plentyPer("api", "header:X-User")}, 2},
	{
		"two", httplimit.Combine(httplimit.ByHeader("X-User"), httplimit.ByIP()), apiRule,
		[]rules.Rule{plentyPer("api", "header:X-User", "ip")},
		2,
	},
	{"query", httplimit.ByQuery("id"), apiRule, []rules.Rule{plentyPer("api", "query:id")}, 2},
	{"cookie", httplimit.ByCookie("sid"), apiRule, []rules.Rule{plentyPer("api", "cookie:sid")}, 4},
	{
		"three rules", httplimit.ByIP(), manyRules(),
		[]rules.Rule{plentyPer("second", "ip"), plentyPer("minute", "ip"), plentyPer("day", "ip")},
		2,
	},
	{"one of many", httplimit.ByIP(), []*sluice.Rule{rule("root", plenty)}, manyRoutes(1000), 2},
}

func limitedRequest() *http.Request {
	return request(header("X-User", "alice"), header("Cookie", "sid=0123456789abcdef"), query("id=7"))
}

// TestRulesAllocations: RulesMiddleware allocates no more than Middleware for the same limits.
func TestRulesAllocations(t *testing.T) {
	for _, e := range equivalents {
		allocations := func(h http.Handler, next *count) float64 {
			w, r := &discard{h: http.Header{}}, limitedRequest()
			n := allocs.Of(func() {
				clear(w.h)
				h.ServeHTTP(w, r)
			})
			if next.n != 400 {
				t.Errorf("%s: %d of 400 were allowed", e.name, next.n)
			}
			return n
		}
		a, b := &count{}, &count{}
		by := allocations(httplimit.Middleware(limiter(memstore.New(), e.other...), e.key)(a), a)
		ruled := allocations(httplimit.RulesMiddleware(limiter(memstore.New()), always(rules.Config{Rules: e.rules}))(b), b)
		if ruled > by || ruled > e.most {
			t.Errorf("%s: %v allocations with rules and %v without; want at most %v", e.name, ruled, by, e.most)
		}
		t.Logf("%s: %v allocations with rules, %v without", e.name, ruled, by)
	}
}

func BenchmarkRules(b *testing.B) {
	for _, e := range equivalents {
		next := &count{}
		for name, h := range map[string]http.Handler{
			"middleware": httplimit.Middleware(limiter(memstore.New(), e.other...), e.key)(next),
			"rules":      httplimit.RulesMiddleware(limiter(memstore.New()), always(rules.Config{Rules: e.rules}))(next),
		} {
			b.Run(e.name+"/"+name, func(b *testing.B) {
				w, r := &discard{h: http.Header{}}, limitedRequest()
				next.n = 0
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					clear(w.h)
					h.ServeHTTP(w, r)
					n++
				}
				if next.n != n {
					b.Errorf("%d of %d requests were allowed, so something else was measured", next.n, n)
				}
			})
		}
	}
}

func BenchmarkRulesParallel(b *testing.B) {
	h := httplimit.RulesMiddleware(limiter(memstore.New()), always(rules.Config{Rules: manyRoutes(1000)}))(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		w, r := &discard{h: http.Header{}}, limitedRequest()
		for pb.Next() {
			clear(w.h)
			if h.ServeHTTP(w, r); len(w.h["Ratelimit"]) == 0 || w.status != 0 {
				b.Errorf("status %d, headers %v: something else was measured", w.status, w.h)
			}
		}
	})
}
