package grpclimit

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// KeyFunc returns the key that a call counts against. The context is that of the call, with the incoming metadata and the
// peer, and the method has the form "/package.Service/Method". An error with a gRPC status ends the call with that status,
// any other error with INTERNAL and without its text.
type KeyFunc func(ctx context.Context, fullMethod string) (string, error)

// Global returns the same key, the empty string, for all calls: all callers share one bucket.
func Global() KeyFunc {
	return func(context.Context, string) (string, error) { return "", nil }
}

// ByMethod limits by method. In a tap handle the method is that of the request, whether or not the server has it.
func ByMethod() KeyFunc {
	return func(_ context.Context, fullMethod string) (string, error) { return fullMethod, nil }
}

// ByFunc limits by the result of f. If f can fail, use a [KeyFunc].
func ByFunc(f func(ctx context.Context, fullMethod string) string) KeyFunc {
	return func(ctx context.Context, fullMethod string) (string, error) { return f(ctx, fullMethod), nil }
}

// ByMetadata limits by a metadata entry. Use an entry that has been verified: a client that can choose the value freely gets
// a new bucket with every value.
//
// The key is empty without the entry, "=" and the value for one value, and "+" and the values, each preceded by its length,
// for several. So an absent entry, an empty value, and values that contain separators all have different keys.
func ByMetadata(name string) KeyFunc {
	name = strings.ToLower(name)
	return func(ctx context.Context, _ string) (string, error) {
		return metadataKey(metadata.ValueFromIncomingContext(ctx, name)), nil
	}
}

func metadataKey(values []string) string {
	switch len(values) {
	case 0:
		return ""
	case 1:
		return "=" + values[0]
	}
	return joined("+", values)
}

// Combine limits by several keys together, such as user and method. Each part is preceded by its length, so that different
// parts never have the same key.
func Combine(keys ...KeyFunc) KeyFunc {
	return func(ctx context.Context, fullMethod string) (string, error) {
		var room [8]string
		parts := room[:0]
		for _, key := range keys {
			part, err := key(ctx, fullMethod)
			if err != nil {
				return "", err
			}
			parts = append(parts, part)
		}
		return joined("", parts), nil
	}
}

// joined returns the prefix followed by the length, a colon and the text of each part.
func joined(prefix string, parts []string) string {
	size := len(prefix)
	for _, p := range parts {
		size += len(p) + 4
	}
	b := append(make([]byte, 0, size), prefix...)
	for _, p := range parts {
		b = strconv.AppendInt(b, int64(len(p)), 10)
		b = append(b, ':')
		b = append(b, p...)
	}
	return string(b)
}

// ByPeer limits by the address of the peer: its IPv4 address, or the /64 network of its IPv6 address, because a subscriber
// can use every address of a /64. Ports and zones are ignored, and an IPv4-mapped IPv6 address is treated as its IPv4
// address. All peers of Unix sockets share one key, and so do all peers whose address is unknown.
//
// Behind a proxy the peer is the proxy, and all its clients share one key.
func ByPeer() KeyFunc {
	return func(ctx context.Context, _ string) (string, error) {
		p, ok := peer.FromContext(ctx)
		if !ok {
			return addrKey(nil), nil
		}
		return addrKey(p.Addr), nil
	}
}

// ipv6Bits is the length of the IPv6 prefix that identifies a subscriber.
const ipv6Bits = 64

func addrKey(addr net.Addr) string {
	switch a := addr.(type) {
	case nil:
		return "unknown"
	case *net.TCPAddr:
		if a == nil {
			return "unknown"
		}
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			return ipKey(ip)
		}
	}
	network, text := addr.Network(), addr.String()
	if strings.HasPrefix(network, "unix") {
		return "unix" // a client may bind to a name of its choice, so the name does not identify it
	}
	host, _, err := net.SplitHostPort(text)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ipKey(ip)
	}
	if host == "" {
		return "unknown"
	}
	return network + "/" + host
}

func ipKey(ip netip.Addr) string {
	ip = ip.WithZone("").Unmap()
	if ip.Is4() {
		return ip.String()
	}
	return netip.PrefixFrom(ip, ipv6Bits).Masked().String()
}
