// Package clientip finds the client's address of an HTTP request: the address of the connection's peer or, if the peer is
// a trusted proxy, an address of its forwarding header. The header is read from right to left, and entries that the client
// may have forged are never used.
package clientip

import (
	"cmp"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/keyenc"
)

// Config is the configuration of a Finder. The zero Config trusts no peer.
type Config struct {
	Proxies          []netip.Prefix // trusted proxies; invalid prefixes are ignored
	TrustUnixSockets bool           // trust all peers that connect over a Unix socket
	Hops             int            // use the nth address from the right, instead of the first untrusted one; 0 disables it
	Header           string         // header that trusted peers set; "" means X-Forwarded-For
	IPv6PrefixBits   int            // prefix length of IPv6 keys; 0 means 64
}

// ForwardedFor is the default header.
const ForwardedFor = "X-Forwarded-For"

// Finder finds the client's address of requests. It is safe for concurrent use.
type Finder struct {
	proxies     []netip.Prefix
	unixSockets bool
	hops        int
	header      string
	prefixBits  int
}

// New returns a Finder.
func New(c Config) *Finder {
	f := &Finder{
		unixSockets: c.TrustUnixSockets, hops: c.Hops, header: http.CanonicalHeaderKey(cmp.Or(c.Header, ForwardedFor)),
		prefixBits: cmp.Or(c.IPv6PrefixBits, 64),
	}
	for _, p := range c.Proxies {
		if !p.IsValid() {
			continue
		}
		if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
		}
		f.proxies = append(f.proxies, p.Masked())
	}
	return f
}

// Addr returns the client's address, or the zero Addr if there is none.
func (f *Finder) Addr(r *http.Request) netip.Addr { return f.counted(r).addr }

// Key returns the key of the client: its IPv4 address or IPv6 prefix.
func (f *Finder) Key(r *http.Request) string { return f.key(f.counted(r)) }

// TrustsPeer reports whether the connection's peer is a trusted proxy. Forwarding headers of other peers are not read.
func (f *Finder) TrustsPeer(r *http.Request) bool {
	peer, _ := parseHost(r.RemoteAddr)
	return f.trustsPeer(r, peer)
}

// TrustsAddr reports whether a peer with the address is a trusted proxy.
func (f *Finder) TrustsAddr(a netip.Addr) bool { return f.trustsAnybody() || f.trusts(a) }

// ReadsHeader reports whether the header of any peer is read.
func (f *Finder) ReadsHeader() bool { return f.hops > 0 || f.unixSockets || len(f.proxies) > 0 }

// Header returns the name of the forwarding header that trusted peers set.
func (f *Finder) Header() string { return f.header }

// trustsAnybody reports whether every peer is trusted, because only the number of hops is configured.
func (f *Finder) trustsAnybody() bool { return f.hops > 0 && len(f.proxies) == 0 && !f.unixSockets }

func (f *Finder) key(h host) string {
	switch {
	case !h.addr.IsValid():
		return keyenc.NoAddr
	case h.text != "":
		return h.text
	}
	var room [48]byte
	return string(keyenc.AppendAddr(room[:0], h.addr, f.prefixBits))
}

// counted returns the client of a request and records a header with too many entries as a reached bound, once per request:
// a gateway that has already read the header marks this in the context.
func (f *Finder) counted(r *http.Request) host {
	h, cut := f.client(r)
	if cut && r.Context().Value(bounds.Counted{}) == nil {
		bounds.ForwardedEntries.Reached()
	}
	return h
}

// client returns the client of a request. cut reports whether the header has more than MaxEntries entries.
func (f *Finder) client(r *http.Request) (h host, cut bool) {
	peer, _ := parseHost(r.RemoteAddr)
	if !f.trustsPeer(r, peer) {
		return peer, false
	}
	e := entries{lines: r.Header[f.header], quotes: f.header == "Forwarded", left: MaxEntries}
	if f.hops > 0 {
		return f.nth(&e, peer), e.cut
	}
	for at := peer; ; {
		h, more := e.next()
		if !more || !h.addr.IsValid() {
			return at, e.cut
		}
		if at = h; !f.trusts(at.addr) {
			return at, false
		}
	}
}

// nth returns the address at the configured number of hops, or the peer if there is none.
func (f *Finder) nth(e *entries, peer host) host {
	for range f.hops - 1 {
		if _, more := e.next(); !more {
			return peer
		}
	}
	if h, more := e.next(); more && h.addr.IsValid() {
		return h
	}
	return peer
}

func (f *Finder) trusts(a netip.Addr) bool {
	for _, p := range f.proxies {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

func (f *Finder) trustsPeer(r *http.Request, peer host) bool {
	if f.trustsAnybody() {
		return true
	}
	if peer.addr.IsValid() {
		return f.trusts(peer.addr)
	}
	// RemoteAddr is no proof of a Unix socket, because other middleware may have set it; the listener's address is.
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return f.unixSockets && ok && local.Network() == "unix"
}

// host is an IP address without zone, never IPv4-mapped. The zero host is no address.
type host struct {
	addr netip.Addr
	text string // original text of an IPv4 address: canonical, because netip accepts no other spelling
}

// parseHost parses an address in the formats of the standard library, proxies and RFC 7239: bare or in brackets, with or
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

// maxHost is the maximum length of an address with zone and port, in bytes.
const maxHost = 128

// isPort reports whether s is a colon and a port number or an obfuscated port (RFC 7239, section 6.3).
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
