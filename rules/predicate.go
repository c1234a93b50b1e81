package rules

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/internal/match"
	"github.com/sluiceproject/sluice/internal/pairs"
)

// predicate is a compiled condition on one attribute.
type predicate struct {
	source   *Predicate
	attr     int
	ip, path bool
	not      bool
	present  *bool

	values    map[string]bool
	below     map[string]bool // for hosts: *.example.com
	addrs     match.AddrSet   // for addresses
	prefixes  []netip.Prefix  // the same, as written
	starts    []string
	ends      []string
	regexps   []*regexp.Regexp
	patterns  []*match.Pattern
	indexable bool // only values, patterns or addresses, and not negated
}

// maxRegexp bounds the length of a regular expression.
const maxRegexp = 1 << 10

// predicate compiles one condition and reports its errors.
func (c *compiler) predicate(source *Predicate) (predicate, bool) {
	p := predicate{source: source, not: source.Not, present: source.Present}
	sound := len(c.faults)
	number, err := c.attrs.resolve(source.Ref.Name)
	if err != nil {
		c.fault(source.Ref.Pos, "match: %v", err)
		return p, false
	}
	p.attr = number
	attr := &c.attrs.list[number]
	p.ip, p.path = attr.ip && len(attr.fields) == 0, source.Ref.Name == "path"
	c.values(&p, attr)
	p.starts, p.ends = c.ends(source, attr, source.Prefixes), c.ends(source, attr, source.Suffixes)
	for _, text := range source.Prefixes {
		why := attr.never(text+"x", text)
		if p.path && !strings.HasPrefix(text, "/") {
			why = "a path begins with a slash"
		}
		c.doubtEnd(source, attr, "prefix", text, why)
	}
	for _, text := range source.Suffixes {
		why := attr.never("x"+text, text)
		if p.path && strings.HasSuffix(text, "/") {
			why = "paths are compared without a trailing slash"
		}
		if p.path && text == "/" {
			c.set.spellings = append(c.set.spellings, Warning{source.Pos, c.rule, `match: path: only the path / has the suffix "/": paths are compared without a trailing slash`})
			continue
		}
		c.doubtEnd(source, attr, "suffix", text, why)
	}
	for _, text := range source.Regexps {
		if len(text) > maxRegexp {
			c.fault(source.Pos, "match: a regular expression of %d bytes: at most %d are allowed", len(text), maxRegexp)
			continue
		}
		re, err := regexp.Compile(text)
		if err != nil {
			c.fault(source.Pos, "match: %v: use RE2 syntax, as in Go", err)
			continue
		}
		p.regexps = append(p.regexps, re)
	}
	n := len(source.Values) + len(source.Prefixes) + len(source.Suffixes) + len(source.Regexps) + len(source.Patterns)
	switch {
	case source.Present != nil && (n > 0 || source.Not):
		c.fault(source.Pos, "match: %s: present cannot be combined with other conditions: remove one", source.Ref.Name)
	case source.Present == nil && n == 0:
		c.fault(source.Pos, "match: %s: has no condition: write a value, a list of values, or {present: true}", source.Ref.Name)
	}
	simple := len(source.Prefixes)+len(source.Suffixes)+len(source.Regexps) == 0
	p.indexable = !source.Not && source.Present == nil && simple && len(attr.fields) <= 1
	return p, len(c.faults) == sound
}

// values compiles the values and patterns of a predicate, depending on the attribute.
func (c *compiler) values(p *predicate, attr *attribute) {
	source := p.source
	p.values = make(map[string]bool)
	for _, text := range source.Values {
		switch {
		case p.ip:
			prefix, err := match.ParsePrefix(text)
			if err != nil {
				c.fault(source.Pos, "match: ip: %v", err)
				continue
			}
			p.prefixes = append(p.prefixes, prefix)
		case attr.is(FieldHost):
			written := text
			text = match.CanonicalHost(text)
			c.doubts(source.Pos, "match: host", nil, p.attr, written, text)
			if parent, ok := strings.CutPrefix(text, "*."); ok {
				if p.below == nil {
					p.below = make(map[string]bool)
				}
				p.below[parent] = true
			} else if strings.Contains(text, "*") {
				c.fault(source.Pos, "match: host %q: * is only valid at the start, as in *.example.com", text)
			} else {
				p.values[text] = true
			}
		case attr.is(FieldMethod):
			method := strings.ToUpper(text)
			c.doubts(source.Pos, "match: method", nil, p.attr, text, method)
			p.values[method] = true
			if method == "GET" { // servers respond to HEAD like to GET, so that HEAD must not bypass a limit
				p.values["HEAD"] = true
			}
		case p.path:
			p.values[text] = true
		default:
			value, err := attr.canonicalValue(c.set, text)
			if err != nil {
				c.fault(source.Pos, "match: %s: %v", source.Ref.Name, err)
				continue
			}
			c.doubts(source.Pos, "match: "+source.Ref.Name, nil, p.attr, text, value)
			p.values[value] = true
		}
	}
	p.addrs = match.NewAddrSet(p.prefixes)
	if len(source.Patterns) > 0 && !p.path {
		c.fault(source.Pos, "match: %s: patterns are only valid for path: use values, prefix, suffix or regex", source.Ref.Name)
		return
	}
	for _, text := range source.Patterns {
		pattern, err := match.ParsePattern(text, c.cfg.IgnorePathCase)
		if err != nil {
			c.fault(source.Pos, "match: %v", err)
			continue
		}
		p.patterns = append(p.patterns, pattern)
	}
}

