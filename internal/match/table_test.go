package match_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/internal/match"
)

func pathPattern(t *testing.T, text string) *match.Pattern {
	t.Helper()
	p, err := match.ParsePattern(text, false)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Patterns have one order, the more specific first, and a table finds the first that matches.
func TestPathTable(t *testing.T) {
	ordered := []string{"/a/bc/**", "/a/b", "/a/b/**", "/a/b*c*", "/a/b*", "/a/{x}/c", "/a/{x}", "/a/*/**", "/a", "/a/**", "/{x}", "/", "/**"}
	table := new(match.Table)
	for i, text := range ordered {
		table.Add(pathPattern(t, text), i)
		for j, other := range ordered {
			if got := pathPattern(t, text).Compare(pathPattern(t, other)); (got < 0) != (i < j) || (got == 0) != (i == j) {
				t.Errorf("%s and %s: %d", text, other, got)
			}
		}
	}
	for path, want := range map[string]string{
		"/": "/", "/a": "/a", "/a/b": "/a/b", "/a/b/c": "/a/b/**", "/a/bc": "/a/bc/**", "/a/bxc": "/a/b*c*", "/a/bx": "/a/b*", "/a/x/c": "/a/{x}/c",
		"/a/x": "/a/{x}", "/a/x/y": "/a/*/**", "/x": "/{x}", "/x/y": "/**",
	} {
		if got := ordered[table.First(path)]; got != want {
			t.Errorf("%s fits %s, want %s", path, got, want)
		}
	}
	if got := new(match.Table).First("/"); got != -1 {
		t.Errorf("an empty table has %d", got)
	}
	if pathPattern(t, "/a/{x}").Compare(pathPattern(t, "/a/*/")) != 0 {
		t.Error("names make a difference")
	}
	if _, err := match.ParsePattern("a", false); err == nil || !strings.Contains(err.Error(), `write "/a"`) {
		t.Errorf("got %v", err)
	}
}

func TestPathBegins(t *testing.T) {
	for _, tt := range []struct {
		pattern, prefix string
		want            bool
	}{
		{"/v1/**", "/v1", true},
		{"/v1", "/v1", true},
		{"/v1/{id}", "/v1", true},
		{"/v1/a/b", "/v1/a", true},
		{"/x", "/", true},
		{"/**", "/", true},
		{"/v1/**", "/v", false},
		{"/v1/**", "/v1/a", false},
		{"/v1/{id}", "/v1/a", false},
		{"/v*/a", "/v1", false},
		{"/**", "/v1", false},
	} {
		if got := pathPattern(t, tt.pattern).HasPrefix(tt.prefix); got != tt.want {
			t.Errorf("%s begins with %s: %v", tt.pattern, tt.prefix, got)
		}
	}
}

func TestAddrSet(t *testing.T) {
	var all []netip.Prefix
	for _, text := range []string{"10.0.0.0/8", "192.0.2.1", "2001:db8::/32", "::ffff:198.51.100.0/120"} {
		p, err := match.ParsePrefix(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	set := match.NewAddrSet(all)
	for _, text := range []string{"10.0.0.0", "10.255.255.255", "::ffff:10.1.2.3", "192.0.2.1", "2001:db8::1", "198.51.100.7"} {
		if !set.Contains(netip.MustParseAddr(text)) {
			t.Errorf("%s is not in it", text)
		}
	}
	for _, text := range []string{"11.0.0.0", "9.255.255.255", "192.0.2.2", "2001:db9::", "::a00:1"} {
		if set.Contains(netip.MustParseAddr(text)) {
			t.Errorf("%s is in it", text)
		}
	}
	if set.Contains(netip.Addr{}) || set.IsEmpty() || !(match.AddrSet{}).IsEmpty() || (match.AddrSet{}).Contains(all[0].Addr()) {
		t.Error("nothing is something")
	}
	if hosts := []string{match.CanonicalHost("A.Example.COM.:80"), match.CanonicalHost("[::1]:80")}; !slices.Equal(hosts, []string{"a.example.com", "[::1]"}) {
		t.Errorf("hosts are %q", hosts)
	}
}
