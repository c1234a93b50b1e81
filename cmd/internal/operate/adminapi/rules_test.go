package adminapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminapi"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

func TestStatus(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	o := newOffice(t, memstore.New(), func(c *adminapi.Config) {
		c.Status = func(context.Context) adminmsg.Status {
			return adminmsg.Status{
				Version: "v1", Store: adminmsg.StoreStatus{
					Kind: "redis", Up: false, Error: "no", Instances: 2,
					Servers: []adminmsg.ServerStatus{{Shard: 0, Address: "a:1", Breaker: "open", Since: &at, Error: "refused"}},
					History: []adminmsg.BreakerEvent{{Time: at, Server: "a:1", Breaker: "open", Error: "refused"}},
				},
				Rules:     adminmsg.RulesStatus{Digest: "d1", LoadedAt: at, Files: []string{"a"}, LastError: &adminmsg.LastError{Time: at, Message: "x"}},
				Listeners: map[string]string{"grpc": "a:1"},
			}
		}
	})
	o.limiter.Suspend("user")
	s := o.get(200, "/v1/status")
	if started, err := time.Parse(time.RFC3339Nano, s["started_at"].(string)); err != nil || time.Since(started) < 0 || s["uptime_seconds"].(float64) < 0 {
		t.Errorf("started %v, up %v", s["started_at"], s["uptime_seconds"])
	}
	delete(s, "started_at")
	delete(s, "uptime_seconds")
	got, _ := json.Marshal(s)
	expect(t, "status", string(got), `{"listeners":{"grpc":"a:1"},"log_level":"info","rules":{"digest":"d1","envoy_domains":1,"files":["a"],`+
		`"last_error":{"message":"x","time":"2026-01-02T03:04:05Z"},"loaded_at":"2026-01-02T03:04:05Z","sluice_rules":3},`+
		`"store":{"breaker_history":[{"breaker":"open","error":"refused","server":"a:1","shard":0,"time":"2026-01-02T03:04:05Z"}],"error":"no",`+
		`"instances":2,"kind":"redis","servers":[{"address":"a:1","breaker":"open","error":"refused","shard":0,"since":"2026-01-02T03:04:05Z","up":false}],"up":false},"suspended":["user"],"unready":"","version":"v1"}`)
	if got := newOffice(t, memstore.New()).ask("GET", "/v1/status", "").body; !strings.Contains(got, `"suspended":[]`) ||
		!strings.Contains(got, `"servers":[]`) || !strings.Contains(got, `"files":[]`) || !strings.Contains(got, `"last_error":null`) || !strings.Contains(got, `"breaker_history":[]`) {
		t.Errorf("an empty list is not written as []: %s", got)
	}
}

