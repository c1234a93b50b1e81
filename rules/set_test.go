package rules_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	canonical "github.com/sluiceproject/sluice/internal/match"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
	. "github.com/sluiceproject/sluice/rules"
)

// request is a Request for tests; values maps names such as "header:X-User" to values. The value "twice" is ambiguous.
type request struct {
	values map[string]string
	twice  map[string]bool
	ip     string
}

var kindNames = [...]string{"method", "host", "path", "header", "query", "cookie", "claim", "basic_user", "attr"}

func (r *request) Attribute(f *Field) (string, Presence) {
	name := kindNames[f.Kind]
	if f.Name != "" {
		name += ":" + f.Name
	}
	if r.twice[name] {
		return "", Ambiguous
	}
	v, ok := r.values[name]
	if !ok {
		return "", Absent
	}
	return v, Present
}

func (r *request) Addr() netip.Addr {
	if r.ip == "" {
		return netip.Addr{}
	}
	return netip.MustParseAddr(r.ip)
}

// req returns a request of "POST /posts" and pairs of attribute and value; "ip" is the address.
func req(line string, pairs ...string) *request {
	method, path, _ := strings.Cut(line, " ")
	r := &request{values: map[string]string{"method": method, "path": path}, twice: map[string]bool{}}
	for i := 0; i < len(pairs); i += 2 {
		switch {
		case pairs[i] == "ip":
			r.ip = pairs[i+1]
		case pairs[i+1] == "twice":
			r.twice[pairs[i]] = true
		default:
			r.values[pairs[i]] = pairs[i+1]
		}
	}
	return r
}

func is(ref string, values ...string) Predicate {
	p := Predicate{Ref: Ref{Name: ref}, Values: values}
	if ref == "path" {
		p.Patterns, p.Values = values, nil
	}
	return p
}

func not(p Predicate) Predicate { p.Not = true; return p }

func match(ps ...Predicate) Match { return Match{Predicates: ps} }

func per(names ...string) (refs []Ref) {
	for _, n := range names {
		refs = append(refs, Ref{Name: n})
	}
	return refs
}

func limit(texts ...string) (list []Limit) {
	for _, text := range texts {
		switch text {
		case "unlimited":
			list = append(list, Limit{Unlimited: true})
		case "deny":
			list = append(list, Limit{DenyAll: true})
		default:
			list = append(list, Limit{Limit: sluice.Must(sluice.ParseLimit(text))})
		}
	}
	return list
}

