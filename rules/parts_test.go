package rules_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/private"
	. "github.com/sluiceproject/sluice/rules"
)

// countedRules returns rules that count per every kind of attribute.
func countedRules(t testing.TB, change ...func(*Config)) *Set {
	t.Helper()
	cfg := Config{
		Attributes: []Attribute{
			{Name: "token", Sources: per("header:X-Token"), Secret: true},
			{Name: "team", Sources: per("header:X-Team"), Lowercase: true},
		},
		Rules: []Rule{
			{Name: "all", Limits: limit("10/s")},
			{Name: "user", Per: per("header:X-User"), Limits: limit("10/s", "100/h")},
			{Name: "ip", Per: per("ip"), Limits: limit("10/s")},
			{Name: "token", Per: per("token"), Limits: limit("10/s")},
			{Name: "cookie", Per: per("cookie:id", "ip"), Limits: limit("10/s")},
			{Name: "odd", Per: per("method", "host", "path", "team", "header:X-User"), Limits: limit("10/s")},
			{Name: "segment", Match: match(is("path", "/users/{id}/{what}")), Per: per("path:id", "path:what"), Limits: limit("10/s")},
			{Name: "one", Match: match(is("path", "/users/{id}/{what}")), Per: per("path:id"), EnforceBasisPoints: 50_00, Limits: limit("10/s")},
		},
	}
	for _, c := range change {
		c(&cfg)
	}
	return mustSet(t, cfg)
}

func partsText(parts []KeyPart) string {
	var all []string
	for _, p := range parts {
		all = append(all, p.Name+"="+p.Value)
	}
	return strings.Join(all, " ")
}

func TestParts(t *testing.T) {
	s := countedRules(t)
	for _, tt := range []struct {
		request *request
		want    map[string]string
	}{
		{req("GET /"), map[string]string{
			"all": "", "user": "header:X-User=(none)", "user#2": "header:X-User=(none)", "ip": "ip=(no address)", "token": "token=(none)",
			"cookie": "cookie:id=(none) ip=(no address)",
			"odd":    "method=GET host=(none) path=/ team=(none) header:X-User=(none)",
		}},
		{req("get /users/7/a%20b", "header:X-User", "ada", "ip", "2001:db8::7", "header:X-Token", "s3cr3t", "cookie:id", "s3cr3t",
			"header:X-Team", "Red", "host", "API.example.com:80"), map[string]string{
			"user": "header:X-User=ada", "ip": "ip=2001:db8::/64", "token": "token=~4fc21e81d5af486e426683df3caffe4e",
			"cookie":  "cookie:id=~4fc21e81d5af486e426683df3caffe4e ip=2001:db8::/64",
			"odd":     "method=GET host=api.example.com path=/users/7/a b team=red header:X-User=ada",
			"segment": "path:id=7 path:what=a b", "one": "path:id=7",
		}},
		{req("GET /", "header:X-User", "(none)", "ip", "192.0.2.1"), map[string]string{"user": `header:X-User="(none)"`, "ip": "ip=192.0.2.1"}},
		{req("GET /", "header:X-User", ""), map[string]string{"user": "header:X-User=(none)"}},
		{req("GET /", "header:X-User", "~7"), map[string]string{"user": `header:X-User="~7"`}},
		{req("GET /", "header:X-User", `"x"`), map[string]string{"user": `header:X-User="\"x\""`}},
		{req("GET /", "header:X-User", "a\r\n\x1b[31mb"), map[string]string{"user": `header:X-User="a\r\n\x1b[31mb"`}},
		{req("GET /", "header:X-User", "\x00-"), map[string]string{"user": `header:X-User="\x00-"`}},
		{req("GET /", "header:X-User", "\xff"), map[string]string{"user": `header:X-User="\xff"`}},
		{req("GET /", "header:X-User", "Zoë \"Z\" ok"), map[string]string{"user": `header:X-User=Zoë "Z" ok`}},
		{req("GET /", "host", "a.."), map[string]string{"odd": `method=GET host="a." path=/ team=(none) header:X-User=(none)`}},
	} {
		var m MatchResult
		if err := s.Match(tt.request, &m); err != nil {
			t.Fatal(err)
		}
		got := make(map[string]string)
		for _, take := range m.Takes {
			got[take.Rule.Name] = partsText(s.KeyParts(take.Rule, take.Key))
		}
		for name, want := range tt.want {
			if text, ok := got[name]; text != want || !ok {
				t.Errorf("%s: %s, want %s", name, text, want)
			}
		}
	}
}

