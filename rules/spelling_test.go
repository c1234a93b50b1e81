package rules_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	. "github.com/sluiceproject/sluice/rules"
)

// spelt are values of overrides and tiers in spellings that differ from the canonical one, each with a request that it
// applies to.
var spelt = []struct {
	name, per, written string
	path               string // of the rule
	ignoreCase, lower  bool
	request            func(*spellingRequest)
	same               bool // it is the canonical spelling: no warning
}{
	{name: "IPv4", per: "ip", written: "192.0.2.1", same: true, request: from("192.0.2.1")},
	{name: "IPv4 prefix of one", per: "ip", written: "192.0.2.1/32", request: from("192.0.2.1")},
	{name: "IPv4 mapped", per: "ip", written: "::ffff:192.0.2.1", request: from("192.0.2.1")},
	{name: "IPv4 mapped, in hexadecimal", per: "ip", written: "::ffff:c000:201", request: from("192.0.2.1")},
	{name: "request that is mapped", per: "ip", written: "192.0.2.1", same: true, request: from("::ffff:192.0.2.1")},
	{name: "IPv6 address", per: "ip", written: "2001:db8::7", request: from("2001:db8::1")},
	{name: "IPv6 in full", per: "ip", written: "2001:0DB8:0:0:0:0:0:1", request: from("2001:db8::1")},
	{name: "IPv6 prefix", per: "ip", written: "2001:db8::/64", same: true, request: from("2001:db8::1")},
	{name: "method", per: "method", written: "get", request: set(FieldMethod, "", "GET")},
	{name: "HEAD of GET", per: "method", written: "GET", same: true, request: set(FieldMethod, "", "HEAD")},
	{name: "HEAD of get", per: "method", written: "get", request: set(FieldMethod, "", "HEAD")},
	{name: "host's case", per: "host", written: "API.Example.COM", request: set(FieldHost, "", "api.example.com")},
	{name: "host's port", per: "host", written: "api.example.com:8443", request: set(FieldHost, "", "api.example.com")},
	{name: "host's dot", per: "host", written: "api.example.com.", request: set(FieldHost, "", "api.example.com:443")},
	{name: "lower", per: "device", written: "AbC", lower: true, request: set(FieldHeader, "X-Device", "aBc")},
	{name: "cookie", per: "cookie:sess", written: "abc", same: true, request: set(FieldCookie, "sess", "abc")},
	{name: "cookie in escapes", per: "cookie:sess", written: `"%61bc%20d "`, same: true, request: set(FieldCookie, "sess", "abc+d")},
	{name: "path", per: "path", written: "/Posts/../a%62c/", request: set(FieldPath, "", "/abc")},
	{name: "path without case", per: "path", written: "/ABC", ignoreCase: true, request: set(FieldPath, "", "/abc")},
	{name: "segment", per: "path:id", path: "/users/{id}", written: "a%62c", request: set(FieldPath, "", "/users/abc")},
	{name: "segment without case", per: "path:id", path: "/users/{id}", written: "ABC", ignoreCase: true, request: set(FieldPath, "", "/users/abc")},
	{name: "segment not composed", per: "path:id", path: "/users/{id}", written: "e\u0301", request: set(FieldPath, "", "/users/%C3%A9")},
}

// spellingRequest is a request with one attribute.
type spellingRequest struct {
	addr  netip.Addr
	field Field
	value string
	found Presence
}

func from(addr string) func(*spellingRequest) {
	return func(r *spellingRequest) { r.addr = netip.MustParseAddr(addr) }
}

func set(k FieldKind, name, value string) func(*spellingRequest) {
	return func(r *spellingRequest) { r.field, r.value, r.found = Field{Kind: k, Name: name}, value, Present }
}

func (r *spellingRequest) Addr() netip.Addr { return r.addr }

func (r *spellingRequest) Attribute(f *Field) (string, Presence) {
	if f.Kind == r.field.Kind && f.Name == r.field.Name {
		return r.value, r.found
	}
	return "", Absent
}

func spellingConfig(per, path string, ignoreCase, lower bool) Config {
	r := Rule{Name: "r", Limits: []Limit{{Limit: perHour(100)}}}
	if path != "" {
		r.Match.Predicates = []Predicate{{Ref: Ref{Name: "path"}, Patterns: []string{path}}}
	}
	r.Per = []Ref{{Name: per}}
	return Config{
		Attributes: []Attribute{{Name: "device", Sources: []Ref{{Name: "header:X-Device"}}, Lowercase: lower}},
		Rules:      []Rule{r}, IgnorePathCase: ignoreCase, ClientIP: ClientIP{Pos: Position{Line: 1}},
	}
}

