package match

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The wildcard of path segments agrees with a pattern that is tried at every position.
func FuzzWildcard(f *testing.F) {
	f.Add("a*b", "axxb")
	f.Add("*", "")
	f.Add("a**b*", "aab")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if len(pattern) > 12 || len(text) > 24 {
			return
		}
		if got, want := wildcard(pattern, text), slowWildcard(pattern, text); got != want {
			t.Errorf("wildcard(%q, %q) is %v", pattern, text, got)
		}
	})
}

func slowWildcard(pattern, text string) bool {
	if pattern == "" {
		return text == ""
	}
	if pattern[0] == '*' {
		for i := range len(text) + 1 {
			if slowWildcard(pattern[1:], text[i:]) {
				return true
			}
		}
		return false
	}
	return text != "" && text[0] == pattern[0] && slowWildcard(pattern[1:], text[1:])
}

// FuzzPattern checks that any text is either rejected as a pattern or matches the path it was made from.
func FuzzPattern(f *testing.F) {
	for _, p := range append([]string{"/", "/a", "/a/*", "/a/{id}/c", "/**", "/a/**", "/b/x*", "/*/b/*", "/{id}", "/a/b", "/x/b/y", "/*"}, "/posts;v=1", "/;", "/%2a", "/a*\u0301b", "/{", "/**/x", "//", "/.", "/caf%C3%A9") {
		f.Add(p, "/a/b/c")
	}
	f.Fuzz(func(t *testing.T, text, path string) {
		p, err := ParsePattern(text, false)
		if err != nil {
			return
		}
		canonical, err := CanonicalPath(path)
		if err != nil {
			return
		}
		var x Index
		x.Add(p, 7)
		if found := len(x.Find(canonical[1:], nil)) > 0; found != p.Matches(canonical) {
			t.Errorf("pattern %q and path %q: the index says %v", text, canonical, found)
		}
		if !strings.ContainsAny(text, "*{") && p.Matches(canonical) {
			if own, err := CanonicalPath(text); err != nil || own != canonical {
				t.Errorf("pattern %q fits %q but is %q itself (%v)", text, canonical, own, err)
			}
		}
	})
}

// Ranges of addresses agree with checking each prefix.
func TestAddrSetRanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var prefixes []netip.Prefix
		for range rapid.IntRange(0, 6).Draw(t, "n") {
			prefixes = append(prefixes, drawPrefix(t))
		}
		r := NewAddrSet(prefixes)
		for range 20 {
			a := drawPrefix(t).Addr()
			if rapid.Bool().Draw(t, "next") {
				a = a.Next()
			}
			want := slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
			if a.IsValid() && r.Contains(a) != want {
				t.Fatalf("%v in %v: %v", a, prefixes, !want)
			}
		}
	})
}

func drawPrefix(t *rapid.T) netip.Prefix {
	var b [16]byte
	b[rapid.IntRange(0, 3).Draw(t, "byte")] = byte(rapid.IntRange(0, 255).Draw(t, "value"))
	a := netip.AddrFrom16(b)
	if rapid.Bool().Draw(t, "v4") {
		a = netip.AddrFrom4([4]byte(b[:4]))
	}
	return netip.PrefixFrom(a, rapid.IntRange(0, a.BitLen()).Draw(t, "bits")).Masked()
}
