package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/rules"
)

// ruleSet compiles a valid configuration.
func ruleSet(c rules.Config) *rules.Set { return sluice.Must(rules.New(c)) }

func refs(names ...string) (all []rules.Ref) {
	for _, n := range names {
		all = append(all, rules.Ref{Name: n})
	}
	return all
}

// where returns the conditions for pairs of attribute and value; the values of "path" are patterns.
func where(pairs ...string) (m rules.Match) {
	for i := 0; i < len(pairs); i += 2 {
		p := rules.Predicate{Ref: rules.Ref{Name: pairs[i]}, Values: pairs[i+1 : i+2]}
		if pairs[i] == "path" {
			p.Values, p.Patterns = nil, p.Values
		}
		m.Predicates = append(m.Predicates, p)
	}
	return m
}

func limits(all ...sluice.Limit) (ls []rules.Limit) {
	for _, l := range all {
		ls = append(ls, rules.Limit{Limit: l})
	}
	return ls
}

func withContext(ctx func(context.Context) context.Context) func(*http.Request) {
	return func(r *http.Request) { *r = *r.WithContext(ctx(r.Context())) }
}

type pairs = map[string]string

var inEU = pairs{"region": "eu"}

func claims(all pairs) func(*http.Request) {
	return withContext(func(ctx context.Context) context.Context { return httplimit.ContextWithClaims(ctx, all) })
}

func attrs(all pairs) func(*http.Request) {
	return withContext(func(ctx context.Context) context.Context { return httplimit.ContextWithAttributes(ctx, all) })
}

func host(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }

func target(path string) func(*http.Request) {
	return func(r *http.Request) {
		u, err := url.ParseRequestURI(path)
		if err != nil {
			panic(err)
		}
		r.URL = u
	}
}

var attributeCases = []struct {
	name  string
	field rules.Field
	edits []func(*http.Request)
	want  string
	found rules.Presence
}{
	{"method", methodField, nil, "GET", rules.Present},
	{"method of a request to be sent", methodField, edits(func(r *http.Request) { r.Method = "" }), "GET", rules.Present},
	{"host", hostField, edits(host("Shop.Example:80")), "Shop.Example:80", rules.Present},
	{"no host", hostField, edits(host("")), "", rules.Absent},

	{"path", pathField, edits(target("/a/b?c=d")), "/a/b", rules.Present},
	{"path with escapes", pathField, edits(target("/a%2Fb/%63")), "/a%2Fb/%63", rules.Present},
	{"path of a URL", pathField, edits(target("http://x/a")), "/a", rules.Present},
	{"path of a bare URL", pathField, edits(target("http://x")), "/", rules.Present},
	{"path like a host", pathField, edits(target("//x/a")), "//x/a", rules.Present},
	{"path with a number sign", pathField, edits(target("/a#b")), "/a%23b", rules.Present},
	{"path with parameters", pathField, edits(target("/a;b/c;d")), "/a%3Bb/c%3Bd", rules.Present},
	{"path of OPTIONS *", pathField, edits(target("*")), "*", rules.Present},
	{"path that was changed", pathField, edits(target("/x/a%2Fb"), func(r *http.Request) {
		r.URL.Path = strings.TrimPrefix(r.URL.Path, "/x") // without changing RawPath
	}), "/a/b", rules.Present},
	{"path without its prefix", pathField, edits(target("/x/a%2Fb"), func(r *http.Request) {
		http.StripPrefix("/x", http.HandlerFunc(func(_ http.ResponseWriter, r2 *http.Request) { r.URL = r2.URL })).
			ServeHTTP(httptest.NewRecorder(), r)
	}), "/a%2Fb", rules.Present},

	{"header", userField, edits(header("X-User", "ada")), "ada", rules.Present},
	{"header empty", userField, edits(header("X-User", "")), "", rules.Present},
	{"header missing", userField, nil, "", rules.Absent},
	{"header twice", userField, edits(header("X-User", "ada", "ada")), "", rules.Ambiguous},
	{"header and a variant", userField, edits(header("X-User", "ada"), header("X_user", "bob")), "", rules.Ambiguous},
	{"variant alone", userField, edits(header("X_user", "bob")), "", rules.Ambiguous},
	{"variant without a line", userField, edits(header("X_user")), "", rules.Absent},
	{
		"host header",
		rules.Field{Kind: rules.FieldHeader, Name: "Host"},
		edits(host("Shop.Example")), "shop.example", rules.Present,
	},

	{"query", idField, edits(query("a=1&id=7%20b&c")), "7 b", rules.Present},
	{"query empty", idField, edits(query("id")), "", rules.Present},
	{"query missing", idField, edits(query("idx=7&xid=8")), "", rules.Absent},
	{"query in another case", idField, edits(query("ID=7&xid=8")), "7", rules.Present},
	{"query twice", idField, edits(query("id=7&i%64=7")), "", rules.Ambiguous},
	{"query thrice", idField, edits(query("id=7&id=8&id=9")), "", rules.Ambiguous},
	{"query with a semicolon", idField, edits(query("id=7;id=8")), "", rules.Ambiguous},
	{"query malformed", idField, edits(query("id=%zz")), "", rules.Ambiguous},

	{"cookie", sessionField, edits(header("Cookie", "a=1; sid=x")), "x", rules.Present},
	{"cookie twice", sessionField, edits(header("Cookie", "sid=x; sid=y")), "", rules.Ambiguous},
	{"cookie missing", sessionField, edits(header("Cookie", "sidx=x")), "", rules.Absent},
	{"cookie in another case", sessionField, edits(header("Cookie", "SID=x")), "x", rules.Present},
	{"cookie in escapes", sessionField, edits(header("Cookie", "sid=%7B%22a%22%7d")), `{"a"}`, rules.Present},

	{"basic user", basicField, edits(basic("ada:pw:x")), "ada", rules.Present},
	{"basic user empty", basicField, edits(basic(":pw")), "", rules.Present},
	{"basic user missing", basicField, edits(header("Authorization", "Bearer x")), "", rules.Absent},
	{"basic user twice", basicField, edits(header("Authorization", "Basic YTpi", "Basic YTpi")), "", rules.Ambiguous},

	{"claim", subField, edits(claims(pairs{"sub": "ada"})), "ada", rules.Present},
	{"claim empty", subField, edits(claims(pairs{"sub": ""})), "", rules.Present},
	{"claim missing", subField, edits(claims(nil)), "", rules.Absent},
	{"no claims", subField, edits(attrs(pairs{"sub": "ada"})), "", rules.Absent},
	{
		"claims of an earlier token", subField,
		edits(claims(pairs{"sub": "ada"}), claims(pairs{"aud": "x"})), "", rules.Absent,
	},

	{"attribute", regionField, edits(attrs(inEU)), "eu", rules.Present},
	{"attribute missing", regionField, edits(claims(inEU)), "", rules.Absent},
	{"attribute from before", regionField, edits(attrs(inEU), attrs(pairs{"x": "y"})), "eu", rules.Present},
	{"attribute set again", regionField, edits(attrs(inEU), attrs(pairs{"region": ""})), "", rules.Present},
	{"unknown kind", rules.Field{Kind: 200}, nil, "", rules.Absent},
}

