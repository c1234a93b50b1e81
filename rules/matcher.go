package rules

import (
	"fmt"
	"time"

	"github.com/sluiceproject/sluice"
)

// fast is what matching needs of an item, and nothing else. Among ten thousand rules it is the misses of the
// processor's cache that a match costs: so this fits in two lines, and what many rules have in common they share.
type fast struct {
	checks  []check
	takes   []fastTake
	per     []part
	rule    *Rule
	item    *item
	cost    int64
	delay   time.Duration
	costBy  int32
	proved  int32 // attribute that the index found a rule in shadow by, or -1
	enforce int16
	kind    itemKind
	missing OnMissing
	excepts bool // the item has exceptions
	chooses bool // tiers or overrides choose its limits
	shadow  bool // in shadow mode: denies and rejects nothing
}

// check is a predicate that the index has not proved. Most ask for one value.
type check struct {
	attr  int32
	plain bool // the attribute is to equal one
	one   string
	all   *predicate
}

func (c *check) holds(m *MatchResult) (bool, error) {
	if !c.plain {
		return c.all.holds(m)
	}
	value, found, err := m.value(int(c.attr))
	return found == Present && value == c.one, err
}

// fastTake is a limit that applies unless others are chosen.
type fastTake struct {
	bucket
	limit *sluice.Limit
}

// sharer keeps one copy of each different list, so that rules alike in something have it in the cache together.
type sharer struct {
	checks map[string][]check
	parts  map[string][]part
	takes  []fastTake
}

func (s *Set) buildFast(proved []*predicate) {
	share := sharer{make(map[string][]check), make(map[string][]part), nil}
	total := 0
	for i := range s.items {
		total += len(s.items[i].limits.limits)
	}
	share.takes = make([]fastTake, 0, total)
	s.fast = make([]fast, len(s.items))
	for i := range s.items {
		it := &s.items[i]
		f := &s.fast[i]
		*f = fast{
			kind: it.kind, item: it, excepts: len(it.except) > 0, shadow: it.shadow, proved: provedBy(proved[i]),
			checks: share.checksOf(it, proved[i]),
		}
		if it.kind != limits {
			continue
		}
		r := it.rule
		f.rule, f.per = r, share.partsOf(it.per)
		f.chooses = it.tierBy != byNothing || len(it.overrides) > 0
		f.cost, f.costBy, f.delay = max(1, r.Cost.Default), int32(it.costBy), r.MaxDelay
		if r.Cost.Max > 0 {
			f.cost = min(f.cost, r.Cost.Max)
		}
		f.enforce, f.missing = int16(r.EnforceBasisPoints), r.OnMissing
		from := len(share.takes)
		for j, limit := range it.limits.limits {
			share.takes = append(share.takes, fastTake{it.buckets[j], limit})
		}
		f.takes = share.takes[from:len(share.takes):len(share.takes)]
	}
}

// provedBy is the attribute that a predicate reads, or -1.
func provedBy(p *predicate) int32 {
	if p == nil || p.ip {
		return -1
	}
	return int32(p.attr)
}

func (h *sharer) checksOf(it *item, proved *predicate) []check {
	var list []check
	name := ""
	for i := range it.predicates {
		p := &it.predicates[i]
		if p == proved {
			continue
		}
		c := check{attr: int32(p.attr), all: p}
		if p.indexable && len(p.values) == 1 && len(p.below)+len(p.patterns)+len(p.prefixes) == 0 {
			for c.one = range p.values {
				c.plain, c.all = true, nil
			}
			name += fmt.Sprintf("%d=%q ", p.attr, c.one)
		} else {
			name += p.content() + " "
		}
		list = append(list, c)
	}
	if shared, ok := h.checks[name]; ok {
		return shared
	}
	h.checks[name] = list
	return list
}

// content is what the predicate asks, wherever it was written: predicates of the same content are the same.
func (p *predicate) content() string {
	s := p.source
	present := "-"
	if p.present != nil {
		present = fmt.Sprint(*p.present)
	}
	return fmt.Sprintf("%d %t %s %q %q %q %q %q", p.attr, p.not, present, s.Values, s.Patterns, s.Prefixes, s.Suffixes, s.Regexps)
}

func (h *sharer) partsOf(per []part) []part {
	name := fmt.Sprint(per)
	if shared, ok := h.parts[name]; ok {
		return shared
	}
	h.parts[name] = per
	return per
}