// A value of overrides or tiers chooses the limits of every request that match would find by it. A spelling that is not
// canonical causes a warning.
func TestSpellingsOfOverridesAndTiers(t *testing.T) {
	for _, tt := range spelt {
		for _, place := range []string{"overrides", "tiers", "overrides of two"} {
			cfg := spellingConfig(tt.per, tt.path, tt.ignoreCase, tt.lower)
			r := &cfg.Rules[0]
			never := []Limit{{DenyAll: true}}
			switch place {
			case "overrides":
				r.Overrides = []Override{{Key: []string{tt.written}, Limits: never}}
			case "overrides of two":
				r.Per = append(r.Per, Ref{Name: "header:X-Other"})
				r.Overrides = []Override{{Key: []string{tt.written, "x"}, Limits: never}}
			case "tiers":
				if tt.per == "ip" || tt.path != "" {
					continue // tiers do not support these
				}
				r.Per, r.Tiers = nil, &Tiers{By: Ref{Name: tt.per}, Limits: map[string][]Limit{tt.written: never}}
			}
			s, err := New(cfg)
			if err != nil {
				t.Errorf("%s, %s: %v", tt.name, place, err)
				continue
			}
			q := &spellingRequest{}
			tt.request(q)
			var request Request = q
			if place == "overrides of two" {
				request = &withOther{q}
			}
			var m MatchResult
			if err := s.Match(request, &m); err != nil || m.Outcome != MatchRejected {
				t.Errorf("%s, %s: %q does not find the request: %v, %v", tt.name, place, tt.written, m.Outcome, err)
			}
			warned := false
			for _, w := range s.Warnings() {
				warned = warned || strings.Contains(w.Msg, " is compared as ")
			}
			if warned == tt.same {
				t.Errorf("%s, %s: warnings are %v", tt.name, place, s.Warnings())
			}
		}
	}
}

// withOther adds a second attribute.
type withOther struct{ *spellingRequest }

func (r *withOther) Attribute(f *Field) (string, Presence) {
	if f.Kind == FieldHeader && f.Name == "X-Other" {
		return "x", Present
	}
	return r.spellingRequest.Attribute(f)
}

// An invalid value of overrides and tiers is an error, and a value that no request has causes a warning.
func TestSpellingsThatMeanNothing(t *testing.T) {
	for _, tt := range []struct{ per, path, written, want string }{
		{"ip", "", "10.0.0.0/8", "is not the prefix of one client"},
		{"ip", "", "2001:db8::/32", "is not the prefix of one client"},
		{"ip", "", "2001:db8::/96", "is not the prefix of one client"},
		{"ip", "", "::ffff:10.0.0.0/104", "is not the prefix of one client"},
		{"ip", "", "mallory", "is not an address"},
		{"path", "", "posts", "no leading slash"},
		{"path", "", "/a%2fb", "escaped slash"},
		{"path:id", "/users/{id}", "a/b", "cannot be a segment"},
		{"path:id", "/users/{id}", "a.", "is compared as \"a\""},
		{"path:id", "/users/{id}", "100%", "cannot be a segment"},
		{"host", "", "*.example.com", "names a single host"},
		{"host", "", "https://example.com", "is never matched: write a host"},
		{"host", "", "", "is never matched: write a host"},
		{"method", "", "GET /posts", "is never matched: a method consists of"},
		{"method", "", "", "is never matched: a method consists of"},
		{"basic_user", "", "ada:secret", "is never matched: the user name of basic authentication ends at a colon"},
		{"header:X-User", "", "a\nb", "is never matched: the value of a header has no control"},
		{"header:Host", "", "API.example.com", "is compared as \"api.example.com\""},
		{"cookie:sess", "", "100%", "write %25"},
		{"path", "", "/a;b", "contains a semicolon"},
		{"path", "", "/a;", "contains a semicolon"},
		{"path", "", "/x/**", "names a single path"},
		{"path", "", "/users/{id}", "names a single path"},
		{"path:id", "/users/{id}", "a;b", "cannot be a segment"},
		{"path:id", "/users/{id}", "a*", "names a single path"},
		{"header:X-User", "", " ada", "is never matched"},
		{"header:X-User", "", strings.Repeat("a", 8<<10+1), "is never matched"},
	} {
		cfg := spellingConfig(tt.per, tt.path, false, false)
		cfg.Rules[0].Overrides = []Override{{Key: []string{tt.written}, Limits: []Limit{{DenyAll: true}}}}
		s, err := New(cfg)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			for _, w := range s.Warnings() {
				got += w.Msg + "\n"
			}
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("per %s: %.40q: got %.200q, want %q", tt.per, tt.written, got, tt.want)
		}
	}
	cfg := spellingConfig("ip", "", false, false)
	cfg.Rules[0].Tiers = &Tiers{By: Ref{Name: "ip"}, Limits: map[string][]Limit{"192.0.2.1": {{DenyAll: true}}}}
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "tiers: by: ip is not supported") {
		t.Errorf("tiers by ip: %v", err)
	}
	cfg = spellingConfig("method", "", false, false)
	cfg.Rules[0].Tiers = &Tiers{By: Ref{Name: "method"}, Limits: map[string][]Limit{"get": {{DenyAll: true}}, "GET": {{DenyAll: true}}}}
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "is listed twice") {
		t.Errorf("two spellings of a tier: %v", err)
	}
	cfg = spellingConfig("method", "", false, false)
	cfg.Rules[0].Overrides = []Override{{Key: []string{"GET"}, Limits: []Limit{{DenyAll: true}}}, {Key: []string{"HEAD"}, Limits: []Limit{{Unlimited: true}}}}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	q := &spellingRequest{}
	set(FieldMethod, "", "HEAD")(q)
	var m MatchResult
	if err := s.Match(q, &m); err != nil || m.Outcome == MatchRejected {
		t.Errorf("an override of HEAD counts less than that of GET: %v, %v", m.Outcome, err)
	}
}

