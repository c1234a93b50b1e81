package match

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// ParsePrefix parses an address or a prefix of a rule: 192.0.2.1, 10.0.0.0/8, 2001:db8::/32. IPv4 written as IPv6 is
// IPv4. The error says what to write instead.
func ParsePrefix(text string) (netip.Prefix, error) {
	if !strings.Contains(text, "/") {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%q is not an address or a prefix: write one such as 192.0.2.1, 10.0.0.0/8 or 2001:db8::/32", text)
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not an address or a prefix: write one such as 192.0.2.1, 10.0.0.0/8 or 2001:db8::/32", text)
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("%q has bits set after the first %d: write %v, or the address alone", text, p.Bits(), p.Masked())
	}
	return p, nil
}

// AddrSet is a set of addresses, stored as sorted ranges that do not overlap, so that a lookup is a binary search. The
// zero AddrSet is empty.
type AddrSet struct{ ranges []addrRange }

type addrRange struct{ first, last netip.Addr }

// NewAddrSet returns the set of all addresses in prefixes of [ParsePrefix].
func NewAddrSet(prefixes []netip.Prefix) AddrSet {
	var all []addrRange
	for _, p := range prefixes {
		all = append(all, addrRange{p.Masked().Addr(), lastAddr(p)})
	}
	slices.SortFunc(all, func(a, b addrRange) int { return a.first.Compare(b.first) })
	merged := all[:0]
	for _, r := range all {
		if n := len(merged); n > 0 && merged[n-1].last.Compare(r.first) >= 0 && merged[n-1].last.BitLen() == r.first.BitLen() {
			if r.last.Compare(merged[n-1].last) > 0 {
				merged[n-1].last = r.last
			}
			continue
		}
		merged = append(merged, r)
	}
	return AddrSet{merged}
}

func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < 8*len(b); i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// Contains reports whether the set contains a. An IPv4-mapped IPv6 address counts as its IPv4 address.
func (s AddrSet) Contains(a netip.Addr) bool {
	if !a.IsValid() {
		return false
	}
	a = a.Unmap()
	r := s.ranges
	low, high := 0, len(r)
	for low < high {
		mid := (low + high) / 2
		if r[mid].last.Compare(a) < 0 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low < len(r) && r[low].first.Compare(a) <= 0
}

// IsEmpty reports whether the set is empty.
func (s AddrSet) IsEmpty() bool { return len(s.ranges) == 0 }

// Covers reports whether the set contains every address of narrow.
func (s AddrSet) Covers(narrow AddrSet) bool {
	for _, n := range narrow.ranges {
		if !slices.ContainsFunc(s.ranges, func(wide addrRange) bool {
			return wide.first.Compare(n.first) <= 0 && wide.last.Compare(n.last) >= 0
		}) {
			return false
		}
	}
	return true
}
