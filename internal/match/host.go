package match

import "strings"

// CanonicalHost returns a host as rules compare it: without port and trailing dot, in lower case.
func CanonicalHost(s string) string {
	if i := strings.LastIndexByte(s, ':'); i >= 0 && strings.IndexByte(s[i:], ']') < 0 {
		if s[0] == '[' || strings.IndexByte(s, ':') == i {
			s = s[:i]
		}
	}
	return strings.ToLower(strings.TrimSuffix(s, "."))
}