func TestRules(t *testing.T) {
	o := newOffice(t, memstore.New(), func(c *adminapi.Config) {
		c.Counts = func() map[string]adminmsg.Counts {
			return map[string]adminmsg.Counts{"user": {Allowed: 8, Denied: 2, ShadowDenied: 3, NearLimit: 4}, "user#2": {Allowed: 10, ShadowDenied: 1, NearLimit: 5}, "messaging/message_type": {Allowed: 5, Denied: 6, ShadowDenied: 7, NearLimit: 8}}
		}
		at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		c.Verdicts = func() map[string]adminmsg.Verdict {
			return map[string]adminmsg.Verdict{
				"user": {
					Kind: "too_strict", Limit: "user#2", Since: at, Text: "t", Evidence: []string{"e"}, Confidence: "high", NeedsChange: true,
					Advice: &adminmsg.Advice{Text: "a", Rate: "9/day", Burst: 8, Algorithm: "token_bucket", Limit: "{rate: 9/day, burst: 8}"},
				},
				"token": {Kind: "fits", Limit: "token", Since: at, Confidence: "low"},
			}
		}
	})
	o.limiter.Suspend("pair")
	tree := o.get(200, "/v1/rules")
	var got []string
	for _, x := range tree["rules"].([]any) {
		b, _ := json.Marshal(x)
		got = append(got, string(b))
	}
	none := `"allowed":0,"denied":0,`
	zero := `"near_limit":0,"on_failure":"local",`
	for i, want := range []string{
		`{"accuracy":"exact","allowed":8,"denied":2,"file":"rules.yaml","format":"sluice","limits":[` +
			`{"algorithm":"token_bucket","bucket":"user","burst":2,"count":2,"limit":"2/h","window_seconds":3600},` +
			`{"algorithm":"token_bucket","bucket":"user#2","burst":5,"count":5,"limit":"5/day","window_seconds":86400}],` +
			`"line":5,"name":"user","near_limit":5,"on_failure":"local","per":["header:X-User"],"shadow":false,"shadow_denied":3,"suspended":false,` +
			`"verdict":{"advice":{"algorithm":"token_bucket","burst":8,"limit":"{rate: 9/day, burst: 8}","rate":"9/day","text":"a"},"confidence":"high",` +
			`"evidence":["e"],"kind":"too_strict","limit":"user#2","needs_change":true,"since":"2026-01-02T03:04:05Z","text":"t"}}`,
		`{"accuracy":"exact",` + none + `"file":"rules.yaml","format":"sluice","limits":[{"algorithm":"token_bucket","bucket":"token","burst":3,"count":3,"limit":"3/h","window_seconds":3600}],` +
			`"line":6,"name":"token",` + zero + `"per":["token"],"shadow":true,"shadow_denied":0,"suspended":false,` +
			`"verdict":{"advice":null,"confidence":"low","evidence":[],"kind":"fits","limit":"token","needs_change":false,"since":"2026-01-02T03:04:05Z","text":""}}`,
		`{"accuracy":"exact",` + none + `"file":"rules.yaml","format":"sluice","limits":[{"algorithm":"token_bucket","bucket":"pair","burst":4,"count":4,"limit":"4/h","window_seconds":3600}],` +
			`"line":7,"name":"pair","near_limit":0,"on_failure":"closed","per":["path:id","ip"],"shadow":false,"shadow_denied":0,"suspended":true}`,
		`{"accuracy":"exact","allowed":5,"denied":6,"file":"domain.yaml","format":"envoy","limits":[{"algorithm":"fixed_window","bucket":"messaging/message_type","burst":2,"count":2,"limit":"2/h fixed_window","window_seconds":3600}],` +
			`"line":4,"name":"messaging/message_type","near_limit":8,"on_failure":"local","per":["message_type"],"shadow":false,"shadow_denied":7,"suspended":false}`,
		`{"accuracy":"exact",` + none + `"file":"domain.yaml","format":"envoy","limits":[{"algorithm":"fixed_window","bucket":"messaging/message_type/to_number","burst":7,"count":7,"limit":"7/day fixed_window","window_seconds":86400}],` +
			`"line":7,"name":"messaging/message_type/to_number",` + zero + `"per":["message_type","to_number"],"shadow":false,"shadow_denied":0,"suspended":false}`,
	} {
		if i >= len(got) || got[i] != want {
			t.Errorf("rule %d is\n     %s\nwant %s", i, got[min(i, len(got)-1)], want)
		}
	}
	if len(got) != 5 || tree["digest"] != "d1" {
		t.Errorf("%d rules, digest %v", len(got), tree["digest"])
	}
}

// Explain shows the remaining quota in the shared store and charges nothing.
func TestExplain(t *testing.T) {
	o := newOffice(t, memstore.New())
	const request = `{"request":{"method":"POST","url":"http://h/posts?x=1","headers":{"X-User":"ada"}}`
	explain := func(body, outcome, reason string) map[string]any {
		t.Helper()
		tree := o.post(200, "/v1/explain", body)
		expect(t, "outcome of "+body, fmt.Sprintf("%v: %v", tree["outcome"], tree["reason"]), outcome+": "+reason)
		return tree
	}
	for range 3 {
		explain(request+"}", "allowed", "user has 1 of 2 left afterwards")
	}
	tree := explain(request+`,"cost":3}`, "denied", "the cost of 3 exceeds the limit of user, which is 2 at once")
	if tree["request"] != "POST h/posts" || len(tree["rules"].([]any)) != 4 {
		t.Errorf("explained: %v", tree)
	}
	o.spend("user", 1, "header:X-User", "ada")
	explain(request+"}", "allowed", "user has 0 of 2 left afterwards")
	explain(request+`,"cost":2}`, "denied", "user has 1 of 2 left, and the request costs 2")
	o.spend("user", 1, "header:X-User", "ada")
	tree = o.post(200, "/v1/explain", request+"}")
	if why := tree["reason"].(string); tree["outcome"] != "denied" || !strings.HasPrefix(why, "user has 0 of 2 left, retry after ") {
		t.Errorf("%v: %s", tree["outcome"], why)
	}
	o.limiter.Suspend("user")
	explain(request+"}", "allowed", "user is suspended, all requests are allowed; user#2 is suspended")
	o.spend("token", 3, "token", "t")
	explain(`{"request":{"path":"/jobs","headers":{"X-Token":"t"}}}`, "allowed", "token has 0 of 3 left afterwards; token is in shadow mode and would have denied the request")
	explain(`{"request":{"path":"/jobs","headers":{"X-Token":"u"}},"cost":4}`, "allowed", "token has 3 of 3 left afterwards; token is in shadow mode and would have denied the request")
	explain(`{"request":{"path":"/nothing"}}`, "unlimited", "no rule matches")
	const sms = `{"domain":"messaging","descriptors":[[{"key":"message_type","value":"sms"}]]`
	explain(sms+"}", "allowed", "messaging/message_type has 1 of 2 left afterwards")
	explain(sms+`,"cost":2}`, "allowed", "messaging/message_type has 0 of 2 left afterwards")
	explain(`{"domain":"nobody","descriptors":[]}`, "unlimited", `there is no domain "nobody"; the rules define messaging`)
	for body, want := range map[string]string{
		`{}`: "write", `{"request":{"path":"/"},"domain":"d"}`: "write", `{"request":{"path":"/"},"descriptors":[]}`: "write",
		`{"request":{"path":"/"},"cost":-1}`: "cost -1", `{"request":{"path":"x"}}`: "slash",
		`{"request":{"path":"/","headers":{"a":"\u0001"}}}`: "not a valid HTTP request",
	} {
		if got := o.post(400, "/v1/explain", body)["detail"].(string); !strings.Contains(got, want) {
			t.Errorf("%s: %s", body, got)
		}
	}
}