func mustSet(t testing.TB, cfg Config) *Set {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// matched describes how a set matches a request: "rule key" for each take, or the outcome.
func matched(t testing.TB, s *Set, r Request) string {
	t.Helper()
	var m MatchResult
	if err := s.Match(r, &m); err != nil {
		return "error " + err.Error()
	}
	switch m.Outcome {
	case MatchUnlimited:
		return "unlimited"
	case MatchExempt:
		return "exempt"
	case MatchRejected:
		return "rejected: " + m.Reason
	}
	var all []string
	for i, take := range m.Takes {
		text := take.Rule.Name
		if m.Rules[i].Name != strings.Split(take.Rule.Name, "#")[0] {
			t.Errorf("take of %s is said to be of rule %s", take.Rule.Name, m.Rules[i].Name)
		}
		text += fmt.Sprintf(" %q %s", take.Key, take.EffectiveLimit())
		if take.Cost != 1 {
			text += fmt.Sprintf(" cost %d", take.Cost)
		}
		if take.Rule.Shadow {
			text += " shadow"
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// design is the example of the design, with the outcomes it states for each rule.
func design() Config {
	return Config{
		Attributes: []Attribute{{Name: "user", Sources: per("claim:sub")}},
		Rules: []Rule{
			{Name: "posts-per-user", Match: match(is("method", "POST"), is("path", "/posts")), Per: per("user"), Limits: limit("2/s")},
			{Name: "signups-per-ip", Match: match(is("method", "POST"), is("path", "/accounts")), Per: per("ip"), Limits: []Limit{
				{Limit: sluice.PerDay(10).WithAlgorithm(sluice.SlidingWindowLog)},
			}},
			{Name: "rewards-per-device", Match: match(is("path", "/rewards/*")), Per: per("header:X-Device-Id"), Limits: limit("5/week")},
			{Name: "whole-system", Limits: []Limit{{Limit: sluice.PerSecond(10000).WithBurst(20000)}}, Accuracy: sluice.AccuracyLease},
		},
	}
}

func TestMatch(t *testing.T) {
	s := mustSet(t, design())
	const whole = `; whole-system "" 10000/s burst 20000`
	for _, test := range []struct {
		r    *request
		want string
	}{
		{req("POST /posts", "claim:sub", "ada"), `posts-per-user "ada" 2/s` + whole},
		{req("post /posts/", "claim:sub", "ada"), `posts-per-user "ada" 2/s` + whole},
		{req("POST //x/../posts;v=1", "claim:sub", "ada"), `posts-per-user "ada" 2/s` + whole},
		{req("POST /posts"), `posts-per-user "\x00-" 2/s` + whole},
		{req("POST /posts", "claim:sub", "\x00-"), `posts-per-user "\x00=\x00-" 2/s` + whole},
		{req("GET /posts", "claim:sub", "ada"), whole[2:]},
		{req("POST /posts/1", "claim:sub", "ada"), whole[2:]},
		{req("POST /accounts", "ip", "192.0.2.7"), `signups-per-ip "192.0.2.7" 10/day sliding_window_log` + whole},
		{req("POST /accounts", "ip", "2001:db8::7"), `signups-per-ip "2001:db8::/64" 10/day sliding_window_log` + whole},
		{req("POST /accounts", "ip", "::ffff:192.0.2.7"), `signups-per-ip "192.0.2.7" 10/day sliding_window_log` + whole},
		{req("GET /rewards/5", "header:X-Device-Id", "d"), `rewards-per-device "d" 5/week` + whole},
		{req("GET /rewards", "header:X-Device-Id", "d"), whole[2:]},
		{req("GET /rewards/5/claim", "header:X-Device-Id", "d"), whole[2:]},
		{req("GET /rewards/5", "header:X-Device-Id", "twice"), "error rules: an attribute is given more than once or may be read differently: header:X-Device-Id"},
		{req("GET /a%2fb"), "error"},
		{req("GET nowhere"), "error"},
	} {
		got := matched(t, s, test.r)
		if test.want == "error" && strings.HasPrefix(got, "error") {
			continue
		}
		if got != test.want {
			t.Errorf("%v\n got %s\nwant %s", test.r.values, got, test.want)
		}
	}
}

func TestConditions(t *testing.T) {
	yes, no := true, false
	for _, test := range []struct {
		name string
		p    Predicate
		hold []*request
		fail []*request
	}{
		{"set", is("method", "PATCH", "head"), []*request{req("PATCH /"), req("HEAD /")}, []*request{req("PUT /"), req("GET /")}},
		{"GET is HEAD too", is("method", "GET"), []*request{req("GET /"), req("HEAD /")}, []*request{req("PUT /")}},
		{"negation", not(is("method", "GET")), []*request{req("PUT /")}, []*request{req("GET /"), req("HEAD /")}},
		{
			"a missing attribute fits nothing", not(is("header:X-Plan", "free")),
			[]*request{req("GET /"), req("GET /", "header:X-Plan", "pro")},
			[]*request{req("GET /", "header:X-Plan", "free")},
		},
		{
			"host", is("host", "api.example.com", "*.example.org"),
			[]*request{
				req("GET /", "host", "api.example.com"), req("GET /", "host", "API.example.com:8443"), req("GET /", "host", "api.example.com."),
				req("GET /", "host", "a.b.example.org"),
			},
			[]*request{req("GET /", "host", "example.org"), req("GET /", "host", "example.com"), req("GET /", "host", "xexample.org"), req("GET /")},
		},
		{
			"address", is("ip", "10.0.0.0/8", "192.0.2.7", "2001:db8::/32"),
			[]*request{req("GET /", "ip", "10.255.255.255"), req("GET /", "ip", "192.0.2.7"), req("GET /", "ip", "2001:db8:1::1"), req("GET /", "ip", "::ffff:10.0.0.1")},
			[]*request{req("GET /", "ip", "11.0.0.0"), req("GET /", "ip", "9.255.255.255"), req("GET /", "ip", "192.0.2.6"), req("GET /", "ip", "2001:db9::"), req("GET /")},
		},
		{
			"prefix and suffix",
			Predicate{Ref: Ref{Name: "query:q"}, Prefixes: []string{"a"}, Suffixes: []string{"z"}},
			[]*request{req("GET /", "query:q", "abc"), req("GET /", "query:q", "xyz")},
			[]*request{req("GET /", "query:q", "b"), req("GET /")},
		},
		{
			"regexp",
			Predicate{Ref: Ref{Name: "path"}, Regexps: []string{`^/v[0-9]+/`}},
			[]*request{req("GET /v1/x"), req("GET /v22/x/y")},
			[]*request{req("GET /vx/x"), req("GET /a/v1/")},
		},
		{
			"present",
			Predicate{Ref: Ref{Name: "cookie:s"}, Present: &yes},
			[]*request{req("GET /", "cookie:s", "0")},
			[]*request{req("GET /"), req("GET /", "cookie:s", "")},
		},
		{
			"absent",
			Predicate{Ref: Ref{Name: "basic_user"}, Present: &no},
			[]*request{req("GET /")},
			[]*request{req("GET /", "basic_user", "ada")},
		},
		{
			"path patterns", is("path", "/users/{id}/posts", "/files/**", "/img/*.png", "/"),
			[]*request{req("GET /users/7/posts"), req("GET /files"), req("GET /files/a/b/c"), req("GET /img/x.png"), req("GET /"), req("GET //")},
			[]*request{req("GET /users/posts"), req("GET /users/7/8/posts"), req("GET /img/a/x.png"), req("GET /img/x.jpg"), req("GET /filesx")},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := mustSet(t, Config{Rules: []Rule{{Name: "r", Match: match(test.p), Limits: limit("1/s")}}})
			for _, r := range test.hold {
				if got := matched(t, s, r); got != `r "" 1/s` {
					t.Errorf("%v %s: %s", r.values, r.ip, got)
				}
			}
			for _, r := range test.fail {
				if got := matched(t, s, r); got != "unlimited" {
					t.Errorf("%v %s: %s, should not match", r.values, r.ip, got)
				}
			}
		})
	}
}

func TestListsAndExceptions(t *testing.T) {
	s := mustSet(t, Config{
		DenyList:  []Match{match(is("ip", "203.0.113.0/24"))},
		AllowList: []Match{match(is("path", "/healthz")), match(is("ip", "10.0.0.0/8"), is("method", "GET"))},
		Rules: []Rule{{
			Name: "all", Limits: limit("5/min"),
			Except: []Match{match(is("header:X-Internal", "1"), is("method", "GET")), match(is("path", "/static/**"))},
		}},
		Unmatched: UnmatchedDeny,
	})
	for _, test := range []struct {
		r    *request
		want string
	}{
		{req("GET /x", "ip", "192.0.2.1"), `all "" 5/min`},
		{req("GET /healthz", "ip", "203.0.113.5"), "rejected: on the deny list"}, // deny comes first
		{req("GET /healthz", "ip", "192.0.2.1"), "exempt"},
		{req("GET /x", "ip", "10.1.1.1"), "exempt"},
		{req("POST /x", "ip", "10.1.1.1"), `all "" 5/min`},
		{req("GET /x", "header:X-Internal", "1"), "rejected: no rule matches, and unmatched is deny"},
		{req("POST /x", "header:X-Internal", "1"), `all "" 5/min`},
		{req("GET /static/a/b"), "rejected: no rule matches, and unmatched is deny"},
	} {
		if got := matched(t, s, test.r); got != test.want {
			t.Errorf("%v %s\n got %s\nwant %s", test.r.values, test.r.ip, got, test.want)
		}
	}
}

func TestNumbersByTierAndKey(t *testing.T) {
	free := "free"
	s := mustSet(t, Config{
		Attributes: []Attribute{{Name: "plan", Sources: per("header:X-Plan"), Default: &free}, {Name: "user", Sources: per("claim:sub", "header:X-User")}},
		Rules: []Rule{{
			Name: "api", Per: per("user"), Limits: limit("10/min"),
			Tiers: &Tiers{By: Ref{Name: "plan"}, Limits: map[string][]Limit{
				"pro": limit("100/min", "5000/day"), "enterprise": limit("unlimited"), "banned": limit("deny"),
			}},
			Overrides: []Override{{Key: []string{"ada"}, Limits: limit("1000/s")}, {Key: []string{"eve"}, Limits: limit("deny")}},
		}},
	})
	for _, test := range []struct {
		r    *request
		want string
	}{
		{req("GET /", "claim:sub", "bob"), `api "bob" 10/min`},
		{req("GET /", "header:X-User", "bob"), `api "bob" 10/min`},
		{req("GET /", "claim:sub", "bob", "header:X-User", "eve"), `api "bob" 10/min`},
		{req("GET /", "claim:sub", "bob", "header:X-Plan", "pro"), `api "bob" 100/min; api#2 "bob" 5000/day`},
		{req("GET /", "claim:sub", "bob", "header:X-Plan", "gold"), `api "bob" 10/min`},
		{req("GET /", "claim:sub", "bob", "header:X-Plan", "enterprise"), ``},
		{req("GET /", "claim:sub", "bob", "header:X-Plan", "banned"), "rejected: denied by an override or a tier"},
		{req("GET /", "claim:sub", "ada", "header:X-Plan", "banned"), `api "ada" 1000/s`},
		{req("GET /", "claim:sub", "eve", "header:X-Plan", "enterprise"), "rejected: denied by an override or a tier"},
	} {
		if got := matched(t, s, test.r); got != test.want {
			t.Errorf("%v\n got %s\nwant %s", test.r.values, got, test.want)
		}
	}
}

func TestOverridesOfSeveralParts(t *testing.T) {
	s := mustSet(t, Config{Rules: []Rule{{
		Name: "r", Per: per("header:X-User", "ip", "path:id"), Match: match(is("path", "/u/{id}", "/v/x/{id}")), Limits: limit("1/s"),
		Overrides: []Override{{Key: []string{"ada", "2001:db8::1", "7"}, Limits: limit("9/s")}},
	}}})
	for path, want := range map[string]string{
		"/u/7":   `r "\x00+\x03ada\r2001:db8::/64\x017" 9/s`,
		"/v/x/7": `r "\x00+\x03ada\r2001:db8::/64\x017" 9/s`,
		"/u/8":   `r "\x00+\x03ada\r2001:db8::/64\x018" 1/s`,
	} {
		if got := matched(t, s, req("GET "+path, "header:X-User", "ada", "ip", "2001:db8::ffff")); got != want {
			t.Errorf("%s\n got %s\nwant %s", path, got, want)
		}
	}
}

func TestMissing(t *testing.T) {
	for missing, want := range map[OnMissing]string{
		MissingShare: `r "\x00-" 1/s`, MissingSkip: "", MissingReject: "rejected: lacks an attribute of per",
	} {
		s := mustSet(t, Config{Rules: []Rule{{Name: "r", Per: per("header:X-User"), Limits: limit("1/s"), OnMissing: missing}}})
		if got := matched(t, s, req("GET /")); got != want {
			t.Errorf("missing %d: %s, want %s", missing, got, want)
		}
		if got := matched(t, s, req("GET /", "header:X-User", "ada")); got != `r "ada" 1/s` {
			t.Errorf("missing %d: %s", missing, got)
		}
	}
}

func TestCost(t *testing.T) {
	from := Ref{Name: "header:X-Cost"}
	s := mustSet(t, Config{Rules: []Rule{
		{Name: "r", Limits: limit("100/s"), Cost: Cost{From: &from, Default: 3, Max: 50}},
		{Name: "fixed", Limits: limit("100/s"), Cost: Cost{Default: 7}},
	}})
	for text, want := range map[string]string{
		"": "cost 3", "1": "", "49": "cost 49", " 5 ": "cost 5", "99999999999": "cost 50",
		"0": "error", "-1": "error", "1.5": "error", "ten": "error", "0x10": "error", "+5": "error", "00": "error", "9223372036854775807": "cost 50", "9223372036854775808": "cost 50",
		"18446744073709551615": "cost 50", "18446744073709551616": "cost 50", "99999999999999999999": "cost 50", "99999999999999999999x": "error", "-99999999999999999999": "error",
	} {
		r := req("GET /")
		if text != "" {
			r.values["header:X-Cost"] = text
		}
		got := matched(t, s, r)
		full := strings.TrimSpace(`r "" 100/s `+want) + `; fixed "" 100/s cost 7`
		if want == "error" {
			if !strings.Contains(got, ErrInvalidCost.Error()) {
				t.Errorf("cost %q: %s", text, got)
			}
		} else if got != full {
			t.Errorf("cost %q: %s, want %s", text, got, full)
		}
	}
}

// Of 100,000 keys about the given share is enforced, each key always on the same side.
func TestEnforcePart(t *testing.T) {
	s := mustSet(t, Config{Rules: []Rule{{Name: "r", Per: per("header:X-User"), Limits: limit("1/s"), EnforceBasisPoints: 12_50}}})
	var m MatchResult
	enforced := 0
	const n = 100_000
	for i := range n {
		r := req("GET /", "header:X-User", fmt.Sprint("user", i))
		for range 2 {
			if err := s.Match(r, &m); err != nil {
				t.Fatal(err)
			}
			if !m.Takes[0].Rule.Shadow {
				enforced++
			}
		}
	}
	if enforced%2 != 0 {
		t.Error("a key changed sides")
	}
	if share := float64(enforced) / 2 / n; share < 0.12 || share > 0.13 {
		t.Errorf("%.4f of the keys are enforced, want 0.125", share)
	}
}

// Secret values are in no key. Different values have different keys, which are the same in every process with the same
// secret.
func TestSecrets(t *testing.T) {
	cfg := Config{
		Attributes: []Attribute{{Name: "token", Sources: per("query:token"), Secret: true}},
		Rules: []Rule{
			{Name: "b", Per: per("cookie:session", "ip"), Limits: limit("1/s")},
			{Name: "c", Per: per("token"), Limits: limit("1/s")},
		},
		DigestSecret: []byte("pepper"),
	}
	const canary = "canary-3141592653"
	fields := []string{"cookie:session", canary, "query:token", canary, "ip", "192.0.2.1"}
	for i, name := range canonical.CredentialHeaders() {
		cfg.Rules = append(cfg.Rules, Rule{Name: fmt.Sprint("h", i), Per: per("header:" + name), Limits: limit("1/s")})
		fields = append(fields, "header:"+name, canary)
	}
	r := req("GET /", fields...)
	keys := func(s *Set) (all []string) {
		var m MatchResult
		if err := s.Match(r, &m); err != nil {
			t.Fatal(err)
		}
		for _, take := range m.Takes {
			if strings.Contains(take.Key, canary[:6]) {
				t.Errorf("the key of %s is %q", take.Rule.Name, take.Key)
			}
			all = append(all, strings.Clone(take.Key))
		}
		return all
	}
	first := keys(mustSet(t, cfg))
	if again := keys(mustSet(t, cfg)); !slices.Equal(first, again) {
		t.Error("another set with the same secret has other keys")
	}
	cfg.DigestSecret = []byte("salt")
	for i, k := range keys(mustSet(t, cfg)) {
		if k == first[i] {
			t.Errorf("key %q does not depend on the secret", k)
		}
	}
	x := fmt.Sprintf("%+v", mustSet(t, cfg).Explain(r))
	if strings.Contains(x, canary) {
		t.Errorf("the explanation contains the secret: %s", x)
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	cfg := design()
	cfg.Rules = append(cfg.Rules, Rule{
		Name: "several", Per: per("ip", "user", "header:Authorization"), Limits: limit("5/s", "100/h"),
		Match: match(is("path", "/**"), Predicate{Ref: Ref{Name: "header:User-Agent"}, Regexps: []string{"bot"}}),
	})
	s := mustSet(t, cfg)
	r := req("POST /posts", "claim:sub", "ada", "ip", "2001:db8::1", "header:User-Agent", "Googlebot", "header:Authorization", "secret")
	var m MatchResult
	addr := r.Addr()
	quick := &quickRequest{r, addr}
	if n := testing.AllocsPerRun(1000, func() {
		if err := s.Match(quick, &m); err != nil || len(m.Takes) != 4 {
			t.Fatal(err, len(m.Takes))
		}
	}); n != 0 {
		t.Errorf("Match allocates %v times", n)
	}
}

// quickRequest does not parse its address each time, nor join names.
type quickRequest struct {
	*request
	addr netip.Addr
}

func (q *quickRequest) Addr() netip.Addr { return q.addr }

func (q *quickRequest) Attribute(f *Field) (string, Presence) {
	switch f.Kind {
	case FieldMethod:
		return q.values["method"], Present
	case FieldPath:
		return q.values["path"], Present
	case FieldClaim:
		return q.values["claim:sub"], Present
	case FieldHeader:
		switch f.Name {
		case "User-Agent":
			return q.values["header:User-Agent"], Present
		case "Authorization":
			return q.values["header:Authorization"], Present
		}
	}
	return "", Absent
}

// The limiter enforces the limits, and changing the numbers of a rule keeps its usage.
func TestLimitsOnAStore(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	store, err := memstore.Open(memstore.Config{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	limiter := sluice.Must(sluice.NewWithRules(store, nil))
	var m MatchResult
	allowed := func(s *Set, r Request) bool {
		t.Helper()
		if err := s.Match(r, &m); err != nil {
			t.Fatal(err)
		}
		ok, err := limiter.Decide(context.Background(), m.Takes, make([]sluice.Decision, len(m.Takes)))
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	cfg := design()
	s := mustSet(t, cfg)
	ada := req("POST /posts", "claim:sub", "ada")
	for i, want := range []bool{true, true, false} {
		if got := allowed(s, ada); got != want {
			t.Errorf("post %d: %v", i+1, got)
		}
	}
	if !allowed(s, req("POST /posts", "claim:sub", "bob")) {
		t.Error("bob is charged for ada")
	}
	cfg = design()
	cfg.Rules[0].Limits = limit("2/s")
	cfg.Rules[0].Description = "changed"
	if allowed(mustSet(t, cfg), ada) {
		t.Error("a new set lost the usage of ada")
	}
	cfg.Rules[0].Name = "renamed"
	if !allowed(mustSet(t, cfg), ada) {
		t.Error("a renamed rule is not a new rule")
	}
}

func TestFaults(t *testing.T) {
	r := func(change func(*Rule)) Config {
		rule := Rule{Name: "r", Limits: limit("1/s"), Pos: Position{"f.yaml", 3, 5}}
		change(&rule)
		return Config{Rules: []Rule{rule}}
	}
	for _, test := range []struct {
		cfg  Config
		want string
	}{
		{r(func(r *Rule) { r.Name = "" }), "f.yaml:3:5: the rule has no name"},
		{r(func(r *Rule) { r.Name = "a b" }), "without space"},
		{r(func(r *Rule) { r.Name = strings.Repeat("x", 129) }), "at most 128"},
		{r(func(r *Rule) { r.Limits = nil }), "there is no limit"},
		{r(func(r *Rule) { r.Denial.Status = 200 }), "denial: status: 200 is not between 400 and 599"},
		{r(func(r *Rule) { r.Denial.Message, r.Denial.Body = "a", "b" }), "denial: message and body cannot be combined: remove one"},
		{r(func(r *Rule) { r.Denial.Message = "a\nb" }), "denial: message: has more than one line: use body instead"},
		{r(func(r *Rule) { r.Denial.Message = "wait {seconds}" }), "denial: message: there is no {seconds}: use {rule}, {limit} or {retry_after}"},
		{r(func(r *Rule) { r.Denial.Body = `{"a": {"b": {rle}}}` }), "denial: body: there is no {rle}: use {rule}, {limit} or {retry_after}"},
		{r(func(r *Rule) { r.Denial.Body = strings.Repeat("x", 16<<10+1) }), "denial: body: has 16385 bytes, at most 16384 are allowed"},
		{r(func(r *Rule) { r.Denial.ContentType = "text/html" }), "denial: content_type: needs body: add a body, or remove it"},
		{r(func(r *Rule) { r.Denial.Body, r.Denial.ContentType = "b", "text html" }), "denial: content_type: \"text html\" is not a media type: write one such as text/html or application/json"},
		{r(func(r *Rule) { r.Limits = []Limit{{}} }), "limit: rate: the limit is the zero Limit"},
		{r(func(r *Rule) { r.Limits = []Limit{{Limit: sluice.PerSecond(5).WithBurst(-1)}} }), "limit: burst: -1 is negative"},
		{r(func(r *Rule) { r.Per = per("usr") }), "there is no attribute \"usr\""},
		{r(func(r *Rule) { r.Per = per("methd") }), `did you mean "method"?`},
		{r(func(r *Rule) { r.Per = per("ip", "ip") }), "is listed twice"},
		{r(func(r *Rule) { r.Per = per("header:") }), "has no name: write"},
		{r(func(r *Rule) { r.Per = per("path:id") }), "needs a path with {id}"},
		{r(func(r *Rule) { r.Per, r.Match = per("path:id"), match(is("path", "/a/{id}", "/b/*")) }), "/b/* has no {id}"},
		{r(func(r *Rule) { r.Match = match(is("path", "posts")) }), `write "/posts"`},
		{r(func(r *Rule) { r.Match = match(is("path", "/a/**/b")) }), "** is only valid as the last segment"},
		{r(func(r *Rule) { r.Match = match(is("path", "/a/{x}/{x}")) }), "two segments"},
		{r(func(r *Rule) { r.Match = match(is("path", "/a%2fb")) }), "write it unescaped"},
		{r(func(r *Rule) { r.Match = match(is("path", "/a/../b")) }), "remove it"},
		{r(func(r *Rule) { r.Match = match(is("ip", "10.0.0.1/8")) }), "write 10.0.0.0/8"},
		{r(func(r *Rule) { r.Match = match(is("ip", "localhost")) }), "not an address"},
		{r(func(r *Rule) { r.Match = match(is("host", "api.*.com")) }), "*.example.com"},
		{r(func(r *Rule) { r.Match = match(Predicate{Ref: Ref{Name: "method"}}) }), "has no condition"},
		{r(func(r *Rule) { r.Match = match(Predicate{Ref: Ref{Name: "path"}, Regexps: []string{"("}}) }), "RE2"},
		{r(func(r *Rule) {
			r.Match = match(Predicate{Ref: Ref{Name: "path"}, Regexps: []string{strings.Repeat("a", 1025)}})
		}), "at most 1024"},
		{r(func(r *Rule) { r.Except = []Match{{}} }), "except: an entry without conditions"},
		{r(func(r *Rule) { r.Overrides = []Override{{Key: []string{"a"}, Limits: limit("1/s")}} }), "a key needs one value for each attribute of per: 0, not 1"},
		{r(func(r *Rule) {
			r.Per = per("attr:x")
			r.Overrides = []Override{{Key: []string{"a"}, Limits: limit("1/s")}, {Key: []string{"a"}, Limits: limit("2/s")}}
		}), "twice"},
		{r(func(r *Rule) { r.Cost.Default = -1 }), "cost: -1"},
		{r(func(r *Rule) { r.EnforceBasisPoints = 100_01 }), "enforce"},
		{r(func(r *Rule) { r.OnLimit = OnLimitDelay }), "leaky_queue"},
		{r(func(r *Rule) {
			r.OnLimit, r.MaxDelay, r.Limits[0].Limit = OnLimitDelay, time.Second, sluice.PerSecond(1).WithAlgorithm(sluice.FixedWindow)
		}), "leaky_queue"},
		{r(func(r *Rule) { r.Limits = limit("unlimited") }), "only valid in tiers and overrides"},
		{r(func(r *Rule) {
			r.Accuracy, r.Limits[0].Limit = sluice.AccuracyLease, sluice.PerSecond(1).WithAlgorithm(sluice.SlidingWindowLog)
		}), "accuracy: lease needs"},
		{r(func(r *Rule) {
			r.Accuracy, r.Limits[0].Limit = sluice.AccuracyEventual, sluice.PerSecond(1).WithAlgorithm(sluice.SlidingWindowLog)
		}), "accuracy: eventual needs"},
		{r(func(r *Rule) { r.MaxDelay = time.Second }), "max_delay"},
		{r(func(r *Rule) { r.ChargeStatus = StatusRanges{{401, 40}} }), "HTTP statuses"},
		{r(func(r *Rule) { r.Tiers = &Tiers{By: Ref{Name: "plan"}} }), "there is no attribute \"plan\""},
		{r(func(r *Rule) { r.Limits = limit("1/s", "1/s", "1/s", "1/s", "1/s", "1/s", "1/s", "1/s", "1/s") }), "at most 8"},
		{Config{Rules: []Rule{{Name: "r", Limits: limit("1/s")}, {Name: "r", Limits: limit("1/s")}}}, "would share a bucket"},
		{Config{Attributes: []Attribute{{Name: "ip", Sources: per("header:X")}}}, "choose another name"},
		{Config{Attributes: []Attribute{{Name: "a", Sources: per("header:X")}, {Name: "a", Sources: per("header:Y")}}}, "declared twice"},
		{Config{Attributes: []Attribute{{Name: "a"}}}, "has no source"},
		{Config{Attributes: []Attribute{{Name: "a", Sources: per("path")}}}, "refer to it directly"},
		{Config{DenyList: []Match{{}}}, "matches all requests"},
		{Config{ClientIP: ClientIP{IPv6Prefix: 16}}, "between 32 and 128"},
		{Config{ClientIP: ClientIP{Header: "X-Real-Ip"}}, "is never read"},
	} {
		_, err := New(test.cfg)
		var fault *Error
		if err == nil || !strings.Contains(err.Error(), test.want) || !errors.As(err, &fault) {
			t.Errorf("error %v, want %q", err, test.want)
		}
	}
}

// All errors are reported at once, in the order of the file.
func TestAllFaultsAtOnce(t *testing.T) {
	_, err := New(Config{Rules: []Rule{
		{Name: "b", Pos: Position{"f", 9, 1}},
		{Name: "a", Pos: Position{"f", 2, 1}, Per: []Ref{{Position{"f", 3, 4}, "nobody"}}},
	}})
	want := "f:2:1: rule \"a\": there is no limit: write one, such as limit: 100/min\n" +
		"f:3:4: rule \"a\": per: there is no attribute \"nobody\""
	if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("%v", err)
	}
}

// All limits are listed as the limiter's rules, in the order of the configuration, without disabled rules.
func TestRules(t *testing.T) {
	limit := func(n int64) Limit { return Limit{Limit: sluice.PerMinute(n)} }
	set, err := New(Config{
		Rules: []Rule{
			{Name: "posts", Limits: []Limit{limit(1), limit(2)}},
			{Name: "off", Limits: []Limit{limit(3)}, Disabled: true},
			{Name: "logins", Limits: []Limit{limit(4)}},
		},
		Domains: []Domain{{Name: "d", Descriptors: []DescriptorRule{
			{Key: "k", Limits: []Limit{limit(5)}, Descriptors: []DescriptorRule{{Key: "below", Unlimited: true}, {Key: "more", Limits: []Limit{limit(6)}}}},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range set.LimiterRules() {
		got = append(got, fmt.Sprint(r.Name, " ", r.Limit.Count))
	}
	if want := []string{"posts 1", "posts#2 2", "logins 4", "d/k 5", "d/k/more 6"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