// A key of another rule, or a rule of another set, is shown quoted on one line.
func TestPartsOfStrangers(t *testing.T) {
	s := countedRules(t)
	stranger := sluice.Must(sluice.NewRule(sluice.Rule{Name: "stranger", Limit: sluice.PerSecond(1)}))
	cookie := bucketsOf(t, s, "cookie", "cookie:id", "x", "ip", "192.0.2.1")[0].Rule
	for _, tt := range []struct {
		rule *sluice.Rule
		key  string
		want string
	}{
		{stranger, "a\nb", `key="a\nb"`},
		{cookie, "a\nb", `key="a\nb"`},
		{cookie, "\x00+\x01a", `key="\x00+\x01a"`},
		{cookie, "\x00+\xff\xff\xff\xff\xff\xff\xff\xff\x7fa", `key="\x00+\xff\xff\xff\xff\xff\xff\xff\xff\x7fa"`},
		{cookie, "\x00+\x05a", `key="\x00+\x05a"`},
		{cookie, "\x00+\x02\x00x\x01a", `key="\x00+\x02\x00x\x01a"`},
	} {
		if got := partsText(s.KeyParts(tt.rule, tt.key)); got != tt.want {
			t.Errorf("%q: %s, want %s", tt.key, got, tt.want)
		}
	}
}

