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

// KeyFunc names whom a call is charged to. It is given the call's context, with the incoming metadata and the peer in
// it, and the method as "/package.Service/Method". An error that carries a gRPC status ends the call with that status,
// any other with INTERNAL and without its text.
type KeyFunc func(ctx context.Context, fullMethod string) (string, error)

// Global gives all calls one key: a limit for the server as a whole.
func Global() KeyFunc {
	return func(context.Context, string) (string, error) { return "", nil }
}

// ByMethod gives each method a key. In a tap handle the name is what the client sent, whether there is such a method or
// not.
func ByMethod() KeyFunc {
	return func(_ context.Context, fullMethod string) (string, error) { return fullMethod, nil }
}

// ByFunc makes a key of a function that cannot fail. A function that can is a [KeyFunc] already.
func ByFunc(f func(ctx context.Context, fullMethod string) string) KeyFunc {
	return func(ctx context.Context, fullMethod string) (string, error) { return f(ctx, fullMethod), nil }
}

// ByMetadata gives each value of a metadata entry a key. Callers choose what they send: use an entry that something in
// front of the limiter has checked, or a caller has as many keys as it likes.
//
// The key is empty if there is no such entry, "=" and the value if there is one, and "+" and the values, each with its
// length, if there are several: so no entry, an empty value, and values with separators in them are all different.
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

// Combine makes one key of several: per user and method, say. Each part is preceded by its length, so that different
// parts never make the same key.
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

// joined writes each part as its length, a colon and itself.
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

// ByPeer gives each address that connects a key: an IPv4 address, or the /64 network of an IPv6 address, since a
// subscriber has that many to choose from. Ports and zones do not count, and an IPv4 address written as IPv6 is the
// IPv4 address. All who come by a Unix socket share one key, as do all whose address is unknown.
//
// Behind a proxy the peer is the proxy, and all its callers share a key.
func ByPeer() KeyFunc {
	return func(ctx context.Context, _ string) (string, error) {
		p, ok := peer.FromContext(ctx)
		if !ok {
			return addrKey(nil), nil
		}
		return addrKey(p.Addr), nil
	}
}

// ipv6Bits is how much of an IPv6 address names a subscriber.
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
		return "unix" // a client may bind to a name of its choice, so the name says nothing
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
