package rules

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/panics"
)

// Set is a compiled configuration. It is immutable and safe for concurrent use.
type Set struct {
	cfg            Config
	attrs          []attribute
	pathAttr       int    // -1: no rule reads the path
	items          []item // deny list, allow list, rules, in this order
	fast           []fast // the same items for matching
	index          index
	loads          matcher // priorities, adaptive limits, in this order
	bits           int     // length of the counted prefix of IPv6 addresses
	secret         [32]byte
	domains        map[string]*domainTree
	hasConcurrency bool            // a limit is a concurrency limit
	used           map[string]bool // declared attributes that are referred to
	// spellings are warnings about the values of overrides and tiers.
	spellings []Warning
	headers   map[string]bool // headers that attributes and the client's address are read from

	namesOnce sync.Once
	byName    map[string]target // see names
}

// item is a compiled rule, or one condition of the lists.
type item struct {
	kind       itemKind
	rule       *Rule // nil for lists
	predicates []predicate
	except     [][]predicate
	source     *Match

	per       []part
	buckets   []bucket // of all choices, without duplicates; those of limits first
	limits    choice   // used unless a tier or an override chooses others
	tierBy    int      // attribute, bySegment or byNothing
	tiers     map[string]choice
	overrides map[string]choice
	costBy    int  // attribute, bySegment or byNothing
	shadow    bool // in shadow mode: denies and rejects nothing
}

type itemKind uint8

const (
	denies itemKind = iota
	allows
	limits
	prioritises
	adaptiveLimits
)

// Values of tierBy and costBy that are not an attribute.
const (
	byNothing = -1
	bySegment = -2 // a named segment of the path
)

// part is one part of a key: an attribute, or a named segment of the path.
type part struct {
	name    string
	attr    int
	segment bool
}

// bucket is one limit of a rule, as the limiter's rules: one enforced, one in shadow mode. Both have one name, and so
// share their counts.
type bucket struct {
	enforced *sluice.Rule
	shadow   *sluice.Rule
}

// choice is a list of limits: of the rule, a tier or an override. An empty choice is unlimited.
type choice struct {
	limits []bucketLimit
	never  bool // deny all requests
}

// bucketLimit is a limit and the bucket that it counts in.
type bucketLimit struct {
	bucket
	limit *sluice.Limit
}

// Bounds of a configuration.
const (
	maxRules    = 100_000
	maxPer      = 8
	maxLimits   = 8
	maxNameSize = 128
)

type compiler struct {
	cfg    *Config
	attrs  *attributes
	faults []error
	rule   string // rule being compiled
	entry  entry  // entry being compiled
	where  *place
	names  map[string]Position
	set    *Set
}

// entry is the place of an entry without name and position: its list, and its index there.
type entry struct {
	list  string
	index int
}

func (c *compiler) fault(at Position, format string, args ...any) {
	msg := fmt.Sprintf(format, args...)
	if at == (Position{}) && c.rule == "" && c.entry.list != "" {
		msg = fmt.Sprintf("entry %d of %s: %s", c.entry.index+1, c.entry.list, msg)
	}
	c.faults = append(c.faults, &Error{Pos: at, Rule: c.rule, Msg: msg})
}

// place is the place of the entry that is being compiled.
type place struct {
	at   Position
	rule string
}

// New compiles a configuration. It returns all errors at once, joined, each an [*Error]. It does not panic: a bug of
// the compiler is an error too.
func New(cfg Config) (set *Set, err error) {
	where := new(place)
	defer panics.Recover(func(e *panics.Error) {
		set, err = nil, errors.Join(&Error{Pos: where.at, Rule: where.rule, Msg: e.Error(), Err: e})
	})
	return compile(cfg, where)
}

