package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"

	"github.com/sluiceproject/sluice/internal/clientip"
)

// IPOption changes how [ByIP] finds the client's address.
type IPOption func(*ipConfig)

type ipConfig clientip.Config

// TrustedProxies names the addresses of proxies that may say whom they speak for. Without it nobody may: the header is
// not even read. IPv4 prefixes cover IPv4-mapped IPv6 addresses too.
func TrustedProxies(prefixes ...netip.Prefix) IPOption {
	for _, p := range prefixes {
		if !p.IsValid() {
			panic("httplimit: TrustedProxies: a prefix is not valid: use netip.MustParsePrefix or check the error of netip.ParsePrefix")
		}
	}
	return func(c *ipConfig) { c.Proxies = append(c.Proxies, prefixes...) }
}

// TrustUnixSockets trusts the peers of servers that listen on a Unix domain socket: the proxy in front of it.
func TrustUnixSockets() IPOption { return func(c *ipConfig) { c.TrustUnixSockets = true } }

// ProxyHops takes the nth address from the right instead of walking over those that are trusted: with n proxies in a row,
// each of which appends the address it was called from, it is the one that the outermost appended. A header with fewer
// is not believed and the peer is limited. Without TrustedProxies every peer is trusted, so the server must be out of
// reach for anybody but the proxies.
func ProxyHops(n int) IPOption {
	if n < 1 || n > clientip.MaxEntries {
		panic(fmt.Sprintf("httplimit: ProxyHops: %d is not between 1 and %d", n, clientip.MaxEntries))
	}
	return func(c *ipConfig) { c.Hops = n }
}

// ClientIPHeader names the header that the proxies set. The default is X-Forwarded-For; "Forwarded" is read as RFC 7239
// says; of any other, such as X-Real-IP, the addresses are read like those of X-Forwarded-For.
func ClientIPHeader(name string) IPOption {
	name = http.CanonicalHeaderKey(name)
	if name == "" {
		panic("httplimit: ClientIPHeader: the header's name is empty")
	}
	return func(c *ipConfig) { c.Header = name }
}

// IPv6PrefixBits is how many bits of an IPv6 address count, 32 to 128; the default is 64, the least that is given to a
// customer. Many are given a /56 or a /48 and can use it all.
func IPv6PrefixBits(bits int) IPOption {
	if bits < 32 || bits > 128 {
		panic(fmt.Sprintf("httplimit: IPv6PrefixBits: %d is not between 32 and 128", bits))
	}
	return func(c *ipConfig) { c.IPv6PrefixBits = bits }
}

// ByIP limits by the client's IP address: that of the connection's peer, unless [TrustedProxies], [ProxyHops] or
// [TrustUnixSockets] say otherwise.
//
// A trusted peer's header is walked from the right, over all its lines, as long as addresses are trusted proxies too;
// the first that is not is the client. What stands further left was written by the client and is not looked at. Where
// an entry is not an IP address (unknown, _hidden, garbage), or the header ends, the last address reached is limited.
// The walk ends after 64 entries, and an entry of more than 1,024 bytes is garbage.
//
// Ports and zones are dropped. IPv4-mapped IPv6 addresses are the IPv4 address they hold. Other IPv6 addresses count by
// their first 64 bits, see [IPv6PrefixBits], with two exceptions: of 6to4 (2002::/16) at most 48 bits count, which is what
// one IPv4 address owns, and of NAT64 (64:ff9b::/96) all do, since it holds IPv4 addresses in its last 32. Behind a
// translator with a prefix of its own, use IPv6PrefixBits(128).
//
// Keys are written "192.0.2.1" and "2001:db8::/64". Peers without an address, those of a Unix socket in particular,
// share a key that no address has.
func ByIP(opts ...IPOption) KeyFunc {
	var c ipConfig
	for _, o := range opts {
		o(&c)
	}
	f := clientip.New(clientip.Config(c))
	if !f.ReadsHeader() && f.Header() != clientip.ForwardedFor {
		panic("httplimit: ByIP: ClientIPHeader " + f.Header() + " would never be read: name who may set it with TrustedProxies, or use ProxyHops")
	}
	return func(r *http.Request) (string, error) { return f.Key(r), nil }
}