var (
	methodField  = rules.Field{Kind: rules.FieldMethod}
	hostField    = rules.Field{Kind: rules.FieldHost}
	pathField    = rules.Field{Kind: rules.FieldPath}
	basicField   = rules.Field{Kind: rules.FieldBasicUser}
	subField     = rules.Field{Kind: rules.FieldClaim, Name: "sub"}
	userField    = rules.Field{Kind: rules.FieldHeader, Name: "X-User", Variants: []string{"X_user"}}
	idField      = rules.Field{Kind: rules.FieldQuery, Name: "id"}
	sessionField = rules.Field{Kind: rules.FieldCookie, Name: "sid"}
	regionField  = rules.Field{Kind: rules.FieldAttr, Name: "region"}
)

func edits(all ...func(*http.Request)) []func(*http.Request) { return all }

func TestRequestAttributes(t *testing.T) {
	set := ruleSet(rules.Config{})
	for _, c := range attributeCases {
		got, found := httplimit.NewRulesRequest(request(c.edits...), set).Attribute(&c.field)
		if got != c.want || found != c.found {
			t.Errorf("%s: %q, %v; want %q, %v", c.name, got, found, c.want, c.found)
		}
	}
}

// ruleWays are the configurations of ByIP in the form of rule sets.
var ruleWays = map[string]rules.ClientIP{
	"peer":   {},
	"xff":    {TrustedProxies: ruleProxies},
	"fwd":    {TrustedProxies: ruleProxies, Header: "forwarded"},
	"real":   {TrustedProxies: ruleProxies, Header: "x-real-ip"},
	"hop1":   {ProxyHops: 1},
	"hop2":   {ProxyHops: 2},
	"hop2tp": {ProxyHops: 2, TrustedProxies: ruleProxies},
	"hop1f":  {ProxyHops: 1, Header: "Forwarded"},
	"mapped": {TrustedProxies: prefixes("::ffff:10.0.0.0/104")},
	"dirty":  {TrustedProxies: prefixes("10.1.2.3/8")},
	"all4":   {TrustedProxies: prefixes("0.0.0.0/0")},
	"b32":    {IPv6Prefix: 32},
	"b48":    {IPv6Prefix: 48},
	"b56":    {IPv6Prefix: 56},
	"b128":   {IPv6Prefix: 128},
}

var ruleProxies = prefixes("10.0.0.0/8", "127.0.0.1/32", "2001:db8:ffff::/48")

// TestRequestAddr: a rule per ip uses the same key as ByIP, whatever headers the client forges.
func TestRequestAddr(t *testing.T) {
	sets := map[string]*rules.Set{}
	for way, c := range ruleWays {
		sets[way] = ruleSet(rules.Config{ClientIP: c, Rules: []rules.Rule{
			{Name: "per-ip", Per: refs("ip"), Limits: limits(sluice.PerHour(1))},
		}})
	}
	n := 0
	for _, v := range slices.Concat(peerVectors, xffVectors, forwardedVectors) {
		set := sets[v.way]
		if set == nil {
			continue // rules do not trust Unix sockets
		}
		n++
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = v.peer
		if v.lines != nil {
			name := headerOf[v.way]
			if name == "" {
				name = "X-Forwarded-For"
			}
			r.Header[name] = v.lines
		}
		var m rules.MatchResult
		if err := set.Match(httplimit.NewRulesRequest(r, set), &m); err != nil || len(m.Takes) != 1 {
			t.Fatalf("%v: %d takes, %v", v, len(m.Takes), err)
		}
		if m.Takes[0].Key != v.want {
			t.Errorf("%s, peer %s, header %q: key %q, want %q", v.way, v.peer, v.lines, m.Takes[0].Key, v.want)
		}
	}
	if n < 120 {
		t.Errorf("%d vectors are fewer than 120", n)
	}
}

func TestRequestWrongUse(t *testing.T) {
	mustPanic(t, "no request", func() { httplimit.NewRulesRequest(nil, ruleSet(rules.Config{})) })
	mustPanic(t, "no set", func() { httplimit.NewRulesRequest(request(), nil) })
}
