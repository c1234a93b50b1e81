package rules_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

// perUser contains one rule: two posts an hour for each user.
var perUser = rules.Config{Rules: []rules.Rule{{
	Name:   "posts-per-user",
	Match:  rules.Match{Predicates: []rules.Predicate{{Ref: rules.Ref{Name: "method"}, Values: []string{"POST"}}}},
	Per:    []rules.Ref{{Name: "header:X-User"}},
	Limits: []rules.Limit{{Limit: sluice.PerHour(2)}},
}}}

// userRequest returns a request for a set to match.
func userRequest(set *rules.Set, method, user string) rules.Request {
	r := httptest.NewRequest(method, "/posts", nil)
	r.Header.Set("X-User", user)
	return httplimit.NewRulesRequest(r, set)
}

// An edge matches each request, lets the limiter decide the takes, and reuses the memory.
func ExampleSet_Match() {
	set := sluice.Must(rules.New(perUser))
	limiter := sluice.Must(sluice.NewWithRules(memstore.New(), nil))
	var matched rules.MatchResult
	for _, method := range []string{"POST", "GET"} {
		if err := set.Match(userRequest(set, method, "ada"), &matched); err != nil {
			panic(err)
		}
		decisions := make([]sluice.Decision, len(matched.Takes))
		allowed, err := limiter.Decide(context.Background(), matched.Takes, decisions)
		fmt.Println(allowed, err, matched.Charges())
		matched.Clear()
	}
	// Output:
	// true <nil> [{posts-per-user ada  1}]
	// true <nil> []
}

func ExampleSet_Explain() {
	set := sluice.Must(rules.New(perUser))
	x := set.Explain(userRequest(set, "POST", "ada"))
	for _, t := range x.Takes {
		fmt.Println(t.Rule.Name, set.KeyParts(t.Rule, t.Key))
	}
	// Output: posts-per-user [{header:X-User ada}]
}

// The contents of a set.
func ExampleSet() {
	set := sluice.Must(rules.New(perUser))
	fmt.Println(set.RuleNames(), len(set.Config().Rules), set.Warnings())
	for _, r := range set.ActiveRules() {
		fmt.Println(r.Name, r.Per)
	}
	for _, r := range set.LimiterRules() {
		fmt.Println(r.Name, r.Limit)
	}
	fmt.Println(set.ReadsHeader("X-User"), set.ReadsHeader("Accept"), set.HasAdaptiveLimits())
	// Output:
	// [posts-per-user] 1 []
	// posts-per-user [header:X-User]
	// posts-per-user 2/h
	// true false false
}

// Operators name a key by its parts.
func ExampleSet_Buckets() {
	ctx := context.Background()
	set := sluice.Must(rules.New(perUser))
	limiter := sluice.Must(sluice.NewWithRules(memstore.New(), nil))
	key := []rules.KeyPart{{Name: "header:X-User", Value: "ada"}}
	buckets, err := set.Buckets("posts-per-user", key)
	if err != nil {
		panic(err)
	}
	fmt.Println(len(buckets), limiter.ResetBuckets(ctx, buckets...))
	tiers, _ := set.TierBuckets("posts-per-user", key)
	for _, b := range tiers {
		rule, limits := set.LookupLimits(b.Rule.Name, b.Key)
		fmt.Printf("%s %q %v\n", rule.Name, b.Tier, limits)
	}
	// Output:
	// 1 <nil>
	// posts-per-user "" [2/h]
}

// The priority of a request for load shedding.
func ExampleSet_LoadClass() {
	set := sluice.Must(rules.New(rules.Config{AdaptiveLimits: []rules.AdaptiveLimit{{Name: "api", Min: 1, Max: 100}}}))
	var matched rules.MatchResult
	load, err := set.LoadClass(userRequest(set, "GET", "ada"), &matched)
	fmt.Println(load.AdaptiveLimit.Name, load.Priority, err)
	// Output: api normal <nil>
}

func ExampleStatusRanges() {
	failures := rules.StatusRanges{{From: 401, To: 401}, {From: 500, To: 599}}
	fmt.Println(failures.Contains(200), failures.Contains(503))
	// Output: false true
}

func ExampleQueueOptions_WithDefaults() {
	o := rules.QueueOptions{MaxAttempts: 3}.WithDefaults()
	fmt.Println(o.MaxAttempts, o.ExpiresAfter)
	// Output: 3 24h0m0s
}

// Names of a limit in the statistics and counters of Envoy's rate limit service.
func ExampleSet_DescriptorLimits() {
	set := sluice.Must(rules.New(published))
	entries := []rules.Entry{{Key: "auth_type", Value: "login"}}
	for _, l := range set.DescriptorLimits("auth") {
		fixed, ok := l.FixedStatKey()
		fmt.Println(fixed, ok)
		fmt.Println(string(l.AppendStatKey(nil, entries)))
		fmt.Println(string(l.AppendCounterKey(nil, entries)))
	}
	// Output:
	// auth.auth_type_login true
	// auth.auth_type_login
	// auth_auth_type_login_
}
