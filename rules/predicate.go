package rules

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/sluiceproject/sluice/internal/pairs"

	"github.com/sluiceproject/sluice/internal/match"
)

// predicate is a compiled condition on one attribute.
type predicate struct {
	source   *Predicate
	attr     int
	ip, path bool
	not      bool
	present  *bool

	values    map[string]bool
	below     map[string]bool // for hosts: names below which others match
	addrs     match.AddrSet   // for addresses
	prefixes  []netip.Prefix  // the same, as they were written
	starts    []string
	ends      []string
	regexps   []*regexp.Regexp
	patterns  []*match.Pattern
	indexable bool // only values, patterns or addresses, and not negated
}

// maxRegexp bounds the length of a regular expression.
const maxRegexp = 1 << 10

// predicate compiles one condition; all that is wrong with it is reported.
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
			why = "a path counts without a slash at its end"
		}
		if p.path && text == "/" {
			c.set.spellings = append(c.set.spellings, Warning{source.Pos, c.rule, `match: path: the suffix "/" is that of the path / alone: a path counts without a slash at its end`})
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
			c.fault(source.Pos, "match: %v: this is RE2, as in Go", err)
			continue
		}
		p.regexps = append(p.regexps, re)
	}
	n := len(source.Values) + len(source.Prefixes) + len(source.Suffixes) + len(source.Regexps) + len(source.Patterns)
	switch {
	case source.Present != nil && (n > 0 || source.Not):
		c.fault(source.Pos, "match: %s: present stands alone, without other conditions", source.Ref.Name)
	case source.Present == nil && n == 0:
		c.fault(source.Pos, "match: %s: there is nothing to compare with: write a value, a list of values, or {present: true}", source.Ref.Name)
	}
	simple := len(source.Prefixes)+len(source.Suffixes)+len(source.Regexps) == 0
	p.indexable = !source.Not && source.Present == nil && simple && len(attr.fields) <= 1
	return p, len(c.faults) == sound
}

// values compiles the whole values and patterns of a predicate, according to what the attribute is.
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
				c.fault(source.Pos, "match: host %q: a * stands at the beginning, for all names below: *.example.com", text)
			} else {
				p.values[text] = true
			}
		case attr.is(FieldMethod):
			method := strings.ToUpper(text)
			c.doubts(source.Pos, "match: method", nil, p.attr, text, method)
			p.values[method] = true
			if method == "GET" { // servers answer HEAD by what they have for GET: it must be no way around a limit
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
		c.fault(source.Pos, "match: patterns are for path; %s has values, prefix, suffix and regex", source.Ref.Name)
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

// ends returns prefixes or suffixes as the values that they are compared with are written.
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

// doubtEnd adds a warning about a prefix or suffix that no value of a request has, if there is a reason why.
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

// holds tells whether the request fulfils the condition.
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