func TestKillSwitch(t *testing.T) {
	o := newOffice(t, memstore.New())
	names := func(tree map[string]any) string { return fmt.Sprint(tree["suspended"]) }
	o.spend("user", 2, "header:X-User", "ada")
	expect(t, "suspended", names(o.post(200, "/v1/suspend", `{"rules":["user","messaging/message_type"]}`)), "[messaging/message_type user]")
	expect(t, "peek", states(o.post(200, "/v1/peek", `{"rule":"user#2","key":{"header:X-User":"ada"}}`)), `user#2 {"header:X-User":"ada"} 0/5 suspended`)
	for body, status := range map[string]int{`{"rules":["nobody"]}`: 404, `{"rules":["pair","nobody"]}`: 404, `{"rules":["user#2"]}`: 404, `{"rules":[]}`: 400, `{}`: 400, `{"rules":"user"}`: 400} {
		o.post(status, "/v1/suspend", body)
	}
	expect(t, "invalid requests change nothing", fmt.Sprint(o.limiter.SuspendedRules()), "[messaging/message_type user]")
	expect(t, "resumed", names(o.post(200, "/v1/resume", `{"rules":["user","pair"]}`)), "[messaging/message_type]")
	o.limiter.Suspend("gone-meanwhile")
	expect(t, "resumed", names(o.post(200, "/v1/resume", `{"rules":["gone-meanwhile","messaging/message_type"]}`)), "[]")
}

func TestLogLevel(t *testing.T) {
	o := newOffice(t, memstore.New())
	for _, level := range []string{"debug", "warn", "error", "info"} {
		if got := o.ask("PUT", "/v1/log-level", `{"level":"`+level+`"}`); got.status != 200 || got.body != `{"level":"`+level+"\"}\n" || strings.ToLower(o.level.Level().String()) != level {
			t.Errorf("%s: %d %s, and it is %v", level, got.status, got.body, o.level)
		}
	}
	for _, level := range []string{"", "DEBUG", "all"} {
		if got := o.ask("PUT", "/v1/log-level", `{"level":"`+level+`"}`); got.status != 400 || o.level.Level() != slog.LevelInfo {
			t.Errorf("%s: %d, and it is %v", level, got.status, o.level)
		}
	}
	if got := o.ask("POST", "/v1/log-level", `{"level":"debug"}`); got.status != 405 || got.header.Get("Allow") != "PUT" {
		t.Errorf("POST: %d, %v", got.status, got.header)
	}
	if got := o.post(409, "/v1/reload", "{}")["detail"].(string); !strings.Contains(got, "rules.paths") {
		t.Errorf("reload without files: %s", got)
	}
	o.get(404, "/v1/nothing")
	if got := o.ask("HEAD", "/v1/status", ""); got.status != 200 || got.body != "" {
		t.Errorf("HEAD: %d %s", got.status, got.body)
	}
}

// busy configures top keys and counts.
func busy(t testing.TB, counts func() map[string]adminmsg.Counts) func(*adminapi.Config) {
	buckets, err := testSet(t).Buckets("user", []rules.KeyPart{{Name: "header:X-User", Value: "ada\n"}})
	if err != nil {
		t.Fatal(err)
	}
	entries := []adminapi.Top{{Rule: "user#2", Key: buckets[0].Key, Count: 9, Error: 2}, {Rule: "gone", Key: "k", Count: 1}}
	return func(c *adminapi.Config) {
		c.Denied = func(n int) []adminapi.Top { return entries[:min(n, 2)] }
		c.Near = func(n int) []adminapi.Top { return entries[1:] }
		c.Counts = counts
	}
}

