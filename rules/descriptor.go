package rules

import (
	"crypto/sha256"
	"strings"
	"unsafe"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/keyenc"
)

// Descriptor is one descriptor of a request to a domain.
type Descriptor struct {
	Entries []Entry
	Cost    int64 // as the caller worked it out; 0 peeks
	// Limit is the request's own limit, from [sluice.Limit.Build]: no rule is looked for, and nothing can shadow or
	// replace it. Whoever may send one sets limits, so ask who sends it. A domain that is not known has no limits, not
	// even these. Nil, also for one that makes no sense: the domain's rules.
	Limit *sluice.Limit
}

// DescriptorMatch is what a domain says about one descriptor.
type DescriptorMatch struct {
	Limit    *DescriptorLimit // nil: not limited
	Replaced bool             // another descriptor's limit replaces this one: it does not count
	First, N int              // its takes are Takes[First:First+N]; a limit that is unlimited or replaced has none

	keyEnd int // of its key in the buffer; it has none if that is where the key before ends
}

// DescriptorMatches is what a domain says about a request. It is reused: its keys and slices are good until the next
// use. The zero DescriptorMatches works. It is for one goroutine at a time.
type DescriptorMatches struct {
	DomainFound bool              // there is such a domain; else nothing is limited
	Takes       []sluice.Take     // to be decided together
	Matches     []DescriptorMatch // one for each descriptor, in the same order

	keys     []byte // all keys, one after the other
	part     []byte
	replaced []bool // by number of a limit's name; all false between uses
	scratch  compositeScratch
}

// MatchDescriptors finds the limits of a request to a domain as Envoy's service does, and what they take.
//
// Each descriptor is matched by itself. Its entries are compared level by level with the domain's rules: a rule for key
// and value comes first, then the first that matches of those with a * in it, then the rule for any value of the key.
// The choice is final: if nothing below the chosen rule matches, its siblings are not tried. A limit applies only to
// descriptors that end at its rule.
//
// A limit whose name another matched limit replaces does not count, and neither does one that is unlimited, though what
// that one replaces is replaced. Two limits that replace each other both do not count. A descriptor that is given twice
// counts twice.
//
// A descriptor counts by all of its keys and values, so that a rule for any value has a count for each. Where a rule
// with share_threshold matched, its pattern takes the place of the value. A key or value of more than 1024 bytes is matched
// as it is, and counted by its SHA-256.
func (s *Set) MatchDescriptors(domain string, ds []Descriptor, m *DescriptorMatches) {
	s.domains[domain].match(ds, m)
}

// match works on a nil tree too, which knows no rules.
func (t *domainTree) match(ds []Descriptor, m *DescriptorMatches) {
	m.DomainFound = t != nil
	m.Takes, m.Matches, m.keys = m.Takes[:0], m.Matches[:0], m.keys[:0]
	replaces := false
	for i := range ds {
		var limit *DescriptorLimit
		switch {
		case t == nil:
		case ds[i].Limit != nil:
			limit = t.override(&ds[i], m)
		default:
			limit = t.find(ds[i].Entries, m)
		}
		m.Matches = append(m.Matches, DescriptorMatch{Limit: limit, keyEnd: len(m.keys)})
		replaces = replaces || limit != nil && len(limit.replaces) > 0
	}
	if replaces {
		m.replace(t.names)
	}
	m.take(ds)
	if cap(m.scratch.forwards) > keptScratch {
		m.scratch = compositeScratch{}
	}
}

// keptScratch is how much room to write composites in is kept for the next use.
const keptScratch = 64 << 10

// find returns the limit of a descriptor, and appends its key to the keys if it is one that counts.
func (t *domainTree) find(entries []Entry, m *DescriptorMatches) *DescriptorLimit {
	from := len(m.keys)
	m.keys = keyenc.AppendSeveral(m.keys)
	var limit *DescriptorLimit
	level := t.top
	for i := range entries {
		limit = nil
		if level == nil {
			break
		}
		n, by := level.choose(&entries[i], &m.scratch)
		if n == nil {
			break
		}
		m.appendEntry(n.counted(&entries[i], by))
		limit, level = n.limit, n.below
	}
	if limit == nil || limit.Unlimited {
		m.keys = m.keys[:from]
	}
	return limit
}

