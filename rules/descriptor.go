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
	Cost    int64 // as computed by the caller; 0 peeks
	// Limit is the request's own limit, from [sluice.Limit.Build]: no rule is looked up, and nothing shadows or
	// replaces it. Its sender sets limits, so accept it only from trusted callers. It does not apply to an unknown
	// domain, which has no limits. If it is nil or invalid, the domain's rules apply.
	Limit *sluice.Limit
}

// DescriptorMatch is the limit of a domain for one descriptor.
type DescriptorMatch struct {
	Limit    *DescriptorLimit // nil: not limited
	Replaced bool             // another descriptor's limit replaces this one, so that it does not count
	First, N int              // its takes are Takes[First:First+N]; an unlimited or replaced limit has none

	keyEnd int // end of its key in the buffer; it has no key if the key before ends there
}

// DescriptorMatches contains the limits of a domain for a request. It is reusable: its keys and slices are valid until
// the next use. The zero DescriptorMatches is ready for use. It must be used by one goroutine at a time.
type DescriptorMatches struct {
	DomainFound bool              // the domain exists; else nothing is limited
	Takes       []sluice.Take     // to be decided together
	Matches     []DescriptorMatch // one for each descriptor, in the same order

	keys     []byte // all keys, concatenated
	part     []byte
	replaced []bool // by index of a limit's name; all false between uses
	scratch  compositeScratch
}

// MatchDescriptors finds the limits of a request to a domain like Envoy's rate limit service, and their takes.
//
// Each descriptor is matched separately. Its entries are compared level by level with the domain's rules: a rule for
// key and value comes first, then the first matching rule with a *, then the rule for any value of the key. The choice
// is final: if nothing below the chosen rule matches, its siblings are not tried. A limit applies only to descriptors
// that end at its rule.
//
// A limit whose name another matched limit replaces does not count. Neither does an unlimited one, although the limits
// it replaces are replaced. Two limits that replace each other both do not count. A descriptor that occurs twice counts
// twice.
//
// The key of a descriptor contains all of its keys and values, so that a rule for any value has one bucket for each. If
// a rule with share_threshold matched, the key contains its pattern instead of the value. A key or value of more than
// 1024 bytes is matched as it is, and replaced by its SHA-256 in the key.
func (s *Set) MatchDescriptors(domain string, ds []Descriptor, m *DescriptorMatches) {
	s.domains[domain].match(ds, m)
}

// match also works on a nil tree, which has no rules.
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

// keptScratch is the maximum size of the scratch space for composites that is kept for the next use.
const keptScratch = 64 << 10

// find returns the limit of a descriptor, and appends its key if the limit counts.
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

// override creates the limit of a descriptor that brings its own. It counts per entries of the descriptor, separately
// for each length of window.
func (t *domainTree) override(d *Descriptor, m *DescriptorMatches) *DescriptorLimit {
	rule, err := sluice.NewRule(sluice.Rule{
		Name: shortName(nameToken(t.name) + "//" + d.Limit.Window.String()), Limit: *d.Limit, ChargeDenied: t.chargeDenied,
	})
	if err != nil { // the limit was not built, or its window is invalid
		return t.find(d.Entries, m)
	}
	m.keys = keyenc.AppendSeveral(m.keys)
	for i := range d.Entries {
		m.appendEntry(d.Entries[i].Key, d.Entries[i].Value)
	}
	return &DescriptorLimit{Rules: []*sluice.Rule{rule}, Domain: t.name, number: -1}
}

// counted returns the key and value that are part of the key for an entry that matched the rule.
func (n *domainNode) counted(e *Entry, by EntryMatch) (k, value string) {
	if by == EntryWildcard && n.rule.ShareThreshold {
		return e.Key, n.patternValue(e.Key)
	}
	return e.Key, e.Value
}

// patternValue returns the value part of a wildcard rule's pattern, or the whole pattern if a * matched the request's
// key.
func (n *domainNode) patternValue(k string) string {
	if rest, ok := strings.CutPrefix(n.composite, k); ok && rest != "" && rest[0] == '_' {
		return rest[1:]
	}
	return n.composite
}

// longText is the length in bytes from which a key or value of an entry is replaced by its digest, because clients
// choose values and stores keep them.
const longText = 1 << 10

// appendEntry appends a key and a value to the current key.
func (m *DescriptorMatches) appendEntry(k, value string) {
	for _, text := range [...]string{k, value} {
		switch {
		case len(text) > longText:
			bounds.RLSText.Reached()
			sum := sha256.Sum256(unsafe.Slice(unsafe.StringData(text), len(text)))
			m.part = keyenc.AppendDigest(m.part[:0], sum[:])
			m.keys = keyenc.AppendBytes(m.keys, m.part)
			continue
		case text != "" && text[0] == 0: // needs a mark, which its length includes
			m.part = keyenc.AppendValue(m.part[:0], text)
			m.keys = keyenc.AppendBytes(m.keys, m.part)
			continue
		}
		m.keys = keyenc.AppendPart(m.keys, text)
	}
}

// replace marks the replaced limits. names is the number of names.
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

// take creates the takes. Keys are cut from the buffer only now that it no longer grows.
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

// DescriptorLimits returns the limits of a domain in the order of the configuration. They must not be changed.
func (s *Set) DescriptorLimits(domain string) []*DescriptorLimit {
	if t := s.domains[domain]; t != nil {
		return t.limits
	}
	return nil
}