func bucketsOf(t testing.TB, s *Set, rule string, pairs ...string) []sluice.Bucket {
	t.Helper()
	all, err := s.Buckets(rule, pairParts(pairs))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func pairParts(pairs []string) (parts []KeyPart) {
	for i := 0; i < len(pairs); i += 2 {
		parts = append(parts, KeyPart{pairs[i], pairs[i+1]})
	}
	return parts
}

// The key of a request is found by its values, and by the KeyParts of its key.
func TestBucketsLikeMatch(t *testing.T) {
	sets := []*Set{
		countedRules(t),
		countedRules(t, func(c *Config) { c.IgnorePathCase, c.DigestSecret, c.ClientIP.IPv6Prefix = true, []byte("k"), 56 }),
	}
	odd := []string{"", "ada", "Ada", "(none)", "~", `"`, `"x"`, "a b", "\x00", "\x00-", "\x00+", "\x00#", "\n", "\x1b[0m", "\xff", "é", "\u2028", "a..", "a.:1", "[::1]:2"}
	rapid.Check(t, func(t *rapid.T) {
		s := sets[rapid.IntRange(0, 1).Draw(t, "set")]
		text := rapid.OneOf(rapid.SampledFrom(odd), rapid.String())
		path := rapid.SampledFrom([]string{"/", "/users/7/x", "/Users/A%42/x", "/users/~/\"x\"", "/users/(none)/%C3%A9", "/users/100%25/y"})
		r := req(rapid.SampledFrom([]string{"GET", "get", "pOsT"}).Draw(t, "method") + " " + path.Draw(t, "path"))
		for _, name := range []string{"header:X-User", "header:X-Token", "header:X-Team", "cookie:id", "host"} {
			if rapid.Bool().Draw(t, name) {
				r.values[name] = text.Draw(t, name)
			}
		}
		r.ip = rapid.SampledFrom([]string{"", "192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1", "2001:db8:1:2:3:4:5:6", "2002:c000:201::1", "64:ff9b::1", "fe80::1"}).Draw(t, "ip")
		var m MatchResult
		if err := s.Match(r, &m); err != nil {
			t.Fatal(err)
		}
		for i := range m.Takes {
			take := &m.Takes[i]
			parts := s.KeyParts(take.Rule, take.Key)
			for _, p := range parts {
				if strings.ContainsAny(p.Value, "\r\n\x1b\x00\u2028") || !utf8.ValidString(p.Value) {
					t.Fatalf("%q cannot be printed", p.Value)
				}
			}
			if len(parts) > 1 {
				parts = rapid.Permutation(parts).Draw(t, "order")
			}
			all, err := s.Buckets(take.Rule.Name, parts)
			if err != nil {
				t.Fatalf("%s: %v", partsText(parts), err)
			}
			found := false
			for _, b := range all {
				found = found || b.Rule == take.Rule && b.Key == take.Key && private.CounterKind(b.EffectiveLimit()) == private.CounterKind(take.EffectiveLimit())
			}
			if !found || strings.Contains(take.Rule.Name, "#") && len(all) != 1 {
				t.Fatalf("%s: %+v, want a bucket with the key %q", partsText(parts), all, take.Key)
			}
		}
	})
}

// Values can be written as in requests.
func TestBucketsAsWritten(t *testing.T) {
	s := countedRules(t)
	full := req("get /users/7/x", "header:X-User", "ada", "ip", "2001:db8::7", "header:X-Token", "s3cr3t", "cookie:id", "~x",
		"header:X-Team", "Red", "host", "API.example.com:80")
	keys := make(map[string]string)
	var m MatchResult
	if err := s.Match(full, &m); err != nil {
		t.Fatal(err)
	}
	for _, take := range m.Takes {
		keys[take.Rule.Name] = strings.Clone(take.Key)
	}
	for rule, pairs := range map[string][]string{
		"all":     {},
		"user":    {"header:X-User", "ada"},
		"user#2":  {"header:X-User", `"ada"`},
		"ip":      {"ip", "2001:db8:0:0:ffff::1"},
		"token":   {"token", "s3cr3t"},
		"cookie":  {"ip", "2001:db8::/64", "cookie:id", `"~x"`},
		"odd":     {"method", "Get", "host", "api.example.COM", "path", "/users/./7/x", "team", "RED", "header:X-User", "ada"},
		"segment": {"path:what", "x", "path:id", "7"},
	} {
		all := bucketsOf(t, s, rule, pairs...)
		for _, b := range all {
			if b.Key != keys[b.Rule.Name] {
				t.Errorf("%s %q: key %q, want %q", rule, pairs, b.Key, keys[b.Rule.Name])
			}
		}
		if want := map[string]int{"user": 2}[rule]; len(all) != max(1, want) {
			t.Errorf("%s: %d buckets", rule, len(all))
		}
	}
}

func TestBucketsTeach(t *testing.T) {
	s := countedRules(t, func(c *Config) {
		c.Rules = append(c.Rules, Rule{Name: "off", Disabled: true, Limits: limit("1/s")}, Rule{
			Name: "own", Per: per("header:X-User"), Limits: limit("1/s"),
			Overrides: []Override{{Key: []string{"root"}, Limits: limit("unlimited")}},
		})
	})
	for _, tt := range []struct {
		rule  string
		pairs []string
		want  string
	}{
		{"users", nil, `no active rule has this name: "users": did you mean "user"?`},
		{"completely different", nil, `no active rule has this name: "completely different": there are all, cookie, ip, odd, one, own, segment, token, user`},
		{"off", nil, `no active rule has this name: "off" is not enabled`},
		{"all", []string{"ip", "1.2.3.4"}, `rule all: "ip" is not part of the key; the rule counts all requests together: give no key`},
		{"cookie", []string{"ip", "1.2.3.4"}, `rule cookie: "cookie:id" is missing; the rule counts per cookie:id, ip: give a value for each`},
		{"user", []string{"header:X-User", "a", "ip", "1.2.3.4"}, `rule user: "ip" is not part of the key; the rule counts per header:X-User: give a value for each`},
		{"user", []string{"header:X-User", "a", "header:X-User", "b"}, `rule user: "header:X-User" is given twice`},
		{"user", []string{"header:X-User", `"a`}, `rule user: header:X-User: "\"a": a value that begins with a quote must be quoted`},
		{"user", []string{"header:X-User", strings.Repeat("x", 8<<10+1)}, `rule user: header:X-User: has 8193 bytes, at most 8192 are allowed`},
		{"ip", []string{"ip", "ada"}, `rule ip: ip: "ada" is not an address or a prefix: write one such as 192.0.2.1`},
		{"ip", []string{"ip", "10.0.0.0/8"}, `rule ip: ip: 10.0.0.0/8 is not the prefix of one client, such as 10.0.0.0/32: write a client's address; for a network write a rule with match: {ip: 10.0.0.0/8}`},
		{"ip", []string{"ip", "2001:db8::/48"}, `rule ip: ip: 2001:db8::/48 is not the prefix of one client, such as 2001:db8::/64: write a client's address; for a network write a rule with match: {ip: 2001:db8::/48}`},
		{"token", []string{"token", "~12"}, `rule token: token: write ~ and the 32 digits of the digest, or the secret itself, quoted`},
		{"odd", []string{"method", "GET", "host", "h", "path", "/%zz", "team", "a", "header:X-User", "u"}, "rule odd: path: the path is ambiguous or malformed: percent sign without"},
		{"own", []string{"header:X-User", "root"}, "rule own: no bucket for this key: its override or tier is unlimited or deny"},
	} {
		_, err := s.Buckets(tt.rule, pairParts(tt.pairs))
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s %.80q:\n     %v\nwant %s", tt.rule, tt.pairs, err, tt.want)
		}
	}
}

