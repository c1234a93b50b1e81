package checkapi_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/edge/checkapi"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/rules"
)

// allKinds are rules that read every kind of field.
const allKinds = `
attributes:
  user: [{header: X-User}, {query: user}]
rules:
  - {name: method, per: [method], limit: 1/s}
  - {name: host, per: [host], limit: 1/s}
  - {name: path, per: [path], limit: 1/s}
  - {name: segment, match: {path: "/users/{id}/*"}, per: ["path:id"], limit: 1/s}
  - {name: header, per: ["header:X-User"], limit: 1/s}
  - {name: host-header, per: ["header:Host"], limit: 1/s}
  - {name: long-header, per: ["header:X-A-B"], limit: 1/s}
  - {name: query, per: ["query:user"], limit: 1/s}
  - {name: cookie, per: ["cookie:sid"], limit: 1/s}
  - {name: claim, per: ["claim:sub"], limit: 1/s}
  - {name: basic, per: [basic_user], limit: 1/s}
  - {name: attr, per: ["attr:region"], limit: 1/s}
  - {name: ip, per: [ip], limit: 1/s}
  - {name: declared, per: [user], limit: 1/s}
  - {name: both, per: [ip, "header:X-User"], limit: 1/s}
`

// drawn is a request as HTTP and as a check.
type drawn struct {
	http *http.Request
	body string
}

// pick draws one of several values.
func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func draw(r *rand.Rand) drawn {
	method := pick(r, "GET", "POST", "get", "OPTIONS")
	path := pick(r, "/", "/users/7/posts", "/a//b", "/a/../b", "/a%20b", "/caf%C3%A9", "/a;v=1", "/a%3Bv", "/a%2Fb", "/../x", "/%E2%80%A6", "/a/.", "/ÿ")
	host := pick(r, "example.com", "EXAMPLE.com:8080", "[::1]:80")
	attributes := map[string]any{"method": method, "path": path, "host": host}
	q := httptest.NewRequest(http.MethodGet, "/", nil)
	q.Method, q.Host = method, host
	q.URL = &url.URL{Path: path, RawPath: path}
	if unescaped, err := url.PathUnescape(path); err == nil {
		q.URL.Path = unescaped
	}
	ip := pick(r, "192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1", "2002::1")
	attributes["ip"], q.RemoteAddr = ip, "["+ip+"]:1234"
	if !strings.Contains(ip, ":") {
		q.RemoteAddr = ip + ":1234"
	}
	headers := map[string]any{}
	q.Header = http.Header{}
	for range r.IntN(4) {
		name := pick(r, "X-User", "x-user", "X_User", "X-USER", "X-A-B", "x-a_b", "X_A_B", "Authorization", "Cookie", "Accept")
		if headers[name] != nil {
			continue
		}
		value := pick(r, "ada", "bob", "", "Basic YWRhOnNlY3JldA==", "Basic !", "sid=1; sid=2", "a=b; sid=\"3\"", "SID=%33", "sid= 3 ; a=1")
		if r.IntN(6) == 0 {
			headers[name] = []string{value, "other"}
			q.Header.Add(name, "")
			q.Header[http.CanonicalHeaderKey(name)] = append(q.Header[http.CanonicalHeaderKey(name)][:len(q.Header[http.CanonicalHeaderKey(name)])-1], value, "other")
			continue
		}
		headers[name] = pick(r, "", " ", "\t") + value
		q.Header.Add(name, value)
	}
	attributes["headers"] = headers
	query := url.Values{}
	for range r.IntN(3) {
		query.Add(pick(r, "user", "User", "user[]", "x"), pick(r, "ada", "bé&=%", ""))
	}
	attributes["query"], q.URL.RawQuery = query, query.Encode()
	ctx := q.Context()
	if r.IntN(2) == 0 {
		claims := map[string]string{pick(r, "sub", "x"): pick(r, "ada", "\x00-")}
		attributes["claims"], ctx = claims, httplimit.ContextWithClaims(ctx, claims)
	}
	if r.IntN(2) == 0 {
		own := map[string]string{pick(r, "region", "x"): pick(r, "eu", "")}
		attributes["attributes"], ctx = own, httplimit.ContextWithAttributes(ctx, own)
	}
	b, _ := json.Marshal(map[string]any{"attributes": attributes}) // never fails: maps and strings
	return drawn{q.WithContext(ctx), string(b)}
}