// A cookie's value in a match means the same as in a request, in any spelling.
func TestCookiesInMatch(t *testing.T) {
	for _, tt := range []struct {
		condition Predicate
		want      bool
	}{
		{Predicate{Values: []string{"s:a+b"}}, true},
		{Predicate{Values: []string{"s%3Aa%20b"}}, true},
		{Predicate{Values: []string{`"s%3aa+b"`}}, true},
		{Predicate{Values: []string{"s:ab"}}, false},
		{Predicate{Prefixes: []string{"s%3A"}}, true},
		{Predicate{Prefixes: []string{"s:"}}, true},
		{Predicate{Suffixes: []string{"a%2Bb"}}, true},
		{Predicate{Suffixes: []string{"%61%62"}}, false},
		{Predicate{Regexps: []string{`^s:a\+b$`}}, true},
	} {
		tt.condition.Ref.Name = "cookie:sess"
		s, err := New(Config{DenyList: []Match{{Predicates: []Predicate{tt.condition}}}})
		if err != nil {
			t.Fatal(err)
		}
		q := &spellingRequest{}
		set(FieldCookie, "sess", "s:a+b")(q)
		var m MatchResult
		if err := s.Match(q, &m); err != nil || (m.Outcome == MatchRejected) != tt.want {
			t.Errorf("%v: %v, %v", &tt.condition, m.Outcome, err)
		}
	}
	for _, p := range []Predicate{{Values: []string{"100%"}}, {Prefixes: []string{"s%3"}}, {Suffixes: []string{"%"}}} {
		p.Ref.Name = "cookie:sess"
		if _, err := New(Config{DenyList: []Match{{Predicates: []Predicate{p}}}}); err == nil || !strings.Contains(err.Error(), "write %25") {
			t.Errorf("%v: %v", &p, err)
		}
	}
}

