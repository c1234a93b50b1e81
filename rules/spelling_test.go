package rules_test

import (
	"net/netip"
	"strings"
	"testing"

	. "github.com/sluiceproject/sluice/rules"
)

// spelt are values of overrides and tiers in spellings that are not those that requests count by, and a request that each
// is about.
var spelt = []struct {
	name, per, written string
	path               string // of the rule
	ignoreCase, lower  bool
	request            func(*spellingRequest)
	same               bool // it is the spelling that counts: no warning
}{
	{name: "IPv4", per: "ip", written: "192.0.2.1", same: true, request: from("192.0.2.1")},
	{name: "IPv4 prefix of one", per: "ip", written: "192.0.2.1/32", request: from("192.0.2.1")},
	{name: "IPv4 mapped", per: "ip", written: "::ffff:192.0.2.1", request: from("192.0.2.1")},
	{name: "IPv4 mapped, in hexadecimal", per: "ip", written: "::ffff:c000:201", request: from("192.0.2.1")},
	{name: "request that is mapped", per: "ip", written: "192.0.2.1", same: true, request: from("::ffff:192.0.2.1")},
	{name: "IPv6 address", per: "ip", written: "2001:db8::7", request: from("2001:db8::1")},
	{name: "IPv6 in full", per: "ip", written: "2001:0DB8:0:0:0:0:0:1", request: from("2001:db8::1")},
	{name: "IPv6 prefix", per: "ip", written: "2001:db8::/64", same: true, request: from("2001:db8::1")},
	{name: "method", per: "method", written: "get", request: set(Method, "", "GET")},
	{name: "HEAD of GET", per: "method", written: "GET", same: true, request: set(Method, "", "HEAD")},
	{name: "HEAD of get", per: "method", written: "get", request: set(Method, "", "HEAD")},
	{name: "host's case", per: "host", written: "API.Example.COM", request: set(Host, "", "api.example.com")},
	{name: "host's port", per: "host", written: "api.example.com:8443", request: set(Host, "", "api.example.com")},
	{name: "host's dot", per: "host", written: "api.example.com.", request: set(Host, "", "api.example.com:443")},
	{name: "lower", per: "device", written: "AbC", lower: true, request: set(Header, "X-Device", "aBc")},
	{name: "cookie", per: "cookie:sess", written: "abc", same: true, request: set(Cookie, "sess", "abc")},
	{name: "cookie in escapes", per: "cookie:sess", written: `"%61bc%20d "`, same: true, request: set(Cookie, "sess", "abc+d")},
	{name: "path", per: "path", written: "/Posts/../a%62c/", request: set(Path, "", "/abc")},
	{name: "path without case", per: "path", written: "/ABC", ignoreCase: true, request: set(Path, "", "/abc")},
	{name: "segment", per: "path:id", path: "/users/{id}", written: "a%62c", request: set(Path, "", "/users/abc")},
	{name: "segment without case", per: "path:id", path: "/users/{id}", written: "ABC", ignoreCase: true, request: set(Path, "", "/users/abc")},
	{name: "segment not composed", per: "path:id", path: "/users/{id}", written: "e\u0301", request: set(Path, "", "/users/%C3%A9")},
}

// spellingRequest is a request with one attribute.
type spellingRequest struct {
	addr  netip.Addr
	field Field
	value string
	found Found
}

func from(addr string) func(*spellingRequest) {
	return func(r *spellingRequest) { r.addr = netip.MustParseAddr(addr) }
}

func set(k Kind, name, value string) func(*spellingRequest) {
	return func(r *spellingRequest) { r.field, r.value, r.found = Field{Kind: k, Name: name}, value, Present }
}

func (r *spellingRequest) Addr() netip.Addr { return r.addr }

func (r *spellingRequest) Attribute(f *Field) (string, Found) {
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
		Attributes: []Attribute{{Name: "device", From: []Ref{{Name: "header:X-Device"}}, Lower: lower}},
		Rules:      []Rule{r}, IgnorePathCase: ignoreCase, ClientIP: ClientIP{At: Position{Line: 1}},
	}
}