func TestTop(t *testing.T) {
	o := newOffice(t, memstore.New(), busy(t, nil))
	for query, want := range map[string]string{
		"":                   `[{"count":9,"key":{"header:X-User":"\"ada\\n\""},"max_error":2,"rule":"user#2"},{"count":1,"key":{"key":"\"k\""},"max_error":0,"rule":"gone"}]`,
		"?by=denied&limit=1": `[{"count":9,"key":{"header:X-User":"\"ada\\n\""},"max_error":2,"rule":"user#2"}]`,
		"?by=near_limit":     `[{"count":1,"key":{"key":"\"k\""},"max_error":0,"rule":"gone"}]`,
	} {
		tree := o.get(200, "/v1/top"+query)
		got, _ := json.Marshal(tree["entries"])
		expect(t, query, string(got), want)
		if _, err := time.Parse(time.RFC3339Nano, tree["since"].(string)); err != nil {
			t.Error(err)
		}
	}
	for _, query := range []string{"?by=x", "?limit=0", "?limit=x", "?limit=1001"} {
		o.get(400, "/v1/top"+query)
	}
	expect(t, "without top keys", fmt.Sprint(newOffice(t, memstore.New()).get(200, "/v1/top?by=near_limit")["entries"]), "[]")
}

// A watch gets the decisions of each interval until it or the service ends.
func TestWatch(t *testing.T) {
	var n int64
	ending := make(chan struct{})
	o := newOffice(t, memstore.New(), busy(t, func() map[string]adminmsg.Counts {
		n++ // one watch
		return map[string]adminmsg.Counts{"user": {Allowed: 10 * n, Denied: n}, "user#2": {Allowed: 11 * n, ShadowDenied: n, NearLimit: n}, "pair": {Allowed: 7}}
	}), func(c *adminapi.Config) { c.Ending = ending })
	r, err := http.NewRequestWithContext(t.Context(), "GET", o.server.URL+"/v1/watch?interval=100ms", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := o.server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("Content-Type is %s", got)
	}
	lines := bufio.NewScanner(resp.Body)
	for range 3 {
		if !lines.Scan() {
			t.Fatal("the stream ended")
		}
		var e struct {
			Time  time.Time
			Rules json.RawMessage
			Top   []any
		}
		text, ok := strings.CutPrefix(lines.Text(), "data: ")
		if err := json.Unmarshal([]byte(text), &e); err != nil || !ok || e.Time.IsZero() || len(e.Top) != 2 {
			t.Fatalf("%v: %s", err, lines.Text())
		}
		if c, err := theContract(); err != nil {
			t.Error(err)
		} else if err := c.check("/components/schemas/Event", text); err != nil {
			t.Error(err)
		}
		expect(t, "rules", string(e.Rules), `[{"name":"user","allowed":10,"denied":1,"shadow_denied":1,"near_limit":1}]`)
		if lines.Scan(); lines.Text() != "" {
			t.Errorf("an event ends with %s", lines.Text())
		}
	}
	for _, interval := range []string{"1ms", "2m", "x", "-1s"} {
		o.get(400, "/v1/watch?interval="+interval)
	}
	close(ending)
	for lines.Scan() { // to the end
	}
	if err := lines.Err(); err != nil {
		t.Error(err)
	}
}

// The number of watches is limited, because each occupies a connection and CPU time.
func TestWatchers(t *testing.T) {
	o := newOffice(t, memstore.New())
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for range 16 {
		r, err := http.NewRequestWithContext(ctx, "GET", o.server.URL+"/v1/watch?interval=1m", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := o.server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
	}
	o.get(503, "/v1/watch")
	leave()
	for o.ask("GET", "/v1/watch?interval=x", "").status != 400 { // an invalid interval does not count as a watch
		t.Fatal("it counts")
	}
	for { // the watches have ended when a new one is accepted
		ctx, leave := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, "GET", o.server.URL+"/v1/watch?interval=1m", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := o.server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		leave()
		resp.Body.Close()
		if resp.StatusCode == 200 {
			return
		}
	}
}

// Peeks and explanations are not counted as decisions.
func TestLookingCountsNothing(t *testing.T) {
	decided := 0
	store := memstore.New()
	o := newOffice(t, store, func(c *adminapi.Config) {
		var err error
		c.Limiter, err = sluice.NewWithRules(store, nil, sluice.WithEvents(sluice.Events{
			OnDecision: func(context.Context, sluice.Take, sluice.Decision) { decided++ },
		}))
		if err != nil {
			t.Fatal(err)
		}
	})
	o.post(200, "/v1/peek", `{"rule":"user","key":{"header:X-User":"ada"}}`)
	o.post(200, "/v1/explain", `{"request":{"path":"/posts","headers":{"X-User":"ada"}}}`)
	o.post(200, "/v1/block", `{"rule":"user","key":{"header:X-User":"ada"},"duration":"1h"}`)
	o.post(200, "/v1/peek", `{"rule":"user","key":{"header:X-User":"ada"}}`)
	if decided != 0 || store.Len() != 0 {
		t.Errorf("%d decisions, %d keys in the store", decided, store.Len())
	}
}