// A valid value that the rule's own match excludes causes a warning; others do not.
func TestValuesOutsideMatch(t *testing.T) {
	yes := true
	no := false
	for _, tt := range []struct {
		name      string
		match     []Predicate
		except    []Match
		by, value string
		want      bool
	}{
		{name: "method", match: []Predicate{is("method", "POST")}, by: "method", value: "DELETE", want: true},
		{name: "method that is", match: []Predicate{is("method", "POST")}, by: "method", value: "post"},
		{name: "HEAD of GET", match: []Predicate{is("method", "GET")}, by: "method", value: "HEAD"},
		{name: "not", match: []Predicate{{Ref: Ref{Name: "method"}, Values: []string{"POST"}, Not: true}}, by: "method", value: "POST", want: true},
		{name: "not another", match: []Predicate{{Ref: Ref{Name: "method"}, Values: []string{"POST"}, Not: true}}, by: "method", value: "PUT"},
		{name: "except", except: []Match{{Predicates: []Predicate{is("method", "POST")}}}, by: "method", value: "POST", want: true},
		{name: "except of two", except: []Match{{Predicates: []Predicate{is("method", "POST"), is("path", "/a")}}}, by: "method", value: "POST"},
		{name: "path", match: []Predicate{is("path", "/a/*")}, by: "path", value: "/b/c", want: true},
		{name: "path that is", match: []Predicate{is("path", "/a/*")}, by: "path", value: "/a/c"},
		{name: "host", match: []Predicate{is("host", "*.example.com")}, by: "host", value: "example.org", want: true},
		{name: "host that is", match: []Predicate{is("host", "*.example.com")}, by: "host", value: "api.example.com"},
		{name: "address", match: []Predicate{is("ip", "10.0.0.0/8")}, by: "ip", value: "192.0.2.1", want: true},
		{name: "address that is", match: []Predicate{is("ip", "10.0.0.0/8")}, by: "ip", value: "10.1.2.3"},
		{name: "network", match: []Predicate{is("ip", "2001:db8::1")}, by: "ip", value: "2001:db8::/64"},
		{name: "header", match: []Predicate{is("header:X-Plan", "free")}, by: "header:X-Plan", value: "pro", want: true},
		{name: "present", match: []Predicate{{Ref: Ref{Name: "header:X-Plan"}, Present: &yes}}, by: "header:X-Plan", value: "pro"},
		{name: "absent", match: []Predicate{{Ref: Ref{Name: "header:X-Plan"}, Present: &no}}, by: "header:X-Plan", value: "pro", want: true},
		{name: "another attribute", match: []Predicate{is("header:X-Plan", "free")}, by: "header:X-User", value: "ada"},
		{name: "empty header", by: "header:X-Plan", value: "", want: true},
	} {
		for _, place := range []string{"overrides", "tiers"} {
			r := Rule{Name: "r", Match: Match{Predicates: tt.match}, Except: tt.except, Limits: []Limit{{Limit: perHour(100)}}}
			if place == "tiers" {
				if tt.by == "ip" {
					continue
				}
				r.Tiers = &Tiers{By: Ref{Name: tt.by}, Limits: map[string][]Limit{tt.value: {{DenyAll: true}}}}
			} else {
				r.Per, r.Overrides = []Ref{{Name: tt.by}}, []Override{{Key: []string{tt.value}, Limits: []Limit{{DenyAll: true}}}}
			}
			s, err := New(Config{Rules: []Rule{r}, ClientIP: ClientIP{Pos: Position{Line: 1}}})
			if err != nil {
				t.Errorf("%s, %s: %v", tt.name, place, err)
				continue
			}
			warned := false
			for _, w := range s.Warnings() {
				warned = warned || strings.Contains(w.Msg, "is never matched")
			}
			if warned != tt.want {
				t.Errorf("%s, %s: warnings are %v", tt.name, place, s.Warnings())
			}
		}
	}
}

// A value that no request has causes a warning in conditions too.
func TestValuesThatNoRequestHas(t *testing.T) {
	for _, tt := range []struct{ ref, value, want string }{
		{"method", "GET /", "match: method: \"GET /\" is never matched"},
		{"method", "get", ""},
		{"host", "http://a.example", "is never matched"},
		{"host", "A.example:80", ""},
		{"host", "*.example.com", ""},
		{"header:X-User", " ada", "is never matched"},
		{"header:X-User", "ada", ""},
		{"header:Authorization", "x ", "match: header:Authorization: a secret is never matched"},
		{"basic_user", "a:b", "is never matched"},
		{"query:q", " a ", ""},
		{"claim:sub", " a\n", ""},
	} {
		condition := Predicate{Ref: Ref{Name: tt.ref}, Values: []string{tt.value}}
		for _, cfg := range []Config{
			{DenyList: []Match{{Predicates: []Predicate{condition}}}},
			{AllowList: []Match{{Predicates: []Predicate{condition}}}},
			{Rules: []Rule{{Name: "r", Match: Match{Predicates: []Predicate{condition}}, Limits: []Limit{{Limit: perHour(1)}}}}},
			{Rules: []Rule{{Name: "r", Except: []Match{{Predicates: []Predicate{condition}}}, Limits: []Limit{{Limit: perHour(1)}}}}},
		} {
			s, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, w := range s.Warnings() {
				got += w.Msg
			}
			if got != "" != (tt.want != "") || !strings.Contains(got, tt.want) {
				t.Errorf("%s %q: warnings are %q, want %q", tt.ref, tt.value, got, tt.want)
			}
		}
	}
}