func compile(cfg Config, where *place) (*Set, error) {
	s := &Set{cfg: cfg, pathAttr: -1, bits: cmp.Or(cfg.ClientIP.IPv6Prefix, 64)}
	s.secret = sha256.Sum256(append([]byte("sluice secret attributes\x00"), cfg.DigestSecret...))
	attrs, faults := newAttributes(cfg.Attributes)
	c := &compiler{cfg: &s.cfg, attrs: attrs, faults: faults, set: s, names: make(map[string]Position), where: where}
	c.clientIP()
	s.cfg.AdaptiveLimits = slices.Clone(cfg.AdaptiveLimits) // defaults are filled in
	if s.cfg.Unmatched > UnmatchedDeny {
		c.fault(Position{}, "unmatched: there is no constant %d: use UnmatchedAllow or UnmatchedDeny", s.cfg.Unmatched)
	}
	for i := range s.cfg.DenyList {
		c.entry = entry{"deny", i}
		c.list(denies, &s.cfg.DenyList[i])
	}
	for i := range s.cfg.AllowList {
		c.entry = entry{"allow", i}
		c.list(allows, &s.cfg.AllowList[i])
	}
	c.entry = entry{}
	if len(s.cfg.Rules) > maxRules {
		bounds.Rules.Reached()
		c.fault(s.cfg.Rules[maxRules].Pos, "%d rules: at most %d are allowed", len(s.cfg.Rules), maxRules)
		return nil, errors.Join(c.faults...)
	}
	for i := range s.cfg.Rules {
		c.entry = entry{"rules", i}
		c.compileRule(&s.cfg.Rules[i])
	}
	c.entry = entry{}
	if len(s.cfg.Priorities) > 0 || len(s.cfg.AdaptiveLimits) > 0 {
		c.loadClasses()
	}
	if len(s.cfg.Domains) > 0 {
		domains, faults := compileDomains(&s.cfg, where)
		s.domains, c.faults = domains, append(c.faults, faults...)
	}
	if len(c.faults) > 0 {
		slices.SortStableFunc(c.faults, byPosition)
		return nil, errors.Join(c.faults...)
	}
	*where = place{}
	s.attrs, s.used, s.headers = attrs.list, attrs.used, attrs.headers(&s.cfg.ClientIP)
	if number, ok := attrs.numbers["path"]; ok {
		s.pathAttr = number
	}
	s.buildFast(s.index.build(s.items))
	s.loads.build()
	return s, nil
}

func byPosition(a, b error) int {
	var x, y *Error
	if !errors.As(a, &x) || !errors.As(b, &y) || x.Pos.File != y.Pos.File {
		return 0
	}
	return cmp.Or(cmp.Compare(x.Pos.Line, y.Pos.Line), cmp.Compare(x.Pos.Column, y.Pos.Column))
}

// ReadsHeader reports whether rules, or the lookup of the client's address, read a header. name is in canonical form.
// It returns false for a nil set.
func (s *Set) ReadsHeader(name string) bool { return s != nil && s.headers[name] }

// Config returns the configuration of the set, which must not be changed.
func (s *Set) Config() *Config { return &s.cfg }

func (c *compiler) clientIP() {
	ip := &c.cfg.ClientIP
	if ip.IPv6Prefix != 0 && (ip.IPv6Prefix < 32 || ip.IPv6Prefix > 128) {
		c.fault(ip.Pos, "client_ip: ipv6_prefix %d is not between 32 and 128", ip.IPv6Prefix)
	}
	if ip.ProxyHops < 0 || ip.ProxyHops > 64 {
		c.fault(ip.Pos, "client_ip: hops %d is not between 1 and 64", ip.ProxyHops)
	}
	if ip.Header != "" && len(ip.TrustedProxies) == 0 && ip.ProxyHops == 0 {
		c.fault(ip.Pos, "client_ip: header %s is never read: add trusted_proxies or hops", ip.Header)
	}
}

func (c *compiler) match(m *Match) []predicate {
	var all []predicate
	for i := range m.Predicates {
		if p, ok := c.predicate(&m.Predicates[i]); ok {
			all = append(all, p)
		}
	}
	// Cheap conditions that cannot fail are checked first.
	slices.SortStableFunc(all, func(a, b predicate) int { return cmp.Compare(c.rank(&a), c.rank(&b)) })
	return all
}

func (c *compiler) rank(p *predicate) int {
	switch attr := &c.attrs.list[p.attr]; {
	case attr.is(FieldMethod):
		return 0
	case p.path:
		return 1
	case p.ip, attr.is(FieldHost):
		return 2
	case len(p.regexps) > 0:
		return 4
	}
	return 3
}

func (c *compiler) list(kind itemKind, m *Match) {
	c.where.at = m.Pos
	if len(m.Predicates) == 0 {
		c.fault(m.Pos, "%s: an entry without conditions matches all requests: add a condition", [...]string{"deny", "allow"}[kind])
		return
	}
	c.set.items = append(c.set.items, item{kind: kind, predicates: c.match(m), source: m, tierBy: byNothing, costBy: byNothing})
}

func (c *compiler) compileRule(r *Rule) {
	c.rule, *c.where = r.Name, place{r.Pos, r.Name}
	defer func() { c.rule = "" }()
	it := item{kind: limits, rule: r, source: &r.Match, tierBy: byNothing, costBy: byNothing, shadow: r.Shadow}
	c.name(r)
	it.predicates = c.match(&r.Match)
	for i := range r.Except {
		if len(r.Except[i].Predicates) == 0 {
			c.fault(r.Except[i].Pos, "except: an entry without conditions matches all requests: add a condition")
		}
		it.except = append(it.except, c.match(&r.Except[i]))
	}
	c.per(&it)
	c.limits(&it)
	c.cost(&it)
	c.options(r)
	if !r.Disabled {
		c.set.items = append(c.set.items, it)
	}
}

