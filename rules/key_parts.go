package rules

import (
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/keyenc"
)

// Texts of a [KeyPart] without a value. Values that begin like these are quoted.
const (
	partAbsent = "(none)"
	partNoAddr = "(no address)"
	partSecret = "~" // followed by the digest in hexadecimal
)

// target is the rule or the limit of a domain that a name of a limiter's rule refers to, and one of its buckets or all.
type target struct {
	item   *item
	limit  *DescriptorLimit
	bucket string // "": all
}

// names returns the rules by their names and by those of their buckets. It is built on first use, which is rare.
func (s *Set) names() map[string]target {
	s.namesOnce.Do(func() {
		all := make(map[string]target)
		for i := range s.items {
			it := &s.items[i]
			for j := range it.buckets {
				name := it.buckets[j].enforced.Name
				all[name] = target{item: it, bucket: name}
			}
			if it.kind == limits {
				all[it.rule.Name] = target{item: it}
			}
		}
		for _, t := range s.domains {
			for _, l := range t.limits {
				for _, r := range l.Rules {
					all[r.Name] = target{limit: l, bucket: r.Name}
				}
				if len(l.Rules) > 0 {
					all[l.ruleName()] = target{limit: l}
				}
			}
		}
		s.byName = all
	})
	return s.byName
}

// ActiveRule is an enabled rule with the limiter's rules.
type ActiveRule struct {
	Name   string
	Pos    Position
	Domain string         // of a limit in Envoy's format; else empty
	Per    []string       // attributes of the key; none: all requests together
	Rules  []*sluice.Rule // one for each limit, with the numbers that apply without tiers and overrides
}

// ActiveRules returns the active rules in the order of the configuration: enabled rules of Sluice's format, and the
// limits of domains by their paths ("messaging/message_type=marketing").
func (s *Set) ActiveRules() []ActiveRule {
	var all []ActiveRule
	for i := range s.items {
		it := &s.items[i]
		if it.kind != limits {
			continue
		}
		c := ActiveRule{Name: it.rule.Name, Pos: it.rule.Pos}
		for j := range it.per {
			c.Per = append(c.Per, it.per[j].name)
		}
		for j := range it.buckets {
			c.Rules = append(c.Rules, it.buckets[j].enforced)
		}
		all = append(all, c)
	}
	for i := range s.cfg.Domains {
		for _, l := range s.DescriptorLimits(s.cfg.Domains[i].Name) {
			if l.Unlimited {
				continue
			}
			c := ActiveRule{Name: l.ruleName(), Pos: l.Source.Pos, Domain: l.Domain, Rules: l.Rules}
			for _, n := range l.path {
				c.Per = append(c.Per, n.rule.Key)
			}
			all = append(all, c)
		}
	}
	return all
}

// ruleName returns the name of the limit among other rules.
func (l *DescriptorLimit) ruleName() string { return shortName(descriptorName(l.Domain, l.path)) }

// RuleNames lists the names of [Set.ActiveRules], sorted.
func (s *Set) RuleNames() []string {
	var all []string
	for name, n := range s.names() {
		if n.bucket == "" {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// KeyParts decodes a key of a rule of this set for display: the attributes of the key and their values. [Set.Buckets]
// accepts the parts.
//
// A printable value that cannot be confused with anything else is returned as it is. Others are quoted like Go strings.
// A missing value is "(none)" or "(no address)", and a secret is ~ and its digest. A key that does not belong to the
// rule has one part, the key itself, quoted.
func (s *Set) KeyParts(rule *sluice.Rule, k string) []KeyPart {
	n, ok := s.names()[rule.Name]
	switch {
	case ok && n.item != nil:
		if parts, ok := s.itemParts(n.item, k); ok {
			return parts
		}
	case ok || s.broughtBy(rule.Name):
		if parts, ok := entryParts(k); ok {
			return parts
		}
	}
	return []KeyPart{{"key", strconv.Quote(k)}}
}

// broughtBy reports whether name is the rule of a limit that a request to a domain brought.
func (s *Set) broughtBy(name string) bool {
	for domain := range maps.Keys(s.domains) {
		if strings.HasPrefix(name, nameToken(domain)+"//") {
			return true
		}
	}
	return false
}

func (s *Set) itemParts(it *item, k string) ([]KeyPart, bool) {
	texts := []string{k}
	switch len(it.per) {
	case 0:
		return nil, k == ""
	case 1:
	default:
		var ok bool
		if texts, ok = keyenc.Split(k); !ok || len(texts) != len(it.per) {
			return nil, false
		}
	}
	var parts []KeyPart
	for i, text := range texts {
		value, ok := s.showPart(&it.per[i], text)
		if !ok {
			return nil, false
		}
		parts = append(parts, KeyPart{it.per[i].name, value})
	}
	return parts, true
}

func (s *Set) showPart(p *part, text string) (string, bool) {
	value, kind, ok := keyenc.Read(text)
	switch kind {
	case keyenc.IsAbsent:
		return partAbsent, true
	case keyenc.IsNoAddr:
		return partNoAddr, true
	case keyenc.IsDigest:
		return partSecret + hex.EncodeToString([]byte(value)), true
	}
	if counted, err := s.canonicalValue(p, value); err != nil || counted != value {
		return strconv.Quote(value), ok
	}
	return showValue(value), ok
}

// entryParts decodes the entries of a descriptor.
func entryParts(k string) ([]KeyPart, bool) {
	texts, ok := keyenc.Split(k)
	if !ok || len(texts)%2 != 0 {
		return nil, false
	}
	var parts []KeyPart
	for i := 0; i < len(texts); i += 2 {
		name, kind, ok := keyenc.Read(texts[i])
		value, kind2, ok2 := keyenc.Read(texts[i+1])
		if !ok || !ok2 || kind != keyenc.IsValue || kind2 != keyenc.IsValue {
			return nil, false
		}
		parts = append(parts, KeyPart{showValue(name), showValue(value)})
	}
	return parts, true
}

// showValue quotes a value that is not printable or could be confused with something else.
func showValue(s string) string {
	if s == "" || strings.ContainsRune(`"(~`, rune(s[0])) || !utf8.ValidString(s) {
		return strconv.Quote(s)
	}
	for _, r := range s {
		if !strconv.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}