// ends returns prefixes or suffixes in the form of the values that they are compared with.
func (c *compiler) ends(source *Predicate, attr *attribute, written []string) []string {
	list := slices.Clone(written)
	for i, text := range list {
		if attr.is(FieldCookie) {
			plain, ok := pairs.CookieValue(text)
			if !ok {
				c.fault(source.Pos, "match: %s: %v", source.Ref.Name, errCookie)
			}
			list[i] = plain
		}
		if attr.lower || source.Ref.Name == "path" && c.cfg.IgnorePathCase {
			list[i] = strings.ToLower(list[i])
		}
	}
	return list
}

// doubtEnd adds a warning about a prefix or suffix that no value of a request has, if why is not empty.
func (c *compiler) doubtEnd(source *Predicate, attr *attribute, what, text, why string) {
	if why == "" {
		return
	}
	shown := fmt.Sprintf("%q", text)
	if attr.secret {
		shown = "a secret"
	}
	c.set.spellings = append(c.set.spellings, Warning{source.Pos, c.rule, fmt.Sprintf("match: %s: the %s %s is never matched: %s", source.Ref.Name, what, shown, why)})
}

func (c *attribute) is(k FieldKind) bool { return len(c.fields) == 1 && c.fields[0].Kind == k }

// holds reports whether the request matches the condition.
func (p *predicate) holds(m *MatchResult) (bool, error) {
	if p.ip {
		a := m.addr
		switch {
		case p.present != nil:
			return a.IsValid() == *p.present, nil
		case !a.IsValid():
			return p.not, nil
		case len(p.starts)+len(p.ends)+len(p.regexps) > 0:
			return p.fits(a.String()) != p.not, nil
		}
		return p.addrs.Contains(a) != p.not, nil
	}
	value, found, err := m.value(p.attr)
	switch {
	case err != nil:
		return false, err
	case p.present != nil:
		return (found == Present) == *p.present, nil
	case found == Absent:
		return p.not, nil
	}
	return p.fits(value) != p.not, nil
}

func (p *predicate) fits(value string) bool {
	if p.values[value] {
		return true
	}
	for _, pattern := range p.patterns {
		if pattern.Matches(value) {
			return true
		}
	}
	if p.below != nil {
		for rest := value; ; {
			_, parent, more := strings.Cut(rest, ".")
			if !more {
				break
			}
			if p.below[parent] {
				return true
			}
			rest = parent
		}
	}
	for _, start := range p.starts {
		if strings.HasPrefix(value, start) {
			return true
		}
	}
	for _, end := range p.ends {
		if strings.HasSuffix(value, end) {
			return true
		}
	}
	for _, re := range p.regexps {
		if re.MatchString(value) {
			return true
		}
	}
	return false
}

// fast contains the fields of an item that matching needs. With 10,000 rules the cost of a match is cache misses: so it
// fits in two cache lines, and rules share equal lists.
type fast struct {
	checks  []check
	takes   []bucketLimit
	per     []part
	rule    *Rule
	item    *item
	cost    int64
	delay   time.Duration
	costBy  int32
	proved  int32 // attribute by which the index found a rule in shadow mode, or -1
	enforce int16
	kind    itemKind
	missing OnMissing
	excepts bool // the item has exceptions
	chooses bool // tiers or overrides choose its limits
	shadow  bool // in shadow mode: denies and rejects nothing
}

// check is a predicate that the index has not proved. Most compare with one value.
type check struct {
	attr  int32
	plain bool // the attribute must equal one
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

// sharer keeps one copy of each distinct list, so that rules with equal lists share cache lines.
type sharer struct {
	checks map[string][]check
	parts  map[string][]part
	takes  []bucketLimit
}

// matcher finds the entries of several lists that match a request. The lists are concatenated in the order of their
// kinds.
type matcher struct {
	items []item
	fast  []fast
	index index
}

func (m *matcher) build() {
	proved := m.index.build(m.items)
	share := sharer{make(map[string][]check), make(map[string][]part), nil}
	m.fast = make([]fast, len(m.items))
	for i := range m.items {
		it := &m.items[i]
		m.fast[i] = fast{
			kind: it.kind, item: it, shadow: it.shadow, proved: provedBy(proved[i]), checks: share.checksOf(it, proved[i]),
		}
	}
}

func (s *Set) buildFast(proved []*predicate) {
	share := sharer{make(map[string][]check), make(map[string][]part), nil}
	total := 0
	for i := range s.items {
		total += len(s.items[i].limits.limits)
	}
	share.takes = make([]bucketLimit, 0, total)
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
		share.takes = append(share.takes, it.limits.limits...)
		f.takes = share.takes[from:len(share.takes):len(share.takes)]
	}
}

// provedBy returns the attribute that a predicate reads, or -1.
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

// content returns a text that is equal for predicates with equal conditions, wherever they are written.
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
