package cors

import (
	"fmt"
	"strconv"
	"strings"
)

// below is an origin with a wildcard: all names below a domain, with one scheme and port.
type below struct{ scheme, domain string } // "https://", ".example.com:8443"

// allow adds an origin that CheckOrigin accepts.
func (p *Policy) allow(text string) {
	if text == wildcard {
		p.anyOrigin = line(wildcard)
	} else if scheme, domain, ok := strings.Cut(text, "*"); ok {
		p.below = append(p.below, below{scheme, domain})
	} else {
		p.exact[text] = true
	}
}

// allows reports whether the policy lists an origin. Browsers send origins in lower case.
func (p *Policy) allows(origin string) bool {
	if p.exact[origin] {
		return true
	}
	for _, b := range p.below {
		rest, ok := strings.CutPrefix(origin, b.scheme)
		if name, ok2 := strings.CutSuffix(rest, b.domain); ok && ok2 && isName(name) {
			return true
		}
	}
	return false
}

// isName reports whether s is a domain name in lower case.
func isName(s string) bool {
	dot := true // an empty label
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && (c != '.' || dot) {
			return false
		}
		dot = c == '.'
	}
	return !dot
}

// CheckOrigin returns an error if text is not valid as an origin of a policy.
func CheckOrigin(text string) error {
	if text == wildcard {
		return nil
	}
	if text == "null" {
		return fmt.Errorf(`origin "null" is that of sandboxed frames and local files, which any website can make: list the origins of your pages, such as https://app.example.com`)
	}
	lower := strings.ToLower(text)
	scheme, host, ok := strings.Cut(lower, "://")
	if !ok || !isScheme(scheme) {
		return fmt.Errorf("origin %q has no scheme: write scheme and host, such as https://app.example.com", text)
	}
	if i := strings.IndexAny(host, "/?#@"); i >= 0 {
		return fmt.Errorf("origin %q has more than scheme, host and port: write it as browsers do, such as https://app.example.com", text)
	}
	name, port := host, ""
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		name, port = host[:i], host[i+1:]
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
			return fmt.Errorf("origin %q: %q is not a port", text, port)
		}
	}
	if scheme == "http" && port == "80" || scheme == "https" && port == "443" {
		return fmt.Errorf("origin %q: browsers leave out the port of the scheme: write %s://%s", text, scheme, name)
	}
	if inner := strings.TrimPrefix(name, "*."); !isName(inner) && !isAddress6(name) {
		return fmt.Errorf("origin %q: %q is not a host: write a name, such as app.example.com (xn--… if it is not ASCII), or *.example.com for all names below", text, name)
	}
	return nil
}

func isScheme(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (i == 0 || (c < '0' || c > '9') && c != '+' && c != '-' && c != '.') {
			return false
		}
	}
	return s != ""
}

// isAddress6 reports whether s is an IPv6 address in brackets.
func isAddress6(s string) bool {
	inner, ok := strings.CutPrefix(s, "[")
	inner, ok2 := strings.CutSuffix(inner, "]")
	return ok && ok2 && inner != "" && strings.Trim(inner, "0123456789abcdef:.") == ""
}
