package clientip

import (
	"net/netip"
	"strings"
)

// host is an IP address without zone, never IPv4-mapped. The zero host is none.
type host struct {
	addr netip.Addr
	text string // of an IPv4 address that was written as such: canonical, since netip accepts no other spelling
}

// parseHost reads an address as the standard library, proxies and RFC 7239 write it: bare or in brackets, with or
// without a port.
func parseHost(s string) (host, bool) {
	if len(s) > maxHost {
		return host{}, false
	}
	text, port := s, ""
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return host{}, false
		}
		text, port = s[1:end], s[end+1:]
		if strings.IndexByte(text, ':') < 0 { // brackets are for IPv6
			return host{}, false
		}
	} else if i := strings.IndexByte(s, ':'); i >= 0 && i == strings.LastIndexByte(s, ':') {
		text, port = s[:i], s[i:]
	}
	if port != "" && !isPort(port) {
		return host{}, false
	}
	a, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		return host{}, false
	case a.Is4():
		return host{a, text}, true
	default:
		return host{a.WithZone("").Unmap(), ""}, true
	}
}

// maxHost is longer than any address with zone and port that is worth reading.
const maxHost = 128

// isPort accepts a colon and a number, or a name that hides it (RFC 7239, section 6.3).
func isPort(s string) bool {
	if len(s) < 2 || s[0] != ':' {
		return false
	}
	s, hidden := s[1:], s[1] == '_'
	if hidden {
		s = s[1:]
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c >= '0' && c <= '9':
		case hidden && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '.' || c == '_' || c == '-'):
		default:
			return false
		}
	}
	return s != "" && (hidden || len(s) <= 5)
}