// matched formats the result of matching a request.
func matched(set *rules.Set, r rules.Request) string {
	var m rules.MatchResult
	if err := set.Match(r, &m); err != nil {
		return err.Error()
	}
	var b strings.Builder
	for i := range m.Takes {
		fmt.Fprintf(&b, "%s %q\n", m.Takes[i].Rule.Name, m.Takes[i].Key)
	}
	return b.String()
}

// A request matches the same rules and keys in the middleware and in a check.
func TestRequestAgreesWithMiddleware(t *testing.T) {
	// One rule at a time, so that an ambiguous attribute of one does not hide the others.
	var sets []*rules.Set
	head, list, _ := strings.Cut(allKinds, "rules:\n")
	for line := range strings.Lines(list) {
		sets = append(sets, parseRules(t, head+"rules:\n"+line))
	}
	r := rand.New(rand.NewPCG(1, 2))
	n := 500
	if os.Getenv("SLUICE_SOAK") != "" {
		n = 10_000
	}
	for range n {
		d := draw(r)
		got, err := checkapi.ParseRequest([]byte(d.body))
		if err != nil {
			t.Fatalf("%v\n%s", err, d.body)
		}
		for _, set := range sets {
			want := matched(set, httplimit.NewRulesRequest(d.http, set))
			if got := matched(set, got); got != want {
				t.Fatalf("rule %s\n%s\nmatches as %s\nand in the middleware as %s", set.Config().Rules[0].Name, d.body, got, want)
			}
		}
	}
}

// Different spellings of a cookie value get the same key, in the header and in the cookies field.
func TestCookieSpellings(t *testing.T) {
	set := parseRules(t, "rules:\n  - {name: cookie, per: [\"cookie:sid\"], limit: 1/s}\n")
	of := func(attributes map[string]any) string {
		body, _ := json.Marshal(map[string]any{"attributes": attributes}) // never fails: maps and strings
		r, err := checkapi.ParseRequest(body)
		if err != nil {
			t.Fatal(err)
		}
		return matched(set, r)
	}
	want := of(map[string]any{"cookies": map[string]string{"sid": "abc"}})
	for _, value := range []string{"abc", "%61bc", " abc", "abc ", "\tabc", `"abc"`, `"%61bc"`, "%61%62%63", "abc%20"} {
		for _, name := range []string{"sid", "SID"} {
			if got := of(map[string]any{"cookies": map[string]string{name: value}}); got != want {
				t.Errorf("cookie %s=%s counts as %s, want %s", name, value, got, want)
			}
			if got := of(map[string]any{"headers": map[string]string{"Cookie": name + "=" + value}}); got != want {
				t.Errorf("header %s=%s counts as %s, want %s", name, value, got, want)
			}
		}
	}
}

// Attributes that only checks can have.
func TestRequestAlone(t *testing.T) {
	set := parseRules(t, allKinds)
	for _, tt := range []struct{ attributes, want string }{
		{`"headers":{"Host":"A.example"}`, "host-header \"a.example\""},
		{`"headers":{"host":"a.example"},"host":"A.EXAMPLE"`, "host \"a.example\""},
		{`"headers":{"Host":"b.example"},"host":"a.example"`, "given more than once or may be read differently: host"},
		{`"headers":{"Host":["a.example","a.example"]}`, "host \"a.example\""},
		{`"cookies":{"sid":"1"},"headers":{"Cookie":"sid=2"}`, "cookie \"\\x00#"},
		{`"cookies":{"sid":["1","2"]}`, "given more than once or may be read differently: cookie:sid"},
		{`"cookies":{"sid":"100%"}`, "given more than once or may be read differently: cookie:sid"},
		{`"cookies":{"sid":"1","SID":"2"}`, "given more than once or may be read differently: cookie:sid"},
		{`"cookies":{"%73id":"1"}`, "given more than once or may be read differently: cookie:sid"},
		{`"query":{"user[]":"1"}`, "given more than once or may be read differently: query:user"},
		{`"cookies":{},"headers":{"Cookie":"sid=2"}`, "cookie \"\\x00-\""},
		{``, "method \"\\x00-\"\nhost \"\\x00-\"\npath \"\\x00-\"\nheader \"\\x00-\""},
	} {
		r, err := checkapi.ParseRequest([]byte(`{"attributes":{` + tt.attributes + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := matched(set, r); !strings.Contains(got, tt.want) {
			t.Errorf("%s counts as\n%s\nwant %s", tt.attributes, got, tt.want)
		}
	}
}