// Tiers and costs can be read from a named segment of the path, like keys.
func TestReferencesToSegments(t *testing.T) {
	r := Rule{
		Name: "r", Match: Match{Predicates: []Predicate{{Ref: Ref{Name: "path"}, Patterns: []string{"/{plan}/items/{n}", "/v1/{plan}/{n}"}}}},
		Limits: []Limit{{Limit: perHour(100)}}, Cost: Cost{From: &Ref{Name: "path:n"}, Max: 50},
		Tiers: &Tiers{By: Ref{Name: "path:plan"}, Limits: map[string][]Limit{"pr%6f": {{Limit: perHour(1000)}}, "none": {{DenyAll: true}}}},
	}
	s, err := New(Config{Rules: []Rule{r}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path        string
		limit, cost int64 // 0: rejected
		err         error
	}{
		{"/free/items/7", 100, 7, nil},
		{"/pro/items/7", 1000, 7, nil},
		{"/v1/%70ro/8", 1000, 8, nil},
		{"/pro/items/70", 1000, 50, nil},
		{"/none/items/7", 0, 0, nil},
		{"/pro/items/x", 0, 0, ErrInvalidCost},
		{"/pro/items/0", 0, 0, ErrInvalidCost},
	} {
		q := &spellingRequest{}
		set(FieldPath, "", tt.path)(q)
		var m MatchResult
		err := s.Match(q, &m)
		switch {
		case !errors.Is(err, tt.err):
			t.Errorf("%s: %v, want %v", tt.path, err, tt.err)
		case err == nil && tt.limit == 0 && m.Outcome != MatchRejected, tt.limit != 0 && len(m.Takes) != 1:
			t.Errorf("%s: %v, %v", tt.path, m.Outcome, m.Takes)
		case tt.limit != 0 && (m.Takes[0].Limit.Count != tt.limit || m.Takes[0].Cost != tt.cost):
			t.Errorf("%s: limit %v, cost %d", tt.path, m.Takes[0].Limit, m.Takes[0].Cost)
		}
	}
	for _, tt := range []struct {
		name string
		edit func(*Rule)
		want string
	}{
		{"tiers without the segment", func(r *Rule) { r.Tiers.By.Name = "path:x" }, "tiers: the path /{plan}/items/{n} has no {x}"},
		{"cost without the segment", func(r *Rule) { r.Cost.From.Name = "path:x" }, "cost: the path /{plan}/items/{n} has no {x}"},
		{"tiers without a path", func(r *Rule) { r.Match = Match{} }, "tiers: path:plan needs a path with {plan}"},
		{"cost by path", func(r *Rule) { r.Cost.From.Name = "path" }, "a path is not a number"},
		{"cost by a default", func(r *Rule) { r.Cost.From.Name = "points" }, `the default of points is "many"`},
	} {
		c := r
		tiers, from := *r.Tiers, *r.Cost.From
		c.Tiers, c.Cost.From = &tiers, &from
		tt.edit(&c)
		many := "many"
		_, err := New(Config{Rules: []Rule{c}, Attributes: []Attribute{{Name: "points", Sources: []Ref{{Name: "header:X-Points"}}, Default: &many}}})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// A default is compared like a request's value.
func TestSpellingsOfDefaults(t *testing.T) {
	free := "FREE"
	s, err := New(Config{
		Attributes: []Attribute{{Name: "plan", Sources: []Ref{{Name: "header:X-Plan"}}, Lowercase: true, Default: &free}},
		Rules:      []Rule{{Name: "r", Limits: []Limit{{Limit: perHour(1)}}, Tiers: &Tiers{By: Ref{Name: "plan"}, Limits: map[string][]Limit{"Free": {{DenyAll: true}}}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var m MatchResult
	if err := s.Match(&spellingRequest{}, &m); err != nil || m.Outcome != MatchRejected {
		t.Errorf("the default does not choose its tier: %v, %v", m.Outcome, err)
	}
}