// A key does not determine its tier, so that all possible limits are returned; the tier's value chooses one.
func TestTierBuckets(t *testing.T) {
	s := mustSet(t, Config{Rules: []Rule{{
		Name: "r", Per: per("header:X-User"), Limits: limit("10/s"),
		Tiers: &Tiers{By: Ref{Name: "claim:plan"}, Limits: map[string][]Limit{
			"paid": limit("100/s"), "free": limit("5/min"), "staff": limit("unlimited"),
		}},
		Overrides: []Override{{Key: []string{"root"}, Limits: limit("7/min")}},
	}, {
		Name: "by", Per: per("header:X-User", "claim:plan"), Limits: limit("10/s"),
		Tiers: &Tiers{By: Ref{Name: "claim:plan"}, Limits: map[string][]Limit{"paid": limit("100/s")}},
	}}})
	for _, tt := range []struct {
		rule  string
		pairs []string
		want  string
	}{
		{"r", []string{"header:X-User", "ada"}, "10/s, claim:plan=free 5/min, claim:plan=paid 100/s"},
		{"r", []string{"header:X-User", "ada", "claim:plan", "paid"}, "claim:plan=paid 100/s"},
		{"r", []string{"header:X-User", "ada", "claim:plan", "other"}, "10/s"},
		{"r", []string{"header:X-User", "ada", "claim:plan", "(none)"}, "10/s"},
		{"r", []string{"header:X-User", "root", "claim:plan", "paid"}, "7/min"},
		{"r", []string{"header:X-User", "ada", "claim:plan", "staff"}, "rule r: no bucket for this key: its override or tier is unlimited or deny"},
		{"by", []string{"header:X-User", "ada", "claim:plan", "paid"}, "claim:plan=paid 100/s"},
		{"by", []string{"header:X-User", "ada", "claim:plan", "other"}, "10/s"},
	} {
		all, err := s.TierBuckets(tt.rule, pairParts(tt.pairs))
		var got []string
		for _, b := range all {
			got = append(got, strings.TrimSpace(b.Tier+" "+b.Limit.String()))
		}
		if err != nil {
			got = append(got, err.Error())
		}
		if got := strings.Join(got, ", "); got != tt.want {
			t.Errorf("%s %q: %s, want %s", tt.rule, tt.pairs, got, tt.want)
		}
	}
}

// Tiers of another kind have other buckets, and an override's limit applies to its key.
func TestBucketsOfTiers(t *testing.T) {
	s := mustSet(t, Config{Rules: []Rule{{
		Name: "r", Per: per("header:X-User"), Limits: limit("10/s"),
		Tiers: &Tiers{By: Ref{Name: "claim:plan"}, Limits: map[string][]Limit{
			"paid": limit("100/s"), "free": append([]Limit{{Limit: sluice.PerMinute(5).WithAlgorithm(sluice.FixedWindow)}}, limit("50/h")...), "staff": limit("unlimited"),
		}},
		Overrides: []Override{{Key: []string{"root"}, Limits: []Limit{{Limit: sluice.PerMinute(7).WithAlgorithm(sluice.SlidingWindowLog)}}}},
	}}})
	for user, want := range map[string]string{
		"ada":  "r 10/s, r 5/min fixed_window, r#2 50/h",
		"root": "r 7/min sliding_window_log",
	} {
		var got []string
		for _, b := range bucketsOf(t, s, "r", "header:X-User", user) {
			got = append(got, fmt.Sprintf("%s %v", b.Rule.Name, b.EffectiveLimit()))
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%s: %s, want %s", user, text, want)
		}
	}
}
