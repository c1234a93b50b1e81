package adminapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminapi"
	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/memcachestore"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/redisstore"
)

func openRedis(t *testing.T) sluice.Store {
	s, err := redisstore.Open(redisstore.Config{URL: redistest.Shared(t).URL(), KeyPrefix: t.Name() + ":"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func openMemcached(t *testing.T) sluice.Store {
	s, err := memcachestore.Open(memcachestore.Config{Addrs: []string{memcachetest.Start(t).Addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

var stores = []struct {
	name  string
	open  func(*testing.T) sluice.Store
	lists bool
}{
	{"memory", func(*testing.T) sluice.Store { return memstore.New() }, false},
	{"redis", openRedis, true},
	{"memcached", openMemcached, false},
}

// Peek, reset, block and unblock work with every store.
func TestBuckets(t *testing.T) {
	for _, s := range stores {
		t.Run(s.name, func(t *testing.T) {
			o := newOffice(t, s.open(t))
			const user = `{"rule":"user","key":{"header:X-User":"ada"}`
			const both = `user {"header:X-User":"ada"} %, user#2 {"header:X-User":"ada"} %`
			expectBoth := func(what, first, second string) {
				t.Helper()
				want := strings.Replace(strings.Replace(both, "%", first, 1), "%", second, 1)
				expect(t, what, states(o.post(200, "/v1/peek", user+"}")), want)
			}
			expectBoth("before", "2/2 store", "5/5 store")
			o.spend("user", 2, "header:X-User", "ada")
			expectBoth("spent", "0/2 store denied", "3/5 store")
			expect(t, "reset", states(o.post(200, "/v1/reset", user+"}")), `user {"header:X-User":"ada"}, user#2 {"header:X-User":"ada"}`)
			expectBoth("reset", "2/2 store", "5/5 store")

			before := time.Now().Truncate(time.Second)
			blocked := o.post(200, "/v1/block", user+`,"duration":"10m"}`)
			until, err := time.Parse(time.RFC3339, blocked["until"].(string))
			if err != nil || until.Before(before.Add(10*time.Minute)) || until.After(time.Now().Add(10*time.Minute)) {
				t.Errorf("blocked until %v, %v", blocked["until"], err)
			}
			expectBoth("blocked", "0/2 store denied blocked", "0/5 store denied blocked")
			if lifted := o.post(200, "/v1/block", user+`,"duration":"0s"}`); lifted["until"] != nil {
				t.Errorf("lifted, but blocked until %v", lifted["until"])
			}
			expectBoth("lifted", "2/2 store", "5/5 store")
			o.post(200, "/v1/block", `{"rule":"user#2","key":{"header:X-User":"ada"},"duration":"1h"}`)
			expectBoth("one of two blocked", "2/2 store", "0/5 store denied blocked")

			o.spend("messaging/message_type/to_number", 7, "message_type", "sms", "to_number", "1")
			for _, selector := range []string{
				`{"domain":"messaging","descriptor":[{"key":"message_type","value":"sms"},{"key":"to_number","value":"1"}]}`,
				`{"rule":"messaging/message_type/to_number","key":{"to_number":"1","message_type":"sms"}}`,
			} {
				expect(t, selector, states(o.post(200, "/v1/peek", selector)), `messaging/message_type/to_number {"message_type":"sms","to_number":"1"} 0/7 store denied`)
			}
			expect(t, "by request", states(o.post(200, "/v1/peek", `{"request":{"path":"/users/7","ip":"2001:db8::1"}}`)), `pair {"ip":"2001:db8::/64","path:id":"7"} 4/4 store`)
			expect(t, "shadow", states(o.post(200, "/v1/peek", `{"request":{"method":"POST","url":"http://h/jobs","headers":{"X-Token":"s3cr3t"}}}`)),
				`token {"token":"~4fc21e81d5af486e426683df3caffe4e"} 3/3 store`)
			o.keys(s.lists)
		})
	}
}

// keys checks the list of stored keys, for stores that can list them.
func (o *office) keys(lists bool) {
	t := o.t
	t.Helper()
	if !lists {
		if p := o.get(http.StatusNotImplemented, "/v1/keys"); !strings.Contains(p["detail"].(string), "/v1/top") {
			t.Errorf("no advice: %v", p["detail"])
		}
		return
	}
	o.spend("user", 1, "header:X-User", "eve\n")
	seen := map[string]bool{}
	for _, bad := range []string{"x", "1/x", "-1/0"} {
		if detail := o.get(400, "/v1/keys?rule=user&page_token="+bad)["detail"].(string); !strings.HasPrefix(detail, fmt.Sprintf("page_token: %q is not a next_page_token", bad)) ||
			strings.Contains(detail, "PageToken") || strings.Contains(detail, "store:") {
			t.Errorf("page_token=%s: %s", bad, detail)
		}
	}
	after := ""
	for range 100 {
		page := o.get(200, "/v1/keys?limit=1&rule=user&page_token="+after)
		for _, x := range page["keys"].([]any) {
			k := x.(map[string]any)
			if k["key"] != nil {
				seen[k["rule"].(string)+" "+k["key"].(map[string]any)["header:X-User"].(string)] = true
			}
		}
		if after = page["next_page_token"].(string); after == "" {
			break
		}
	}
	if !seen["user ada"] && !seen["user#2 ada"] {
		t.Errorf("listed are %v", seen)
	}
	o.get(http.StatusNotFound, "/v1/keys?rule=nobody")
	o.get(http.StatusBadRequest, "/v1/keys?limit=0")
	o.get(http.StatusBadRequest, "/v1/keys?limit=1001")
	if page := o.get(200, "/v1/keys"); len(page["keys"].([]any)) == 0 {
		t.Error("no keys are listed without a rule")
	}
}

// Invalid selectors are rejected, with a hint how to write them.
func TestSelectorsTeach(t *testing.T) {
	o := newOffice(t, memstore.New())
	for _, tt := range []struct {
		body   string
		status int
		want   string
	}{
		{`{}`, 400, "write exactly one selector"},
		{`{"rule":"user","domain":"d"}`, 400, "write exactly one selector"},
		{`{"key":{"a":"b"}}`, 400, "write exactly one selector"},
		{`{"request":{"path":"/"},"descriptor":[]}`, 400, "write exactly one selector"},
		{`{"rule":"usr","key":{}}`, 404, `did you mean "user"?`},
		{`{"rule":"off"}`, 404, `"off" is not enabled`},
		{`{"rule":"user","key":{}}`, 400, "the rule counts per header:X-User"},
		{`{"rule":"user","key":{"header:X-User":7}}`, 400, "is not a string"},
		{`{"rule":"user","key":["a"]}`, 400, "write an object whose values are strings"},
		{`{"rule":"user","keys":{}}`, 400, `unknown field "keys"`},
		{`{"rule":"user"} {}`, 400, "unexpected data after the object"},
		{`{"rule":"user"`, 400, "the body ends at byte 14"},
		{`[]`, 400, "found a list at byte 0: write an object"},
		{"{\"rule\":\"\xff\"}", 400, "not UTF-8"},
		{" ", 400, "the body is empty"},
		{`{"domain":"nobody","descriptor":[{"key":"a","value":"b"}]}`, 404, `there is no domain "nobody"`},
		{`{"domain":"messaging","descriptor":[{"key":"free","value":"b"}]}`, 404, "is unlimited"},
		{`{"request":{}}`, 400, `write a path, such as "/posts"`},
		{`{"request":{"path":"/a","url":"http://h/a"}}`, 400, `write a path`},
		{`{"request":{"path":"posts"}}`, 400, "does not begin with a slash"},
		{`{"request":{"path":"/posts","method":"G T"}}`, 400, "is not a method"},
		{`{"request":{"path":"/posts","ip":"me"}}`, 400, `ip "me": write an address`},
		{`{"request":{"path":"/posts","headers":{"a b":"c"}}}`, 400, "is not a header name"},
		{`{"request":{"path":"/posts","headers":{"a":"c\nd"}}}`, 400, "contains a line break"},
		{`{"request":{"path":"/nothing"}}`, 404, "POST /v1/explain shows the reason"},
		{`{"request":{"path":"/a%2Fb"}}`, 400, "escaped slash"},
		{`{"rule":"user","key":{"header:X-User":"` + strings.Repeat("x", 70_000) + `"}}`, 413, "body larger than 65536 bytes"},
	} {
		for _, path := range []string{"/v1/peek", "/v1/reset", "/v1/block"} {
			body := tt.body
			if path == "/v1/block" && strings.HasSuffix(body, "}") && body != "{}" && !strings.HasSuffix(body, "} {}") {
				body = strings.TrimSuffix(body, "}") + `,"duration":"1m"}`
			}
			if got := o.post(tt.status, path, body)["detail"].(string); !strings.Contains(got, tt.want) {
				t.Errorf("%s %.100s: %s, want %s", path, tt.body, got, tt.want)
			}
		}
	}
	for _, length := range []string{"", "soon", "-1s", "10000h", "5"} {
		body := `{"rule":"user","key":{"header:X-User":"a"},"duration":"` + length + `"}`
		if got := o.post(400, "/v1/block", body)["detail"].(string); !strings.Contains(got, `"10m"`) {
			t.Errorf("duration %q: %s", length, got)
		}
	}
	expect(t, "nothing came of it", states(o.post(200, "/v1/peek", `{"rule":"user","key":{"header:X-User":"a"}}`)),
		`user {"header:X-User":"a"} 2/2 store, user#2 {"header:X-User":"a"} 5/5 store`)
}

// With an unavailable store the response is 503, and no change is reported.
func TestStoreAway(t *testing.T) {
	server := redistest.Start(t)
	s, err := redisstore.Open(redisstore.Config{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	o := newOffice(t, s)
	o.post(200, "/v1/reset", `{"rule":"user","key":{"header:X-User":"a"}}`)
	server.Kill()
	for _, call := range []string{"reset", "block"} {
		body := `{"rule":"user","key":{"header:X-User":"a"}}`
		if call == "block" {
			body = `{"rule":"user","key":{"header:X-User":"a"},"duration":"1m"}`
		}
		if p := o.post(http.StatusServiceUnavailable, "/v1/"+call, body); !strings.Contains(p["detail"].(string), "store unavailable, changes are not confirmed") {
			t.Errorf("%s: %v", call, p["detail"])
		}
	}
	lines := o.log.lines()
	if last := lines[len(lines)-1]; !strings.Contains(last, "action=block") || !strings.Contains(last, "store unavailable, changes are not confirmed") || strings.Contains(last, "outcome=done") {
		t.Errorf("the log has %s", last)
	}
	expect(t, "what decides", states(o.post(200, "/v1/peek", `{"rule":"pair","key":{"path:id":"7","ip":"192.0.2.1"}}`)),
		`pair {"ip":"192.0.2.1","path:id":"7"} 0/4 closed denied`)
	if why := o.post(200, "/v1/explain", `{"request":{"path":"/users/7","ip":"192.0.2.1"}}`)["reason"].(string); !strings.Contains(why, "store unavailable") {
		t.Errorf("explain says %s", why)
	}
}

// The key of a rule that is in no file is one string, plain or quoted as in /v1/top.
func TestKeyedRules(t *testing.T) {
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "resp", Limit: sluice.PerHour(5)}))
	o := newOffice(t, memstore.New(), func(c *adminapi.Config) { c.Keyed = []*sluice.Rule{rule} })
	take := sluice.Take{Rule: rule, Key: "a\n", Cost: 2}
	if _, err := o.limiter.Decide(t.Context(), []sluice.Take{take}, make([]sluice.Decision, 1)); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{`a\n`, `\"a\\n\"`} {
		expect(t, key, states(o.post(200, "/v1/peek", `{"rule":"resp","key":{"key":"`+key+`"}}`)), `resp {"key":"\"a\\n\""} 3/5 store`)
	}
	o.post(400, "/v1/peek", `{"rule":"resp","key":{"k":"a"}}`)
	o.post(200, "/v1/reset", `{"rule":"resp","key":{"key":"a\n"}}`)
	expect(t, "reset", states(o.post(200, "/v1/peek", `{"rule":"resp","key":{"key":"a\n"}}`)), `resp {"key":"\"a\\n\""} 5/5 store`)
}
