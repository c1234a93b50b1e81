// Package keyenc writes the keys that requests count under. Different values, or differently many, never make the same
// key: parts carry their lengths, and what is not a value (an attribute that is missing, several parts) begins with a
// NUL, which values are kept from.
package keyenc

import (
	"encoding/binary"
	"net/netip"
)

// Keys that begin with a NUL have a meaning of their own, told by the next byte. Values that begin with a NUL are
// marked, so that they cannot be mistaken for these; all others are keys as they are, so that an operator can name
// them and the common case copies nothing.
const (
	Absent  = "\x00-" // there is no value
	NoAddr  = "\x00?" // the peer has no IP address
	marked  = "\x00=" // before a value that begins with a NUL
	several = "\x00+" // before parts, each with its length
	digest  = "\x00#" // before the digest of a secret value
)

// Value is the key of a single value.
func Value(s string) string {
	if s != "" && s[0] == 0 {
		return marked + s
	}
	return s
}

// AppendValue appends what Value returns.
func AppendValue(b []byte, s string) []byte {
	if s != "" && s[0] == 0 {
		b = append(b, marked...)
	}
	return append(b, s...)
}

// AppendDigest appends the key of a secret value, of which only a digest is known.
func AppendDigest(b, sum []byte) []byte {
	return append(append(b, digest...), sum...)
}

// AppendSeveral begins a key of several parts, to be followed by AppendPart for each.
func AppendSeveral(b []byte) []byte { return append(b, several...) }

// AppendPart appends one part, which is a key itself, with its length.
func AppendPart(b []byte, part string) []byte {
	b = binary.AppendUvarint(b, uint64(len(part)))
	return append(b, part...)
}

// AppendBytes is AppendPart for a part in a buffer. (One generic function for both would have buffers of callers in other
// packages escape to the heap.)
func AppendBytes(b, part []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(part)))
	return append(b, part...)
}

// Join is the key of several values.
func Join(values ...string) string {
	b := AppendSeveral(nil)
	for _, v := range values {
		b = AppendPart(b, Value(v))
	}
	return string(b)
}

var (
	sixToFour = netip.MustParsePrefix("2002::/16")
	nat64     = netip.MustParsePrefix("64:ff9b::/96")
)

// Subscriber is the part of an address that stands for one subscriber: all of an IPv4 address, also if it is written as
// IPv6, and the first bits of an IPv6 address. Of 6to4 at most 48 bits count, which is what one IPv4 address owns, and
// of NAT64 all do, since it holds IPv4 addresses in its last 32. The zone is dropped.
func Subscriber(a netip.Addr, bits int) netip.Prefix {
	a = a.WithZone("").Unmap()
	switch {
	case !a.IsValid():
		return netip.Prefix{}
	case a.Is4() || nat64.Contains(a):
		bits = a.BitLen()
	case sixToFour.Contains(a):
		bits = min(bits, 48)
	}
	p, err := a.Prefix(bits)
	if err != nil { // the zone is gone; bits are out of range
		return netip.PrefixFrom(a, a.BitLen())
	}
	return p
}

// AppendAddr appends the key of a client's address: "192.0.2.1", "2001:db8::/64".
func AppendAddr(b []byte, a netip.Addr, bits int) []byte {
	p := Subscriber(a, bits)
	switch {
	case !p.IsValid():
		return append(b, NoAddr...)
	case p.IsSingleIP():
		return p.Addr().AppendTo(b)
	}
	return p.AppendTo(b)
}
