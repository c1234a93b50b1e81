package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"

	"github.com/sluiceproject/sluice/internal/clientip"
)

// IPOption configures how [ByIP] finds the client's address.
type IPOption func(*ipConfig)

type ipConfig clientip.Config

// TrustedProxies sets the addresses of proxies whose [ClientIPHeader] is trusted. By default no proxy is trusted and the
// header is not read. IPv4 prefixes also cover IPv4-mapped IPv6 addresses.
func TrustedProxies(prefixes ...netip.Prefix) IPOption {
	for _, p := range prefixes {
		if !p.IsValid() {
			panic("httplimit: TrustedProxies: invalid prefix: use netip.MustParsePrefix or check the error of netip.ParsePrefix")
		}
	}
	return func(c *ipConfig) { c.Proxies = append(c.Proxies, prefixes...) }
}

// TrustUnixSockets trusts every peer that connects over a Unix domain socket, typically a local proxy.
func TrustUnixSockets() IPOption { return func(c *ipConfig) { c.TrustUnixSockets = true } }

// ProxyHops sets the number n of proxies in front of the server, each of which appends the address of its peer to the
// header. The client is the nth address from the right, whether or not the addresses after it are trusted. A header with
// fewer addresses is ignored and the key is the peer's address. Without [TrustedProxies] every peer is trusted, so only
// the proxies must be able to reach the server. It panics unless n is between 1 and 64.
func ProxyHops(n int) IPOption {
	if n < 1 || n > clientip.MaxEntries {
		panic(fmt.Sprintf("httplimit: ProxyHops: %d is out of range 1 to %d", n, clientip.MaxEntries))
	}
	return func(c *ipConfig) { c.Hops = n }
}

// ClientIPHeader sets the name of the header that the proxies set. The default is X-Forwarded-For. "Forwarded" is parsed
// according to RFC 7239, every other header, such as X-Real-IP, like X-Forwarded-For.
func ClientIPHeader(name string) IPOption {
	name = http.CanonicalHeaderKey(name)
	if name == "" {
		panic("httplimit: ClientIPHeader: empty header name")
	}
	return func(c *ipConfig) { c.Header = name }
}

// IPv6PrefixBits sets the prefix length, 32 to 128, by which IPv6 addresses are limited. The default is 64, the smallest
// network that providers assign. Many customers get a /56 or /48 and can use every address of it.
func IPv6PrefixBits(bits int) IPOption {
	if bits < 32 || bits > 128 {
		panic(fmt.Sprintf("httplimit: IPv6PrefixBits: %d is out of range 32 to 128", bits))
	}
	return func(c *ipConfig) { c.IPv6PrefixBits = bits }
}

// ByIP limits by the client's IP address. This is the address of the connection's peer, unless [TrustedProxies],
// [ProxyHops] or [TrustUnixSockets] trusts the peer.
//
// The header of a trusted peer is read from right to left, across all its lines, as long as the addresses are trusted
// proxies. The first address that is not trusted is the client; entries further left can be forged and are ignored. At an
// entry that is no IP address ("unknown", "_hidden"), or at the end of the header, the last address read is the client.
// At most 64 entries are read, and an entry of more than 1,024 bytes is invalid.
//
// Ports and zones are dropped. An IPv4-mapped IPv6 address is treated as its IPv4 address. Other IPv6 addresses are
// truncated to 64 bits, see [IPv6PrefixBits], with two exceptions: 6to4 addresses (2002::/16) to at most 48 bits, the
// network of one IPv4 address, and NAT64 addresses (64:ff9b::/96) not at all, because the last 32 bits are an IPv4
// address. Behind a NAT64 gateway with another prefix, use IPv6PrefixBits(128).
//
// Keys have the form "192.0.2.1" or "2001:db8::/64". Peers without an address, such as those of a Unix socket, share one
// key that no address can produce.
func ByIP(opts ...IPOption) KeyFunc {
	var c ipConfig
	for _, o := range opts {
		o(&c)
	}
	f := clientip.New(clientip.Config(c))
	if !f.ReadsHeader() && f.Header() != clientip.ForwardedFor {
		panic("httplimit: ByIP: ClientIPHeader " + f.Header() + " has no effect without a trusted proxy: use TrustedProxies or ProxyHops")
	}
	return func(r *http.Request) (string, error) { return f.Key(r), nil }
}
