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

// What stands for a value in a [KeyPart] that is none. Values that begin like these are quoted.
const (
	partAbsent = "(none)"
	partNoAddr = "(no address)"
	partSecret = "~" // and the digest in hexadecimal
)

// target is what a name of a rule of the limiter refers to: a rule, or a limit of a domain, and one bucket of it or all.
type target struct {
	item   *item
	limit  *DescriptorLimit
	bucket string // "": all
}

// names finds rules by their names and by those of their buckets. It is built when somebody asks, which few do.
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

// ActiveRule is a rule that counts, as a limiter knows it.
type ActiveRule struct {
	Name   string
	Pos    Position
	Domain string         // of a limit of Envoy's kind; else empty
	Per    []string       // what it counts by; none: everybody together
	Rules  []*sluice.Rule // one for each limit, with the numbers that apply unless tiers or overrides say otherwise
}

// ActiveRules lists the rules that count in the order of the configuration: those of Sluice's own kind that are enabled, and
// the limits of domains by their paths ("messaging/message_type=marketing").
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

// ruleName is what the limit is called where there are other rules.
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

// KeyParts reads a key of a rule of this set for people: what it counts by, and for which values. [Set.Buckets] takes the
// parts back.
//
// A value is written as it is if it can be printed and taken for nothing else. Others are quoted, like Go's strings.
// What is missing is "(none)" or "(no address)", and a secret is ~ and its digest. A key that is none of the rule's has
// one part, the key itself, quoted.
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

// broughtBy reports whether a rule is that of a limit that requests to some domain brought.
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

// entryParts are the entries of a descriptor.
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

// showValue quotes what cannot be printed, and what would be taken for something else.
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
