package httplimit_test

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/rules"
)

// goldenRules is a rule set as a rule file could define it.
var goldenRules = rules.Config{
	DenyList: []rules.Match{where("ip", "203.0.113.0/24")},
	Rules: []rules.Rule{
		{
			Name: "posts-per-user", Match: where("method", "POST", "path", "/posts"), Per: refs("header:X-User"),
			Limits: limits(perMinute, sluice.PerDay(5000)),
			Cost:   rules.Cost{From: &rules.Ref{Name: "query:cost"}},
			Tiers: &rules.Tiers{By: rules.Ref{Name: "header:X-Plan"}, Limits: map[string][]rules.Limit{
				"pro": limits(sluice.PerMinute(100)), "banned": {{DenyAll: true}},
			}},
		},
		{Name: "all-posts", Match: where("path", "/posts/**"), Limits: limits(sluice.PerHour(1000)), Shadow: true},
	},
}

var goldenRuleCases = []struct {
	name  string
	times int // number of requests before the recorded one
	r     *http.Request
	opts  []httplimit.Option
}{
	{name: "allowed", r: post("/posts")},
	{name: "denied by a rule's first limit", times: 2, r: post("/posts")},
	{name: "denied in a tier", times: 100, r: post("/posts", header("X-Plan", "pro"))},
	{name: "denied always", r: post("/posts", header("X-Plan", "banned"))},
	{name: "cost exceeds limit", r: post("/posts?cost=3")},
	{name: "draft 03", times: 2, r: post("/posts"), opts: []httplimit.Option{httplimit.Headers(httplimit.HeadersDraft03)}},
	{name: "limited by a shadow rule alone", r: post("/posts/7")},
	{name: "not limited", r: post("/other")},
	{name: "rejected", r: post("/posts", func(r *http.Request) { r.RemoteAddr = "203.0.113.5:1" })},
	{name: "ambiguous", r: post("/posts", header("X-Plan", "pro", "free"))},
	{name: "ambiguous path", r: post("/posts%2f7")},
	{name: "invalid cost", r: post("/posts?cost=much")},
}

// TestRulesGolden compares whole responses, byte for byte.
func TestRulesGolden(t *testing.T) {
	var got bytes.Buffer
	for _, c := range goldenRuleCases {
		h := byRules(newClock().store(), goldenRules, c.opts...)
		c.r.Header.Set("X-User", "alice-secret")
		for range c.times {
			serve(h, c.r)
		}
		fmt.Fprintf(&got, "-- %s --\n", c.name)
		if err := serve(h, c.r).Write(&got); err != nil {
			t.Fatal(err)
		}
		got.WriteString("\n")
	}
	if bytes.Contains(got.Bytes(), []byte("secret")) {
		t.Error("a response contains the key")
	}
	compareGolden(t, "testdata/rules.txt", got.Bytes())
}
