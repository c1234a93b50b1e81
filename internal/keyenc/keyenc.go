// Package keyenc encodes the keys of buckets. Different values, or different numbers of values, never have the same
// key: parts carry their lengths, and everything that is not a value (a missing attribute, several parts) begins with a
// NUL, which no encoded value begins with.
package keyenc

import (
	"encoding/binary"
	"net/netip"
)

// The byte after a leading NUL is the kind of the key. Values that begin with a NUL are marked, so that they cannot be
// mistaken for another kind. All other values are their own key, so that an operator can write them and the common case
// copies nothing.
const (
	Absent  = "\x00-" // no value
	NoAddr  = "\x00?" // the peer has no IP address
	marked  = "\x00=" // before a value that begins with a NUL
	several = "\x00+" // before parts, each with its length
	digest  = "\x00#" // before the digest of a secret value
)

// Value returns the key of a single value.
func Value(s string) string {
	if s != "" && s[0] == 0 {
		return marked + s
	}
	return s
}

// AppendValue appends the key of a single value; see [Value].
func AppendValue(b []byte, s string) []byte {
	if s != "" && s[0] == 0 {
		b = append(b, marked...)
	}
	return append(b, s...)
}

// AppendDigest appends the key of a secret value, given its digest.
func AppendDigest(b, sum []byte) []byte {
	return append(append(b, digest...), sum...)
}

// AppendSeveral begins a key of several parts, to be followed by AppendPart for each.
func AppendSeveral(b []byte) []byte { return append(b, several...) }

// AppendPart appends one part, itself a key, with its length.
func AppendPart(b []byte, part string) []byte {
	b = binary.AppendUvarint(b, uint64(len(part)))
	return append(b, part...)
}

// AppendBytes is AppendPart for a part in a buffer. They are two functions because one generic function would make the
// buffers of callers in other packages escape to the heap.
func AppendBytes(b, part []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(part)))
	return append(b, part...)
}

// Join returns the key of several values.
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

// Subscriber returns the prefix of an address that identifies one subscriber: all of an IPv4 address, also if written
// as IPv6, and the first bits bits of an IPv6 address. Of a 6to4 address at most 48 bits count, the prefix of one IPv4
// address. Of a NAT64 address all bits count, because the last 32 are an IPv4 address. The zone is dropped.
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
	if err != nil { // bits is out of range, because the address has no zone here
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
