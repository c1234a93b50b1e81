package rules_test

import (
	"errors"
	"fmt"
	"testing"

	. "github.com/sluiceproject/sluice/rules"
)

// outcomeOf returns the outcome of a request in one word; 400 means an error.
func outcomeOf(t *testing.T, s *Set, r Request) string {
	t.Helper()
	var m MatchResult
	err := s.Match(r, &m)
	e := s.Explain(r)
	if fmt.Sprint(e.Err) != fmt.Sprint(err) || err == nil && (e.Outcome != m.Outcome || len(e.Takes) != len(m.Takes)) {
		t.Errorf("explained as %v %v, matched as %v %v", e.Outcome, e.Err, m.Outcome, err)
	}
	switch {
	case errors.Is(err, ErrAmbiguous) || errors.Is(err, ErrInvalidCost) || errors.Is(err, ErrAttributeTooLong):
		return "400"
	case err != nil:
		t.Fatal(err)
	case m.Outcome == MatchRejected:
		return "403"
	case m.Outcome == MatchExempt:
		return "exempt"
	case m.Outcome == MatchLimited && len(m.Takes) > 0:
		return fmt.Sprintf("limited by %d", len(m.Takes))
	}
	return "unlimited"
}

// The deny list comes before the allow list, and that before the rules. Among the rules 400 comes before 403, in any
// order of rules and with any other rules.
func TestPrecedence(t *testing.T) {
	rule := func(name string, m Match, missing OnMissing, by ...string) Rule {
		return Rule{Name: name, Match: m, Per: per(by...), OnMissing: missing, Limits: limit("10/s")}
	}
	reads := rule("reads", match(is("header:X-A", "b")), MissingShare)
	counts := rule("counts", Match{}, MissingShare, "header:X-A")
	needs := rule("needs", Match{}, MissingReject, "header:X-B")
	for _, all := range [][]Rule{{reads, needs}, {needs, reads}, {counts, needs}, {needs, counts}, {counts, needs, reads}} {
		cfg := Config{
			DenyList: []Match{match(is("ip", "203.0.113.0/24")), match(is("header:X-Deny", "yes"))}, AllowList: []Match{match(is("ip", "192.0.2.0/24")), match(is("path", "/ok"))}, Rules: all,
		}
		s := mustSet(t, cfg)
		for want, requests := range map[string][]Request{
			"403":    {req("GET /ok", "ip", "203.0.113.1", "header:X-A", "twice"), req("GET /ok", "header:X-Deny", "yes", "header:X-A", "twice"), req("GET /"), req("GET /", "header:X-A", "b")},
			"exempt": {req("GET /", "ip", "192.0.2.1", "header:X-A", "twice"), req("GET /ok", "header:X-A", "twice"), req("GET /ok")},
			"400":    {req("GET /", "header:X-A", "twice"), req("GET /", "header:X-A", "twice", "header:X-B", "d"), req("GET /ok", "header:X-Deny", "twice")},
		} {
			for i, r := range requests {
				if got := outcomeOf(t, s, r); got != want {
					t.Errorf("rules %s…, request %d: %s, want %s", all[0].Name, i, got, want)
				}
			}
		}
	}
}

// Also within one rule 400 comes before 403: an unreadable attribute, tier or cost comes before a missing one, and
// before a key that an override or a tier denies. A rule that does not apply, or is in shadow mode, returns neither.
func TestPrecedenceInRule(t *testing.T) {
	base := Rule{
		Name: "r", Per: per("header:X-U"), OnMissing: MissingReject, Limits: limit("5/h"), Cost: Cost{From: &Ref{Name: "header:X-C"}},
		Tiers:     &Tiers{By: Ref{Name: "header:X-T"}, Limits: map[string][]Limit{"never": limit("deny")}},
		Overrides: []Override{{Key: []string{"banned"}, Limits: limit("deny")}},
	}
	two := base
	two.Per, two.Overrides = per("header:X-U", "header:X-V"), nil
	skips := base
	skips.OnMissing = MissingSkip
	shadow := base
	shadow.Shadow = true
	for _, tt := range []struct {
		rule Rule
		want string
		with []string
	}{
		{base, "403", nil},
		{base, "403", []string{"header:X-C", "2"}},
		{base, "400", []string{"header:X-C", "abc"}},
		{base, "400", []string{"header:X-C", "0"}},
		{base, "400", []string{"header:X-C", "twice"}},
		{base, "400", []string{"header:X-T", "twice"}},
		{base, "403", []string{"header:X-T", "never"}},
		{base, "400", []string{"header:X-T", "never", "header:X-C", "abc"}},
		{base, "403", []string{"header:X-U", "banned"}},
		{base, "400", []string{"header:X-U", "banned", "header:X-C", "abc"}},
		{base, "limited by 1", []string{"header:X-U", "u", "header:X-C", "2"}},
		{two, "400", []string{"header:X-U", "u", "header:X-C", "abc"}},
		{two, "400", []string{"header:X-V", "twice"}},
		{skips, "unlimited", []string{"header:X-C", "abc"}},
		{shadow, "unlimited", []string{"header:X-C", "abc"}},
	} {
		s := mustSet(t, Config{Rules: []Rule{tt.rule}})
		if got := outcomeOf(t, s, req("GET /", tt.with...)); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.with, got, tt.want)
		}
	}
}

