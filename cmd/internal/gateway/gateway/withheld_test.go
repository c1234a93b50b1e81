package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/gateway"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/queue"
	"github.com/sluiceproject/sluice/rules"
)

// noting is a queue that records its items.
type noting struct {
	*queue.Queue
	items []queue.Item
}

func (n *noting) Put(ctx context.Context, it queue.Item) (string, error) {
	n.items = append(n.items, it)
	return n.Queue.Put(ctx, it)
}

// Queued requests are delivered at the rate of all rules that applied to them, including rules that read a credential, which is
// not stored. For each table entry six requests of one client arrive, the rate is 1/h, and one reaches the upstream.
func TestDeliveriesKeepToRulesByCredentials(t *testing.T) {
	const any = "rules: [{name: m, %s, limit: 1/h, on_limit: queue}]"
	for name, tt := range map[string]struct {
		rules string
		line  string
		other string // header of another client with a separate bucket; "": they share one
	}{
		"match cookie":     {fmt.Sprintf(any, "match: {cookie: {plan: free}}"), "Cookie: plan=free", ""},
		"match header":     {fmt.Sprintf(any, "match: {header: {Authorization: {present: true}}}"), "Authorization: Bearer x", ""},
		"unmatched":        {fmt.Sprintf(any, "match: {header: {Authorization: {present: true}}}") + "\nunmatched: deny", "Authorization: Bearer x", ""},
		"except":           {fmt.Sprintf(any, "except: [{cookie: {a: {present: false}}}]"), "Cookie: a=b", ""},
		"per header":       {fmt.Sprintf(any, "per: header:X-Api-Key"), "X-Api-Key: one", "X-Api-Key: two"},
		"per header, skip": {fmt.Sprintf(any, "per: header:X-Api-Key, on_missing: skip"), "X-Api-Key: one", "X-Api-Key: two"},
		"per header, deny": {fmt.Sprintf(any, "per: header:X-Api-Key, on_missing: reject"), "X-Api-Key: one", "X-Api-Key: two"},
		"per cookie":       {fmt.Sprintf(any, "per: cookie:plan"), "Cookie: plan=free", "Cookie: plan=other"},
		"per user":         {fmt.Sprintf(any, "per: basic_user"), "Authorization: Basic YTpi", "Authorization: Basic Yjpi"},
		"per several":      {fmt.Sprintf(any, "per: [ip, cookie:plan]"), "Cookie: plan=free", "Cookie: plan=other"},
		"declared": {
			"attributes: {who: [{header: X-Auth-Token}, {cookie: who}]}\n" + fmt.Sprintf(any, "per: who"), "X-Auth-Token: one", "X-Auth-Token: two",
		},
		"tier":      {"rules: [{name: m, limit: 100/h, tiers: {by: cookie:plan, free: 1/h}, on_limit: queue}]", "Cookie: plan=free", ""},
		"cost":      {"rules: [{name: m, limit: 4/h, cost: {header: X-Access-Token}, on_limit: queue}]", "X-Access-Token: 3", ""},
		"two rules": {"rules: [{name: all, limit: 100/h, on_limit: queue}, {name: user, per: header:X-Api-Key, on_missing: skip, limit: 1/h, on_limit: queue}]", "X-Api-Key: one", ""},
		"deny list": {"deny: [{header: {Authorization: {present: false}}}]\n" + fmt.Sprintf(any, "match: {path: /b}"), "Authorization: Bearer x", ""},
		"allow":     {"allow: [{header: {Authorization: {present: false}}}]\n" + fmt.Sprintf(any, "match: {path: /b}"), "Authorization: Bearer x", ""},
		"stored":    {fmt.Sprintf(any, "per: header:X-Api-Key, queue: {keep_headers: X-Api-Key}"), "X-Api-Key: one", "X-Api-Key: two"},
	} {
		t.Run(name, func(t *testing.T) {
			arrived := 0
			app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived++ }))
			defer app.Close()
			kept := &noting{Queue: newQueue(t, func(*queue.Config) {})}
			cfg := gateway.Config{Routes: []gateway.Route{{Path: pattern(t, "/**"), Upstream: group(t, app.URL)}}, Queue: kept}
			cfg.Rules, cfg.Limiter = limits(t, tt.rules)
			g, err := gateway.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			send := func(line string) int {
				r := httptest.NewRequest("POST", "/b", strings.NewReader("x"))
				header, value, _ := strings.Cut(line, ": ")
				r.Header.Set(header, value)
				w := httptest.NewRecorder()
				g.ServeHTTP(w, r)
				return w.Code
			}
			for i := range 6 {
				if got, want := send(tt.line), map[bool]int{true: 200, false: 202}[i == 0]; got != want {
					t.Errorf("request %d: %d, want %d", i, got, want)
				}
			}
			deliver := func(it queue.Item) gateway.Delivered { return g.Deliver(t.Context(), &it, func() error { return nil }) }
			for i, it := range kept.items {
				if out := deliver(it); !out.Limited {
					t.Errorf("item %d: %+v, want it to wait", i, out)
				}
				for _, secret := range []string{"free", "Bearer", "one", "YTpi"} {
					if text := fmt.Sprint(it.Header, it.Charges); name != "stored" && name != "tier" && strings.Contains(text, secret) {
						t.Errorf("item %d: credential stored: %s", i, text)
					}
				}
			}
			if arrived != 1 {
				t.Errorf("%d requests reached the upstream, want 1", arrived)
			}
			if tt.other == "" {
				return
			}
			if send(tt.other) != 200 || send(tt.other) != 202 {
				t.Error("the other client's requests are not counted separately")
			}
		})
	}
}

// A rule that only denies charges queued requests too. Here the rule that queued them is removed, and the one that reads the
// credential allows two requests in all.
func TestDeliveriesKeepToOtherRules(t *testing.T) {
	arrived := 0
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived++ }))
	defer app.Close()
	kept := &noting{Queue: newQueue(t, func(*queue.Config) {})}
	cfg := gateway.Config{Routes: []gateway.Route{{Path: pattern(t, "/**"), Upstream: group(t, app.URL)}}, Queue: kept}
	first := setOf(t, "rules: [{name: path, match: {path: /b}, limit: 1/h, on_limit: queue}, {name: user, per: header:X-Api-Key, on_missing: skip, limit: 2/h}]")
	today := setOf(t, "rules: [{name: user, per: header:X-Api-Key, on_missing: skip, limit: 2/h}]")
	live := first
	_, cfg.Limiter = limits(t, "rules: []")
	cfg.Rules = func() *rules.Set { return live }
	g, err := gateway.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		r := httptest.NewRequest("POST", "/b", nil)
		r.Header.Set("X-Api-Key", "one")
		g.ServeHTTP(httptest.NewRecorder(), r)
	}
	live = today
	var waits int
	for _, it := range kept.items {
		if g.Deliver(t.Context(), &it, func() error { return nil }).Limited {
			waits++
		}
	}
	if len(kept.items) != 3 || waits != 2 || arrived != 2 {
		t.Errorf("%d were queued and %d denied; %d reached the upstream, want 2", len(kept.items), waits, arrived)
	}
}
