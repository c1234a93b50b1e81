package rules

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestWildcardLanguage(t *testing.T) {
	tests := []struct {
		pattern string
		yes, no []string
	}{
		{"*", []string{"", "a", "a_b", "a/b", "*", "\n", "\xff"}, nil},
		{"**", []string{"", "a", "*"}, nil},
		{"bar*b", []string{"barb", "barab", "bar/_b", "bar*b"}, []string{"bara", "xbarb", "bar", "ba", "barbx", ""}},
		{
			"foo*bar*baz",
			[]string{"foobarbaz", "foo1bar2baz", "foobarbarbaz", "foo*bar*baz"},
			[]string{"foobaz", "foobarba", "foobazbar", "barbaz"},
		},
		{"foo*", []string{"foo", "foobar", "foo/bar", "foo_bar"}, []string{"fo", "xfoo", "Foo"}},
		{
			"*.example.com",
			[]string{".example.com", "a.example.com", "a.b.example.com"},
			[]string{"example.com", "a.example.com."},
		},
		// The start and the end must not overlap.
		{"ab*ba", []string{"abba", "abxba"}, []string{"aba", "ab", "ba"}},
		{"aa*aa", []string{"aaaa", "aaaaa"}, []string{"aaa", "aa"}},
		// The literals between are matched leftmost, between the two ends.
		{"a*b*b", []string{"abb", "axbxb"}, []string{"ab", "axb"}},
		{"a*aa*a", []string{"aaaa", "abaaba"}, []string{"aaa", "ababa"}},
		{"*ab*ab*", []string{"abab", "xabyabz"}, []string{"ab", "aba"}},
		{"x*ab*abc*y", []string{"xababcy", "xab-abcy"}, []string{"xabcy", "xabab_y"}},
		{"a**b", []string{"ab", "axb"}, []string{"a", "b"}},
		{"a?c*", []string{"a?c"}, []string{"abc"}},
		{"[a]*", []string{"[a]x"}, []string{"ax"}},
		{`a\*`, []string{`a\`, `a\x`}, []string{"a", "a*"}},
	}
	for _, tt := range tests {
		p := newCompositePattern(tt.pattern)
		for _, text := range tt.yes {
			if !p.matches(text) {
				t.Errorf("%q does not match %q", tt.pattern, text)
			}
		}
		for _, text := range tt.no {
			if p.matches(text) {
				t.Errorf("%q matches %q", tt.pattern, text)
			}
		}
	}
}

func FuzzCompositePattern(f *testing.F) {
	f.Add("bar*b", "barab")
	f.Add("foo*bar*baz", "foobarbaz")
	f.Add("**", "")
	f.Add("a*aa*a", "aaaa")
	f.Add("\xff*\x00", "\xff\xfe\x00")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if !strings.Contains(pattern, "*") || len(pattern) > 200 {
			t.Skip("not a pattern, or one that the reference takes long for")
		}
		want := slowPattern(pattern).MatchString(latin1(text))
		if got := newCompositePattern(pattern).matches(text); got != want {
			t.Errorf("%q matches %q: %v, want %v", pattern, text, got, want)
		}
	})
}

// A pattern covers another if it matches its text. All texts of up to 5 of 3 characters are tested.
func TestPatternCovers(t *testing.T) {
	patterns := textsOf("ab*", 4)
	texts := textsOf("abc", 5)
	for _, p := range patterns {
		if !strings.Contains(p, "*") {
			continue
		}
		wide := newCompositePattern(p)
		for _, q := range patterns {
			if !strings.Contains(q, "*") {
				continue
			}
			narrow := newCompositePattern(q)
			covers, overlap := true, false
			for _, text := range texts {
				covers = covers && (!narrow.matches(text) || wide.matches(text))
				overlap = overlap || narrow.matches(text) && wide.matches(text)
			}
			if got := wide.matches(q); got != covers {
				t.Fatalf("%q covers %q: %v, want %v", p, q, got, covers)
			}
			if overlap && !wide.mayOverlap(narrow) {
				t.Fatalf("%q and %q are thought apart", p, q)
			}
		}
	}
}

// textsOf returns all texts of up to n of the characters.
func textsOf(characters string, n int) []string {
	all := []string{""}
	for from := 0; n > 0; n-- {
		to := len(all)
		for _, text := range all[from:to] {
			for _, c := range characters {
				all = append(all, text+string(c))
			}
		}
		from = to
	}
	return all
}

func TestAffixes(t *testing.T) {
	texts := textsOf("ab", 4)
	for range 200 {
		values := make(map[string]string)
		for range 10 {
			text := texts[rand.IntN(len(texts))]
			values[text] = text
		}
		set := newAffixes(values)
		for _, text := range textsOf("abc", 5) {
			var want []string
			for n := len(text); n >= 0; n-- {
				if _, ok := values[text[:n]]; ok {
					want = append(want, text[:n])
				}
			}
			var got []string
			for i := set.longest(text); i >= 0; i = set[i].parent {
				got = append(got, set[i].value)
			}
			if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
				t.Fatalf("%q begins with %q, want %q, of %q", text, got, want, values)
			}
		}
	}
}

// candidates returns the number of rules that the index would try for a composite if none of them matched.
func (x *wildcardIndex) candidates(composite string) int {
	n := 0
	for i := x.byPrefix.longest(composite); i >= 0; i = x.byPrefix[i].parent {
		bySuffix := x.byPrefix[i].value
		for j := bySuffix.longest(string(appendReversed(nil, composite))); j >= 0; j = bySuffix[j].parent {
			n += len(bySuffix[j].value)
		}
	}
	return n
}

// Rules that cannot match are not tried, however many there are.
func TestManyWildcardsAreNotTriedOneByOne(t *testing.T) {
	for _, form := range []string{
		"/tenants/%d/*", "*.tenant%d.example", "/t%d/*/end", "/static/*.%d.js", "%d*", "*%d*end%[1]d",
	} {
		var rules []DescriptorRule
		for i := range 10_000 {
			rules = append(rules, limited("k", fmt.Sprintf(form, 100_000+i)))
		}
		rules = append(rules, limited("k", "*"))
		tree := mustTree(t, rules...)
		for _, i := range []int{0, 1, 4711, 9999} {
			value := strings.ReplaceAll(fmt.Sprintf(form, 100_000+i), "*", "any")
			if got, want := found(tree, entries("k", value)), "k_"+fmt.Sprintf(form, 100_000+i); got != want {
				t.Errorf("%s found %s, want %s", value, got, want)
			}
			if n := tree.top.wildcards.candidates("k_" + value); n > 2 {
				t.Errorf("%s is compared with %d rules of the form %s", value, n, form)
			}
		}
		if got := found(tree, entries("k", "none of them")); got != "k_*" {
			t.Errorf("found %s, want k_*", got)
		}
	}
}
