package rules

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/sluiceproject/sluice/internal/match"
)

// index finds the items that a request may match without examining the others. Each item is stored under one of its
// predicates, the one whose values the fewest other items have; items without a predicate that can be indexed are
// examined for every request.
type index struct {
	always []int32
	path   *match.Index
	paths  strictness // of the items in path
	values []valueIndex
	addrs  addrIndex
}

// valueIndex finds items by the value of one attribute.
type valueIndex struct {
	attr  int
	items map[string]match.Numbers
	below map[string]match.Numbers // hosts: items for all names below
	strictness
}

// strictness determines the outcome of a request whose attribute cannot be read. If all items that read it are in
// shadow mode, the request is not rejected: the first of them is found, and reports it.
type strictness struct {
	strict, any bool
	first       int32
}

func (s *strictness) add(number int32, shadow bool) {
	if !s.any {
		s.any, s.first = true, number
	}
	s.strict = s.strict || !shadow
}

// addrIndex finds items by the client's address: one lookup for each prefix length that occurs.
type addrIndex struct {
	lengths []int // of IPv4 prefixes, and those of IPv6 prefixes plus 1000
	items   map[netip.Prefix]match.Numbers
}

const ipv6Length = 1000

// indexKey is a key that an item can be stored under.
type indexKey struct {
	attr  int
	value string
}

// keys returns the keys that a predicate stores its item under.
func (p *predicate) keys() []indexKey {
	var keys []indexKey
	for v := range p.values {
		keys = append(keys, indexKey{p.attr, v})
	}
	for v := range p.below {
		keys = append(keys, indexKey{p.attr, "*." + v})
	}
	for _, pattern := range p.patterns {
		keys = append(keys, indexKey{p.attr, pattern.Text()})
	}
	for _, prefix := range p.prefixes {
		keys = append(keys, indexKey{p.attr, prefix.String()})
	}
	return keys
}

// build stores all items. It returns for each the predicate that is proved when the index finds the item, or nil.
func (x *index) build(items []item) (proved []*predicate) {
	count := make(map[indexKey]int)
	for i := range items {
		for j := range items[i].predicates {
			if p := &items[i].predicates[j]; p.indexable {
				for _, k := range p.keys() {
					count[k]++
				}
			}
		}
	}
	for i := range items {
		var best *predicate
		fewest := 0
		for j := range items[i].predicates {
			p := &items[i].predicates[j]
			if !p.indexable {
				continue
			}
			most := 0
			for _, k := range p.keys() {
				most = max(most, count[k])
			}
			if best == nil || most < fewest {
				best, fewest = p, most
			}
		}
		x.add(best, int32(i), items[i].shadow)
		proved = append(proved, best)
	}
	slices.Sort(x.addrs.lengths)
	return proved
}

func (x *index) add(p *predicate, number int32, shadow bool) {
	switch {
	case p == nil:
		x.always = append(x.always, number)
	case p.ip:
		x.addrs.add(p.prefixes, number)
	case p.path:
		if x.path == nil {
			x.path = new(match.Index)
		}
		x.paths.add(number, shadow)
		for _, pattern := range p.patterns {
			x.path.Add(pattern, number)
		}
		for v := range p.values { // literal paths, without patterns
			x.path.Add(match.LiteralPattern(v), number)
		}
	default:
		v := x.forAttr(p.attr)
		v.add(number, shadow)
		for text := range p.values {
			v.items[text] = v.items[text].With(number)
		}
		for text := range p.below {
			v.below[text] = v.below[text].With(number)
		}
	}
}

func (x *index) forAttr(attr int) *valueIndex {
	for i := range x.values {
		if x.values[i].attr == attr {
			return &x.values[i]
		}
	}
	x.values = append(x.values, valueIndex{attr: attr, items: make(map[string]match.Numbers), below: make(map[string]match.Numbers)})
	return &x.values[len(x.values)-1]
}

func (a *addrIndex) add(prefixes []netip.Prefix, number int32) {
	if a.items == nil {
		a.items = make(map[netip.Prefix]match.Numbers)
	}
	for _, p := range prefixes {
		a.items[p] = a.items[p].With(number)
		length := p.Bits()
		if p.Addr().Is6() {
			length += ipv6Length
		}
		if !slices.Contains(a.lengths, length) {
			a.lengths = append(a.lengths, length)
		}
	}
}

// find appends the numbers of items that the request may match, unordered and possibly with duplicates.
func (x *index) find(m *MatchResult, found []int32) ([]int32, error) {
	found = append(found, x.always...)
	if x.path != nil {
		path, has, err := m.value(m.set.pathAttr)
		switch {
		case err != nil && x.paths.strict:
			return found, err
		case err != nil:
			found = append(found, x.paths.first)
		case has == Present:
			found = x.path.Find(path[1:], found)
		}
	}
	for i := range x.values {
		v := &x.values[i]
		value, has, err := m.value(v.attr)
		switch {
		case err != nil && v.strict:
			return found, err
		case err != nil:
			found = append(found, v.first)
			continue
		case has == Absent:
			continue
		}
		list := v.items[value]
		found = list.AppendTo(found)
		if len(v.below) > 0 {
			for rest := value; ; {
				_, parent, more := strings.Cut(rest, ".")
				if !more {
					break
				}
				list := v.below[parent]
				found = list.AppendTo(found)
				rest = parent
			}
		}
	}
	return x.addrs.find(m.addr, found), nil
}

func (a *addrIndex) find(addr netip.Addr, found []int32) []int32 {
	if !addr.IsValid() {
		return found
	}
	for _, length := range a.lengths {
		bits := length
		if length >= ipv6Length {
			bits -= ipv6Length
		}
		if addr.Is6() != (length >= ipv6Length) {
			continue
		}
		if p, err := addr.Prefix(bits); err == nil {
			list := a.items[p]
			found = list.AppendTo(found)
		}
	}
	return found
}
