// Package clientip finds out who an HTTP request is from: the connection's peer, or whom a trusted proxy says that it
// speaks for. The proxy's header is read from the right, and what the client itself may have written is never believed.
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

// Config says who may speak for others. The zero Config trusts nobody.
type Config struct {
	Proxies          []netip.Prefix // trusted proxies; what is no valid prefix is not trusted
	TrustUnixSockets bool           // the peers of servers that listen on a Unix socket are trusted
	Hops             int            // the nth address from the right counts, instead of the first that is not trusted; 0: no
	Header           string         // that trusted peers set. "": X-Forwarded-For
	IPv6PrefixBits   int            // of an IPv6 address that count in a key. 0: 64
}

// ForwardedFor is the header that is read unless another is named.
const ForwardedFor = "X-Forwarded-For"

// Finder finds the clients of requests.
type Finder struct {
	proxies     []netip.Prefix
	unixSockets bool
	hops        int
	header      string
	prefixBits  int
}

// New makes a Finder.
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

// Addr is the client's address, or the zero Addr if it has none.
func (f *Finder) Addr(r *http.Request) netip.Addr { return f.counted(r).addr }

// Key is the key that the client's requests share: its address, or the prefix of it that counts.
func (f *Finder) Key(r *http.Request) string { return f.key(f.counted(r)) }

// TrustsPeer reports whether the connection's peer is a trusted proxy. Forwarding headers of other peers are not read.
func (f *Finder) TrustsPeer(r *http.Request) bool {
	peer, _ := parseHost(r.RemoteAddr)
	return f.trustsPeer(r, peer)
}

// TrustsAddr reports whether a peer with the address is a trusted proxy.
func (f *Finder) TrustsAddr(a netip.Addr) bool { return f.trustsAnybody() || f.trusts(a) }

// ReadsHeader reports whether there are peers whose header is read.
func (f *Finder) ReadsHeader() bool { return f.hops > 0 || f.unixSockets || len(f.proxies) > 0 }

// Header is the header in which trusted peers say whom they speak for.
func (f *Finder) Header() string { return f.header }

// trustsAnybody reports whether every peer is trusted: the number of hops alone says which address counts.
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

// counted finds the client of a request, and counts a header of too many entries once per request: a gateway that has read it
// marks that in the context.
func (f *Finder) counted(r *http.Request) host {
	h, cut := f.client(r)
	if cut && r.Context().Value(bounds.Counted{}) == nil {
		bounds.ForwardedEntries.Reached()
	}
	return h
}

// client finds the client of a request, and reports whether there were more entries than are read.
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

// nth is the address so many hops away, or the peer.
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
	// The peer's name proves nothing, since other middleware may have written it; the listener's does.
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return f.unixSockets && ok && local.Network() == "unix"
}

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