// An empty value counts as missing: for keys, tiers, costs and conditions.
func TestEmptyValues(t *testing.T) {
	yes := true
	for _, ref := range []string{"header:X-A", "query:a", "cookie:a", "claim:a", "attr:a", "declared", "basic_user"} {
		given := ref
		attributes := []Attribute{{Name: "unused", Sources: per("header:X-Unused")}}
		if ref == "declared" {
			given = "header:X-C"
			attributes = []Attribute{{Name: "declared", Sources: per("header:X-C", "header:X-D")}}
		}
		tiers := &Tiers{By: Ref{Name: ref}, Limits: map[string][]Limit{"pro": limit("20/s")}}
		for name, r := range map[string]Rule{
			"share":   {Per: per(ref)},
			"skip":    {Per: per(ref), OnMissing: MissingSkip},
			"reject":  {Per: per(ref), OnMissing: MissingReject},
			"two":     {Per: per(ref, "ip"), OnMissing: MissingReject},
			"present": {Match: Match{Predicates: []Predicate{{Ref: Ref{Name: ref}, Present: &yes}}}},
			"not":     {Match: Match{Predicates: []Predicate{{Ref: Ref{Name: ref}, Not: true, Values: []string{"x"}}}}},
			"prefix":  {Match: Match{Predicates: []Predicate{{Ref: Ref{Name: ref}, Prefixes: []string{""}}}}},
			"tiers":   {Tiers: tiers},
			"cost":    {Cost: Cost{From: &Ref{Name: ref}, Default: 3}},
		} {
			r.Name, r.Limits = "r", limit("10/s")
			s := mustSet(t, Config{Attributes: attributes, Rules: []Rule{r}})
			want, got := matched(t, s, req("GET /", "ip", "192.0.2.1")), matched(t, s, req("GET /", "ip", "192.0.2.1", given, ""))
			if got != want {
				t.Errorf("%s %s: an empty value gives %s, none gives %s", ref, name, got, want)
			}
		}
	}
	s := mustSet(t, Config{Attributes: []Attribute{{Name: "declared", Sources: per("header:X-C", "header:X-D")}}, Rules: []Rule{{Name: "r", Per: per("declared"), Limits: limit("10/s")}}})
	if got := matched(t, s, req("GET /", "header:X-C", "", "header:X-D", "d")); got != `r "d" 10/s` && got != `r "d"` {
		t.Errorf("the second source does not count: %s", got)
	}
}

// A rule with per: ip counts IPv6 per subscriber, by default a /64. An override applies to a subscriber, given by an
// address or as a prefix. Conditions on ip are about single addresses.
func TestIPv6Overrides(t *testing.T) {
	const wide, narrow = "10/s", "1/s"
	for _, tt := range []struct {
		bits                  int
		override, from, limit string // limit "": an error
	}{
		{64, "2001:db8::1", "2001:db8::1", narrow},
		{64, "2001:db8::1", "2001:db8::ffff", narrow}, // another address of the same subscriber
		{64, "2001:db8::1", "2001:db8:0:1::1", wide},
		{64, "2001:DB8:0:0:0::1", "2001:db8::2", narrow},
		{64, "2001:db8::/64", "2001:db8::1", narrow},
		{64, "2001:db8::7/64", "2001:db8::1", ""},
		{64, "2001:db8::/48", "2001:db8::1", ""},
		{64, "2001:db8::/80", "2001:db8::1", ""},
		{64, "2001:db8::1/128", "2001:db8::1", narrow},
		{128, "2001:db8::1", "2001:db8::1", narrow},
		{128, "2001:db8::1", "2001:db8::2", wide},
		{128, "2001:db8::/64", "2001:db8::1", ""},
		{48, "2001:db8::1", "2001:db8:0:ff::1", narrow},
		{64, "::ffff:192.0.2.1", "192.0.2.1", narrow},
		{64, "192.0.2.1", "::ffff:192.0.2.1", narrow},
		{64, "192.0.2.1", "192.0.2.2", wide},
		{64, "192.0.2.0/24", "192.0.2.1", ""},
	} {
		s, err := New(Config{ClientIP: ClientIP{IPv6Prefix: tt.bits}, Rules: []Rule{{
			Name: "r", Per: per("ip"), Limits: limit(wide), Overrides: []Override{{Key: []string{tt.override}, Limits: limit(narrow)}},
		}}})
		if err != nil || tt.limit == "" {
			if (err != nil) != (tt.limit == "") {
				t.Errorf("/%d, override for %s: %v", tt.bits, tt.override, err)
			}
			continue
		}
		var m MatchResult
		if err := s.Match(req("GET /", "ip", tt.from), &m); err != nil {
			t.Fatal(err)
		}
		if got := m.Takes[0].EffectiveLimit().String(); got != tt.limit {
			t.Errorf("/%d, override for %s: %s has %s, want %s", tt.bits, tt.override, tt.from, got, tt.limit)
		}
	}
	_, err := New(Config{Rules: []Rule{{Name: "r", Per: per("ip"), Limits: limit(wide), Overrides: []Override{
		{Key: []string{"2001:db8::1"}, Limits: limit(narrow)}, {Key: []string{"2001:db8::2"}, Limits: limit(narrow)},
	}}}})
	if err == nil {
		t.Error("two overrides for one subscriber are no error")
	}
	s := mustSet(t, Config{DenyList: []Match{match(is("ip", "2001:db8::1"))}})
	if a, b := outcomeOf(t, s, req("GET /", "ip", "2001:db8::1")), outcomeOf(t, s, req("GET /", "ip", "2001:db8::2")); a != "403" || b != "unlimited" {
		t.Errorf("a denied address is %s, another of its /64 %s", a, b)
	}
}