func (c *compiler) name(r *Rule) {
	switch {
	case r.Name == "":
		c.fault(r.Pos, `the rule has no name: add one, such as name: posts-per-user`)
		return
	case len(r.Name) > maxNameSize:
		c.fault(r.Pos, "the name has %d bytes, at most %d are allowed", len(r.Name), maxNameSize)
		return
	}
	if !plainName(r.Name) {
		c.fault(r.Pos, "invalid name: use printable ASCII without space, #, quote and backslash")
	}
	if other, taken := c.names[r.Name]; taken {
		c.fault(r.Pos, "a rule with this name is already %s, and the two would share a bucket: rename one", other.or("there"))
	}
	c.names[r.Name] = r.Pos
}

// plainName reports whether a name can be used in stores, headers and metrics without escaping.
func plainName(name string) bool {
	for i := range len(name) {
		if b := name[i]; b <= ' ' || b >= 0x7f || b == '#' || b == '"' || b == '\\' {
			return false
		}
	}
	return len(name) <= maxNameSize
}

func (c *compiler) per(it *item) {
	r := it.rule
	if len(r.Per) > maxPer {
		c.fault(r.Per[maxPer].Pos, "per: %d attributes: at most %d are allowed", len(r.Per), maxPer)
		return
	}
	seen := make(map[string]bool)
	for _, ref := range r.Per {
		if seen[ref.Name] {
			c.fault(ref.Pos, "per: %q is listed twice: remove one", ref.Name)
			continue
		}
		seen[ref.Name] = true
		number, segment := c.refer(it, "per", ref, ref.Pos)
		switch {
		case segment:
			it.per = append(it.per, part{name: ref.Name, segment: true, attr: -1})
		case number >= 0:
			it.per = append(it.per, part{name: ref.Name, attr: number})
		}
	}
}

// refer returns the attribute that a reference of a rule names, bySegment for a named segment of its path, or byNothing
// after reporting an unknown reference.
func (c *compiler) refer(it *item, what string, ref Ref, at Position) (number int, segment bool) {
	if name, ok := strings.CutPrefix(ref.Name, "path:"); ok {
		c.capture(it, what, ref, at, name)
		return bySegment, true
	}
	number, err := c.attrs.resolve(ref.Name)
	if err != nil {
		c.fault(at, "%s: %v", what, err)
		return byNothing, false
	}
	return number, false
}

// capture checks a reference to a named segment: all patterns of the rule must contain it.
func (c *compiler) capture(it *item, what string, ref Ref, at Position, name string) {
	found := false
	for i := range it.predicates {
		p := &it.predicates[i]
		if !p.path || p.not || !p.indexable {
			continue
		}
		for _, pattern := range p.patterns {
			found = true
			if pattern.Capture(name) < 0 {
				c.fault(at, "%s: the path %s has no {%s}: add it, or use another attribute", what, pattern.Text(), name)
			}
		}
	}
	if !found {
		c.fault(at, "%s: %s needs a path with {%s}, such as path: /users/{%s}", what, ref.Name, name, name)
	}
}

func (c *compiler) cost(it *item) {
	cost := &it.rule.Cost
	switch {
	case cost.Default < 0 || cost.Default > sluice.MaxCost:
		c.fault(cost.Pos, "cost: %d is not between 1 and 2^50", cost.Default)
	case cost.Max < 0 || cost.Max > sluice.MaxCost:
		c.fault(cost.Pos, "cost: max %d is not between 1 and 2^50", cost.Max)
	}
	if cost.From != nil {
		it.costBy, _ = c.refer(it, "cost", *cost.From, cost.From.Pos)
		if it.costBy < 0 {
			return
		}
		switch attr := &c.attrs.list[it.costBy]; {
		case attr.ip:
			c.fault(cost.From.Pos, "cost: an address is not a number: use another attribute")
		case attr.is(FieldPath):
			c.fault(cost.From.Pos, "cost: a path is not a number: read a {name} of it, as path:NAME")
		case attr.preset != nil:
			if _, ok := costOf(*attr.preset); !ok {
				c.fault(cost.From.Pos, "cost: the default of %s is %q, which is not a whole number of at least 1", cost.From.Name, *attr.preset)
			}
		}
	}
}

// LimiterRules returns the limiter's rules, one for each limit, in the order of the configuration. They must not be
// changed.
func (s *Set) LimiterRules() []*sluice.Rule {
	var all []*sluice.Rule
	for i := range s.items {
		for _, b := range s.items[i].buckets {
			all = append(all, b.enforced)
		}
	}
	for i := range s.cfg.Domains {
		for _, l := range s.DescriptorLimits(s.cfg.Domains[i].Name) {
			all = append(all, l.Rules...)
		}
	}
	return all
}
