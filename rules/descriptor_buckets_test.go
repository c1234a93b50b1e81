package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluiceproject/sluice"
)

// The key of a descriptor is found by its entries, and by the KeyParts of its key.
func TestBucketsLikeMatchDescriptors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawTree(t)
		s, err := New(Config{Domains: []Domain{d}})
		if err != nil {
			t.Fatal(err)
		}
		var m DescriptorMatches
		for range rapid.IntRange(1, 20).Draw(t, "requests") {
			entries := drawEntries(t, &d)
			s.MatchDescriptors("d", []Descriptor{{Entries: entries}}, &m)
			for _, take := range m.Takes {
				var raw []KeyPart
				for _, e := range entries {
					raw = append(raw, KeyPart{showValue(e.Key), showValue(e.Value)})
				}
				for _, parts := range [][]KeyPart{raw, s.KeyParts(take.Rule, take.Key)} {
					all, err := s.Buckets(take.Rule.Name, parts)
					if err != nil || len(all) != 1 || all[0].Rule != take.Rule || all[0].Key != take.Key {
						t.Fatalf("%s, %q: %+v, %v, want the key %q", take.Rule.Name, parts, all, err, take.Key)
					}
				}
			}
		}
	})
}

func TestDescriptorBuckets(t *testing.T) {
	several := limited("tenant", "", limited("path", "/a/*").with(func(r *DescriptorRule) { r.ShareThreshold = true }), limited("path", "/a/b"))
	several.Limits = append(perMinute(1), Limit{Name: "day", Limit: sluice.Per(9, 24*time.Hour)})
	long := strings.Repeat("x", 300)
	s, err := New(Config{Domains: []Domain{{Name: "d", Descriptors: forest{
		several, limited("kind", "login", limited("ip", "")), limited("k*", ""), limited(long, ""),
		limited("free", "").with(unlimited), node("none", ""),
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		rule  string
		parts []KeyPart
		want  string // the KeyParts of the key, or the error
		n     int
	}{
		{"d/tenant", []KeyPart{{"tenant", "a"}}, "tenant=a", 2},
		{"d/tenant#day", []KeyPart{{"tenant", "a"}}, "tenant=a", 1},
		{`d/tenant/path="/a/*"`, []KeyPart{{"tenant", "a"}, {"path", "/a/x"}}, "tenant=a path=/a/*", 1},
		{`d/tenant/path="/a/*"`, []KeyPart{{"path", "/a/x"}, {"tenant", "a"}}, "tenant=a path=/a/*", 1},
		{`d/tenant/path="/a/b"`, []KeyPart{{"tenant", "a\nb"}}, `tenant="a\nb" path=/a/b`, 1},
		{"d/kind=login", nil, "kind=login", 1},
		{"d/kind=login/ip", []KeyPart{{"ip", "\x00"}}, `kind=login ip="\x00"`, 1},
		{"d/k*", []KeyPart{{"kxy", "v"}}, "kxy=v", 1},
		{"d/" + long, []KeyPart{{long, "v"}}, "", 0},
		{shortName("d/" + long), []KeyPart{{long, "v"}}, long + "=v", 1},
		{"d/tenant", nil, "rule d/tenant: counted per tenant: give a value for each", 0},
		{"d/tenant", []KeyPart{{"tenant", "a"}, {"x", "b"}}, "rule d/tenant: counted per tenant: give a value for each", 0},
		{"d/tenant", []KeyPart{{"user", "a"}}, "rule d/tenant: does not apply to user=a", 0},
		{"d/tenant", []KeyPart{{"tenant", `"a`}}, "rule d/tenant: tenant: ", 0},
		{`d/tenant/path="/a/*"`, []KeyPart{{"tenant", "a"}, {"path", "/a/b"}}, `rule d/tenant/path="/a/*": does not apply to path="/a/b", which belongs to d/tenant/path="/a/b"`, 0},
		{"d/free", []KeyPart{{"free", "a"}}, `no active rule has this name: "d/free"`, 0},
		{"d/none", []KeyPart{{"none", "a"}}, `no active rule has this name: "d/none"`, 0},
	} {
		all, err := s.Buckets(tt.rule, tt.parts)
		if tt.n == 0 {
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("%s %q:\n     %v\nwant %s", tt.rule, tt.parts, err, tt.want)
			}
			continue
		}
		if err != nil || len(all) != tt.n {
			t.Errorf("%s %q: %d buckets, %v", tt.rule, tt.parts, len(all), err)
			continue
		}
		var texts []string
		for _, p := range s.KeyParts(all[0].Rule, all[0].Key) {
			texts = append(texts, p.Name+"="+p.Value)
		}
		if got := strings.Join(texts, " "); got != tt.want {
			t.Errorf("%s %q: %s, want %s", tt.rule, tt.parts, got, tt.want)
		}
	}
	var counted []string
	for _, c := range s.ActiveRules() {
		counted = append(counted, fmt.Sprintf("%.20s %.20s %d", c.Name, strings.Join(c.Per, "+"), len(c.Rules)))
	}
	if got, want := strings.Join(counted, ", "), `d/tenant tenant 2, d/tenant/path="/a/*" tenant+path 1, d/tenant/path="/a/b" tenant+path 1, `+
		"d/kind=login kind 1, d/kind=login/ip kind+ip 1, d/k* k* 1, d/xxxxxxxxxxxxxxxxxx xxxxxxxxxxxxxxxxxxxx 1"; got != want {
		t.Errorf("they count: %s\nwant %s", got, want)
	}
	if names := s.RuleNames(); len(names) != 7 || !slices.IsSorted(names) {
		t.Errorf("the rules are %q", names)
	}
}

// The keys of limits that requests bring are decoded too.
func TestPartsOfBroughtLimits(t *testing.T) {
	s, err := New(Config{Domains: []Domain{{Name: "d", Descriptors: forest{limited("k", "")}}}})
	if err != nil {
		t.Fatal(err)
	}
	own, _ := sluice.PerMinute(3).Build()
	var m DescriptorMatches
	s.MatchDescriptors("d", []Descriptor{{Entries: []Entry{{"a", "b"}, {"a", "c"}}, Limit: own}}, &m)
	if got := s.KeyParts(m.Takes[0].Rule, m.Takes[0].Key); !slices.Equal(got, []KeyPart{{"a", "b"}, {"a", "c"}}) {
		t.Errorf("%q", got)
	}
}

// A pattern that counts many values together is found as written, even if another rule's pattern would match it.
func TestBucketsOfSharedPatterns(t *testing.T) {
	s, err := New(Config{Domains: []Domain{{Name: "d", Descriptors: forest{
		limited("k*", "k*_v"), limited("k*", "v").with(func(r *DescriptorRule) { r.ShareThreshold = true }),
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	var m DescriptorMatches
	s.MatchDescriptors("d", []Descriptor{{Entries: []Entry{{"kab", "v"}}}}, &m)
	parts := s.KeyParts(m.Takes[0].Rule, m.Takes[0].Key)
	all, err := s.Buckets("d/k*=v", parts)
	if err != nil || all[0].Key != m.Takes[0].Key || parts[0].Value != "k*_v" {
		t.Errorf("%q: %+v, %v", parts, all, err)
	}
}
