package rules

import "net/netip"

// ParsePrefix reads an address or a prefix as rules write them: 192.0.2.1, 10.0.0.0/8, 2001:db8::/32. The error says
// what to write instead.
func ParsePrefix(text string) (netip.Prefix, error) { return parsePrefix(text) }

// AddrSet is a set of addresses. A search is a few comparisons whatever its size. The zero AddrSet is empty.
type AddrSet struct{ ranges addrRanges }

// NewAddrSet is the set of all addresses in prefixes of [ParsePrefix].
func NewAddrSet(prefixes []netip.Prefix) AddrSet { return AddrSet{newAddrRanges(prefixes)} }

// Has tells whether an address is in the set. IPv4-mapped IPv6 addresses are those that they hold.
func (s AddrSet) Has(a netip.Addr) bool { return a.IsValid() && s.ranges.has(a.Unmap()) }

// Empty tells whether nothing is in the set.
func (s AddrSet) Empty() bool { return len(s.ranges) == 0 }