// A value of overrides or tiers chooses the limits of every request that match would find by it, and a spelling that is
// not the one that counts is warned of.
func TestSpellingsOfOverridesAndTiers(t *testing.T) {
	for _, tt := range spelt {
		for _, place := range []string{"overrides", "tiers", "overrides of two"} {
			cfg := spellingConfig(tt.per, tt.path, tt.ignoreCase, tt.lower)
			r := &cfg.Rules[0]
			never := []Limit{{Never: true}}
			switch place {
			case "overrides":
				r.Overrides = []Override{{Key: []string{tt.written}, Limits: never}}
			case "overrides of two":
				r.Per = append(r.Per, Ref{Name: "header:X-Other"})
				r.Overrides = []Override{{Key: []string{tt.written, "x"}, Limits: never}}
			case "tiers":
				if tt.per == "ip" || tt.path != "" {
					continue // which tiers cannot choose by
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
			var m Matched
			if err := s.Match(request, &m); err != nil || m.Verdict != Refused {
				t.Errorf("%s, %s: %q does not find the request: %v, %v", tt.name, place, tt.written, m.Verdict, err)
			}
			warned := false
			for _, w := range s.Warnings() {
				warned = warned || strings.Contains(w.Msg, " counts as ")
			}
			if warned == tt.same {
				t.Errorf("%s, %s: warnings are %v", tt.name, place, s.Warnings())
			}
		}
	}
}

// withOther has a second attribute.
type withOther struct{ *spellingRequest }

func (r *withOther) Attribute(f *Field) (string, Found) {
	if f.Kind == Header && f.Name == "X-Other" {
		return "x", Present
	}
	return r.spellingRequest.Attribute(f)
}

// What overrides and tiers cannot mean is an error, and what no request has is warned of.
func TestSpellingsThatMeanNothing(t *testing.T) {
	for _, tt := range []struct{ per, path, written, want string }{
		{"ip", "", "10.0.0.0/8", "is not what the rules count by"},
		{"ip", "", "2001:db8::/32", "is not what the rules count by"},
		{"ip", "", "2001:db8::/96", "is not what the rules count by"},
		{"ip", "", "::ffff:10.0.0.0/104", "is not what the rules count by"},
		{"ip", "", "mallory", "is not an address"},
		{"path", "", "posts", "does not begin with a slash"},
		{"path", "", "/a%2fb", "escaped slash"},
		{"path:id", "/users/{id}", "a/b", "is not a segment"},
		{"path:id", "/users/{id}", "a.", "counts as \"a\""},
		{"path:id", "/users/{id}", "100%", "is not a segment"},
		{"host", "", "*.example.com", "is never matched"},
		{"header:X-User", "", " ada", "is never matched"},
		{"header:X-User", "", strings.Repeat("a", MaxValue+1), "is never matched"},
	} {
		cfg := spellingConfig(tt.per, tt.path, false, false)
		cfg.Rules[0].Overrides = []Override{{Key: []string{tt.written}, Limits: []Limit{{Never: true}}}}
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
	cfg.Rules[0].Tiers = &Tiers{By: Ref{Name: "ip"}, Limits: map[string][]Limit{"192.0.2.1": {{Never: true}}}}
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "tiers: by: ip chooses nothing") {
		t.Errorf("tiers by ip: %v", err)
	}
	cfg = spellingConfig("method", "", false, false)
	cfg.Rules[0].Tiers = &Tiers{By: Ref{Name: "method"}, Limits: map[string][]Limit{"get": {{Never: true}}, "GET": {{Never: true}}}}
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "stands there twice") {
		t.Errorf("two spellings of a tier: %v", err)
	}
	cfg = spellingConfig("method", "", false, false)
	cfg.Rules[0].Overrides = []Override{{Key: []string{"GET"}, Limits: []Limit{{Never: true}}}, {Key: []string{"HEAD"}, Limits: []Limit{{Unlimited: true}}}}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	q := &spellingRequest{}
	set(Method, "", "HEAD")(q)
	var m Matched
	if err := s.Match(q, &m); err != nil || m.Verdict == Refused {
		t.Errorf("an override of HEAD counts less than that of GET: %v, %v", m.Verdict, err)
	}
}

// A cookie's value in a match means what it means in a request, in any spelling.
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
		s, err := New(Config{Deny: []Match{{Predicates: []Predicate{tt.condition}}}})
		if err != nil {
			t.Fatal(err)
		}
		q := &spellingRequest{}
		set(Cookie, "sess", "s:a+b")(q)
		var m Matched
		if err := s.Match(q, &m); err != nil || (m.Verdict == Refused) != tt.want {
			t.Errorf("%v: %v, %v", &tt.condition, m.Verdict, err)
		}
	}
	for _, p := range []Predicate{{Values: []string{"100%"}}, {Prefixes: []string{"s%3"}}, {Suffixes: []string{"%"}}} {
		p.Ref.Name = "cookie:sess"
		if _, err := New(Config{Deny: []Match{{Predicates: []Predicate{p}}}}); err == nil || !strings.Contains(err.Error(), "write %25") {
			t.Errorf("%v: %v", &p, err)
		}
	}
}