// override makes the limit of a descriptor that brings its own. It counts by the descriptor's entries, for each length
// of window by itself.
func (t *domainTree) override(d *Descriptor, m *DescriptorMatches) *DescriptorLimit {
	rule, err := sluice.NewRule(sluice.Rule{
		Name: shortName(nameToken(t.name) + "//" + d.Limit.Window.String()), Limit: *d.Limit, ChargeDenied: t.chargeDenied,
	})
	if err != nil { // it was not built, or its window is none: it makes no sense
		return t.find(d.Entries, m)
	}
	m.keys = keyenc.AppendSeveral(m.keys)
	for i := range d.Entries {
		m.appendEntry(d.Entries[i].Key, d.Entries[i].Value)
	}
	return &DescriptorLimit{Rules: []*sluice.Rule{rule}, Domain: t.name, number: -1}
}

// counted is what an entry that matched the rule counts by.
func (n *domainNode) counted(e *Entry, by EntryMatch) (k, value string) {
	if by == EntryWildcard && n.rule.ShareThreshold {
		return e.Key, n.patternValue(e.Key)
	}
	return e.Key, e.Value
}

// patternValue is the value's part of a wildcard rule's pattern. If the request's key is itself matched by a *, the
// whole pattern is.
func (n *domainNode) patternValue(k string) string {
	if rest, ok := strings.CutPrefix(n.composite, k); ok && rest != "" && rest[0] == '_' {
		return rest[1:]
	}
	return n.composite
}

// longText is the length in bytes from which on a key or value of an entry counts by its digest: clients choose values, and
// what they choose is stored.
const longText = 1 << 10

// appendEntry makes a key and a value parts of the key at hand.
func (m *DescriptorMatches) appendEntry(k, value string) {
	for _, text := range [...]string{k, value} {
		switch {
		case len(text) > longText:
			bounds.RLSText.Reached()
			sum := sha256.Sum256(unsafe.Slice(unsafe.StringData(text), len(text)))
			m.part = keyenc.AppendDigest(m.part[:0], sum[:])
			m.keys = keyenc.AppendBytes(m.keys, m.part)
			continue
		case text != "" && text[0] == 0: // needs a mark, which is part of the length in front of it
			m.part = keyenc.AppendValue(m.part[:0], text)
			m.keys = keyenc.AppendBytes(m.keys, m.part)
			continue
		}
		m.keys = keyenc.AppendPart(m.keys, text)
	}
}

// replace marks the limits that are replaced. It is given how many names there are.
func (m *DescriptorMatches) replace(names int) {
	if len(m.replaced) < names {
		m.replaced = make([]bool, names)
	}
	m.markReplaced(true)
	for i := range m.Matches {
		limit := m.Matches[i].Limit
		if limit != nil && !limit.Unlimited && limit.number >= 0 {
			m.Matches[i].Replaced = m.replaced[limit.number]
		}
	}
	m.markReplaced(false)
}

func (m *DescriptorMatches) markReplaced(mark bool) {
	for i := range m.Matches {
		if limit := m.Matches[i].Limit; limit != nil {
			for _, number := range limit.replaces {
				m.replaced[number] = mark
			}
		}
	}
}

// take lists the takes. Keys are cut from the buffer only now that it grows no more.
func (m *DescriptorMatches) take(ds []Descriptor) {
	from := 0
	for i := range m.Matches {
		d := &m.Matches[i]
		b := m.keys[from:d.keyEnd]
		from = d.keyEnd
		d.First = len(m.Takes)
		if len(b) == 0 || d.Replaced {
			continue
		}
		k := unsafe.String(unsafe.SliceData(b), len(b))
		for _, rule := range d.Limit.Rules {
			m.Takes = append(m.Takes, sluice.Take{Rule: rule, Key: k, Cost: ds[i].Cost})
		}
		d.N = len(d.Limit.Rules)
	}
}

// DescriptorLimits lists the limits of a domain in the order of the configuration. They must not be changed.
func (s *Set) DescriptorLimits(domain string) []*DescriptorLimit {
	if t := s.domains[domain]; t != nil {
		return t.limits
	}
	return nil
}
