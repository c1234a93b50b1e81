package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

// Two posts per hour for each user; other requests are unlimited.
func ExampleRulesMiddleware() {
	set, err := rules.New(rules.Config{
		Rules: []rules.Rule{{
			Name: "posts-per-user",
			Match: rules.Match{Predicates: []rules.Predicate{
				{Ref: rules.Ref{Name: "method"}, Values: []string{"POST"}},
				{Ref: rules.Ref{Name: "path"}, Patterns: []string{"/posts"}},
			}},
			Per:    []rules.Ref{{Name: "header:X-User"}},
			Limits: []rules.Limit{{Limit: sluice.PerHour(2)}},
		}},
	})
	if err != nil {
		panic(err)
	}
	limiter := sluice.Must(sluice.NewWithRules(memstore.New(), nil))
	handler := httplimit.RulesMiddleware(limiter, func() *rules.Set { return set })(hello)

	for _, method := range []string{"POST", "GET", "POST", "POST"} {
		r := httptest.NewRequest(method, "/posts", nil)
		r.Header.Set("X-User", "ada")
		try(handler, r, "Ratelimit")
	}
	// Output:
	// 200, Ratelimit: "posts-per-user";r=1;t=1800
	// 200, Ratelimit:
	// 200, Ratelimit: "posts-per-user";r=0;t=1800
	// 429, Ratelimit: "posts-per-user";r=0;t=1800
}

// The user is a claim of a token that other middleware has verified.
func ExampleContextWithClaims() {
	set := sluice.Must(rules.New(rules.Config{Rules: []rules.Rule{{
		Name: "per-user", Per: []rules.Ref{{Name: "claim:sub"}}, Limits: []rules.Limit{{Limit: sluice.PerHour(1)}},
	}}}))
	limiter := sluice.Must(sluice.NewWithRules(memstore.New(), nil))
	limited := httplimit.RulesMiddleware(limiter, func() *rules.Set { return set })(hello)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, _, _ := r.BasicAuth() // instead of verifying a token
		claims := map[string]string{"sub": user}
		limited.ServeHTTP(w, r.WithContext(httplimit.ContextWithClaims(r.Context(), claims)))
	})

	for _, user := range []string{"ada", "bob", "ada"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.SetBasicAuth(user, "")
		try(handler, r, "X-Ratelimit-Remaining")
	}
	// Output:
	// 200, X-Ratelimit-Remaining: 0
	// 200, X-Ratelimit-Remaining: 0
	// 429, X-Ratelimit-Remaining: 0
}

// A limit per region, an attribute that the program sets.
func ExampleContextWithAttributes() {
	set := sluice.Must(rules.New(rules.Config{Rules: []rules.Rule{{
		Name: "per-region", Per: []rules.Ref{{Name: "attr:region"}}, Limits: []rules.Limit{{Limit: sluice.PerHour(1)}},
	}}}))
	limiter := sluice.Must(sluice.NewWithRules(memstore.New(), nil))
	handler := httplimit.RulesMiddleware(limiter, func() *rules.Set { return set })(hello)

	for _, region := range []string{"eu", "us", "eu"} {
		r := httptest.NewRequest("GET", "/", nil)
		r = r.WithContext(httplimit.ContextWithAttributes(r.Context(), map[string]string{"region": region}))
		try(handler, r, "X-Ratelimit-Limit")
	}
	// Output:
	// 200, X-Ratelimit-Limit: 1
	// 200, X-Ratelimit-Limit: 1
	// 429, X-Ratelimit-Limit: 1
}

// Explain which rules match a request, without counting it.
func ExampleNewRulesRequest() {
	set := sluice.Must(rules.New(rules.Config{Rules: []rules.Rule{{
		Name: "per-user", Per: []rules.Ref{{Name: "header:X-User"}}, Limits: []rules.Limit{{Limit: sluice.PerHour(1)}},
	}}}))
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-User", "ada")
	for _, rule := range set.Explain(httplimit.NewRulesRequest(r, set)).Rules {
		fmt.Println(rule.Name, rule.Matches, rule.Key)
	}
	// Output:
	// per-user true [{header:X-User ada}]
}
