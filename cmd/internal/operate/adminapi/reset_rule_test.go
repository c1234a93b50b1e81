package adminapi_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminapi"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/redisstore"
)

// All keys of a rule are reset, for all of its limits or one, and each page is logged. A dry run is not a change and is not
// logged.
func TestResetRule(t *testing.T) {
	for _, s := range stores {
		t.Run(s.name, func(t *testing.T) {
			keyed := sluice.Must(sluice.NewRule(sluice.Rule{Name: "resp", Limit: sluice.PerHour(5)}))
			o := newOffice(t, s.open(t), withToken(t), func(c *adminapi.Config) { c.Keyed = []*sluice.Rule{keyed} })
			post := func(status int, path, body string) map[string]any {
				t.Helper()
				return o.tree(status, o.ask("POST", path, body, "Authorization", "Bearer "+rightToken))
			}
			if s.name == "memcached" {
				if p := post(501, "/v1/reset/rule", `{"rule":"user"}`); !strings.Contains(p["detail"].(string), "rename the rule in its file") {
					t.Errorf("no advice: %v", p["detail"])
				}
				return
			}
			for _, name := range []string{"ada", "bob", "eve"} {
				o.spend("user", 2, "header:X-User", name)
			}
			o.spend("pair", 1, "path:id", "7", "ip", "192.0.2.1")
			post(200, "/v1/block", `{"rule":"user","key":{"header:X-User":"mallory"},"duration":"1h"}`)
			o.log.lines()
			// The block counts once per limit. The memory store cannot count: null.
			removed := func(n float64) any {
				if s.lists {
					return n
				}
				return nil
			}
			all := func(body string) any {
				t.Helper()
				p := post(200, "/v1/reset/rule", body)
				if p["next_page_token"] != "" || p["dry_run"] != strings.Contains(body, "dry_run") {
					t.Errorf("%v", p)
				}
				return p["removed"]
			}
			if got := all(`{"rule":"user","dry_run":true}`); got != removed(8) {
				t.Errorf("%v would be removed", got)
			}
			if lines := o.log.lines(); len(lines) != 0 {
				t.Errorf("a dry run is logged: %q", lines)
			}
			if got := all(`{"rule":"user#2"}`); got != removed(4) {
				t.Errorf("%v of one limit were removed", got)
			}
			peek := func(selector string) string { return states(post(200, "/v1/peek", selector)) }
			expect(t, "one limit", peek(`{"rule":"user","key":{"header:X-User":"ada"}}`), `user {"header:X-User":"ada"} 0/2 store denied, user#2 {"header:X-User":"ada"} 5/5 store`)
			if got := all(`{"rule":"user"}`); got != removed(4) {
				t.Errorf("%v were removed", got)
			}
			if lines := o.log.lines(); len(lines) != 2 || !strings.Contains(lines[1], `principal=token`) ||
				!strings.Contains(lines[1], `action="reset rule" selector=user `) || !strings.HasSuffix(lines[1], ` last=true outcome=done`) ||
				strings.Contains(lines[1], "removed=4") != s.lists {
				t.Errorf("the log has %q", lines)
			}
			for _, name := range []string{"ada", "mallory"} {
				expect(t, name, peek(`{"rule":"user","key":{"header:X-User":"`+name+`"}}`), `user {"header:X-User":"`+name+`"} 2/2 store, user#2 {"header:X-User":"`+name+`"} 5/5 store`)
			}
			expect(t, "another rule", peek(`{"rule":"pair","key":{"path:id":"7","ip":"192.0.2.1"}}`), `pair {"ip":"192.0.2.1","path:id":"7"} 3/4 store`)
			all(`{"rule":"resp"}`)
			all(`{"rule":"messaging/message_type"}`)
			o.log.lines()
			for body, want := range map[string]string{
				`{}`:                               "400 rule missing",
				`{"rule":"usr"}`:                   `404 did you mean \"user\"?`,
				`{"rule":"off"}`:                   "404 is not enabled",
				`{"rule":"user","page_token":"x"}`: `400 page_token: \"x\" is not a next_page_token`,
				`{"rule":"user","key":{"a":"b"}}`:  `400 unknown field \"key\"`,
			} {
				if a := o.ask("POST", "/v1/reset/rule", body, "Authorization", "Bearer "+rightToken); strconv.Itoa(a.status) != want[:3] || !strings.Contains(a.body, want[4:]) {
					t.Errorf("%s: %s, want %s", body, a.body, want)
				}
				if lines := o.log.lines(); len(lines) != 1 || !strings.Contains(lines[0], "outcome=\"failed: ") {
					t.Errorf("%s: the log has %q", body, lines)
				}
			}
			o.tree(401, o.ask("POST", "/v1/reset/rule", `{"rule":"user"}`))
		})
	}
}

// With an unavailable store the response is 503, and the log reports no change.
func TestResetRuleStoreAway(t *testing.T) {
	server := redistest.Start(t)
	s, err := redisstore.Open(redisstore.Config{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	o := newOffice(t, s)
	o.post(200, "/v1/reset/rule", `{"rule":"user"}`)
	server.Kill()
	o.log.lines()
	if p := o.post(503, "/v1/reset/rule", `{"rule":"user"}`); !strings.Contains(p["detail"].(string), "store unavailable, changes are not confirmed") {
		t.Errorf("%v", p["detail"])
	}
	if lines := o.log.lines(); len(lines) != 1 || strings.Contains(lines[0], "outcome=done") || !strings.Contains(lines[0], "last=false") {
		t.Errorf("the log has %q", lines)
	}
}

// Without a token, on a loopback listener, requests are allowed.
func TestResetRuleWithoutToken(t *testing.T) {
	o := newOffice(t, memstore.New())
	o.post(200, "/v1/reset/rule", `{"rule":"user"}`)
	o.tree(403, o.ask("POST", "/v1/reset/rule", `{"rule":"user"}`, "Content-Type", "text/plain"))
}
