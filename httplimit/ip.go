package httplimit

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/key"
)

// IPOption changes how [ByIP] finds the client's address.
type IPOption func(*ipKey)

// TrustedProxies names the addresses of proxies that may say whom they speak for. Without it nobody may: the header is
// not even read. IPv4 prefixes cover IPv4-mapped IPv6 addresses too.
func TrustedProxies(prefixes ...netip.Prefix) IPOption {
	return func(k *ipKey) {
		for _, p := range prefixes {
			if !p.IsValid() {
				panic("httplimit: TrustedProxies: a prefix is not valid: use netip.MustParsePrefix or check the error of netip.ParsePrefix")
			}
			if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
				p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
			}
			k.proxies = append(k.proxies, p.Masked())
		}
	}
}

// TrustUnixSocket trusts the peers of servers that listen on a Unix domain socket: the proxy in front of it.
func TrustUnixSocket() IPOption { return func(k *ipKey) { k.unix = true } }

// Hops takes the nth address from the right instead of walking over those that are trusted: with n proxies in a row,
// each of which appends the address it was called from, it is the one that the outermost appended. A header with fewer
// is not believed and the peer is limited. Without TrustedProxies every peer is trusted, so the server must be out of
// reach for anybody but the proxies.
func Hops(n int) IPOption {
	if n < 1 || n > maxEntries {
		panic(fmt.Sprintf("httplimit: Hops: %d is not between 1 and %d", n, maxEntries))
	}
	return func(k *ipKey) { k.hops = n }
}

// IPHeader names the header that the proxies set. The default is X-Forwarded-For; "Forwarded" is read as RFC 7239
// says; of any other, such as X-Real-IP, the addresses are read like those of X-Forwarded-For.
func IPHeader(name string) IPOption {
	name = http.CanonicalHeaderKey(name)
	if name == "" {
		panic("httplimit: IPHeader: the header's name is empty")
	}
	return func(k *ipKey) { k.header = name }
}

// IPv6Prefix is how many bits of an IPv6 address count, 32 to 128; the default is 64, the least that is given to a
// customer. Many are given a /56 or a /48 and can use it all.
func IPv6Prefix(bits int) IPOption {
	if bits < 32 || bits > 128 {
		panic(fmt.Sprintf("httplimit: IPv6Prefix: %d is not between 32 and 128", bits))
	}
	return func(k *ipKey) { k.bits = bits }
}

// ByIP limits by the client's IP address: that of the connection's peer, unless [TrustedProxies], [Hops] or
// [TrustUnixSocket] say otherwise.
//
// A trusted peer's header is walked from the right, over all its lines, as long as addresses are trusted proxies too;
// the first that is not is the client. What stands further left was written by the client and is not looked at. Where
// an entry is not an IP address (unknown, _hidden, garbage), or the header ends, the last address reached is limited.
// The walk ends after 64 entries, and an entry of more than 1,024 bytes is garbage.
//
// Ports and zones are dropped. IPv4-mapped IPv6 addresses are the IPv4 address they hold. Other IPv6 addresses count by
// their first 64 bits, see [IPv6Prefix], with two exceptions: of 6to4 (2002::/16) at most 48 bits count, which is what
// one IPv4 address owns, and of NAT64 (64:ff9b::/96) all do, since it holds IPv4 addresses in its last 32. Behind a
// translator with a prefix of its own, use IPv6Prefix(128).
//
// Keys are written "192.0.2.1" and "2001:db8::/64". Peers without an address, those of a Unix socket in particular,
// share a key that no address has.
func ByIP(opts ...IPOption) KeyFunc {
	k := &ipKey{header: forwardedFor, bits: 64}
	for _, o := range opts {
		o(k)
	}
	trusting := k.hops > 0 || k.unix || len(k.proxies) > 0
	if !trusting && k.header != forwardedFor {
		panic("httplimit: ByIP: IPHeader " + k.header + " would never be read: name who may set it with TrustedProxies, or use Hops")
	}
	if !trusting {
		return func(r *http.Request) (string, error) {
			peer, _ := parseHost(r.RemoteAddr)
			return k.key(peer), nil
		}
	}
	return func(r *http.Request) (string, error) { return k.key(k.counted(r)), nil }
}

const forwardedFor = "X-Forwarded-For"

// ipKey is what ByIP was told.
type ipKey struct {
	proxies []netip.Prefix
	unix    bool
	hops    int
	header  string
	bits    int
}

// host is an IP address without zone, never IPv4-mapped. The zero host is none.
type host struct {
	addr netip.Addr
	text string // of an IPv4 address that was written as such: canonical, since netip accepts no other spelling
}

func (k *ipKey) key(h host) string {
	switch {
	case !h.addr.IsValid():
		return key.NoAddr
	case h.text != "":
		return h.text
	}
	var room [48]byte
	return string(key.AppendAddr(room[:0], h.addr, k.bits))
}

// counted finds the client of a request, and counts a header of too many entries once per request: a gateway that has read it
// marks that in the context.
func (k *ipKey) counted(r *http.Request) host {
	h, cut := k.client(r)
	if cut && r.Context().Value(bounds.Counted{}) == nil {
		bounds.ForwardedEntries.Reached()
	}
	return h
}

// client finds the client of a request, and reports whether there were more entries than are read.
func (k *ipKey) client(r *http.Request) (h host, cut bool) {
	peer, _ := parseHost(r.RemoteAddr)
	if !k.trustsPeer(r, peer) {
		return peer, false
	}
	e := entries{lines: r.Header[k.header], quotes: k.header == "Forwarded", left: maxEntries}
	if k.hops > 0 {
		return k.nth(&e, peer), e.cut
	}
	for at := peer; ; {
		h, more := e.next()
		if !more || !h.addr.IsValid() {
			return at, e.cut
		}
		if at = h; !k.trusts(at.addr) {
			return at, false
		}
	}
}

// nth is the address so many hops away, or the peer.
func (k *ipKey) nth(e *entries, peer host) host {
	for range k.hops - 1 {
		if _, more := e.next(); !more {
			return peer
		}
	}
	if h, more := e.next(); more && h.addr.IsValid() {
		return h
	}
	return peer
}

func (k *ipKey) trusts(a netip.Addr) bool {
	for _, p := range k.proxies {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

func (k *ipKey) trustsPeer(r *http.Request, peer host) bool {
	if k.hops > 0 && len(k.proxies) == 0 && !k.unix {
		return true
	}
	if peer.addr.IsValid() {
		return k.trusts(peer.addr)
	}
	// The peer's name proves nothing, since other middleware may have written it; the listener's does.
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return k.unix && ok && local.Network() == "unix"
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
