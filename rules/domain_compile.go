package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluiceproject/sluice"
)

// domainTree is a compiled [Domain]. It is immutable.
type domainTree struct {
	name   string
	top    *domainLevel
	limits []*DescriptorLimit // in the order of the configuration
	names  int                // number of names of limits that can be replaced
	// chargeDenied makes the limits charge denied requests, including limits that requests bring.
	chargeDenied bool
}

// domainLevel contains the rules below one rule, or at the top.
type domainLevel struct {
	byComposite map[string]*domainNode
	wildcards   wildcardIndex
	inOrder     []*domainNode
}

// domainNode is a compiled [DescriptorRule].
type domainNode struct {
	rule      *DescriptorRule
	composite string            // the key, or key_value
	pattern   *compositePattern // nil: the composite contains no *
	order     int               // its index in the level
	limit     *DescriptorLimit  // nil: a descriptor that ends here is not limited
	below     *domainLevel      // nil: there are no rules below
}

// DescriptorLimit is the limit for descriptors that end at a rule of a domain. It must not be changed.
type DescriptorLimit struct {
	Rules     []*sluice.Rule // all must allow; none if Unlimited
	Domain    string
	FullKey   string // the domain and the composites of all levels, joined by dots
	Name      string
	Unlimited bool
	Shadow    bool
	Quota     bool
	Replaces  []string
	Metadata  map[string]any
	Source    *DescriptorRule // nil for a limit that the request brought

	path     []*domainNode // from the top to Source
	number   int           // index of its name among those that can be replaced, or -1
	replaces []int         // indices of names
}

// compileDomains checks and compiles the domains. It reports all errors at once, in the order of the configuration and
// with the messages of Envoy's service.
func compileDomains(cfg *Config, where *place) (map[string]*domainTree, []error) {
	c := &domainCompiler{chargeDenied: cfg.ChargeDenied, native: make(map[string]Position), where: where}
	for i := range cfg.Rules {
		c.native[cfg.Rules[i].Name] = cfg.Rules[i].Pos
	}
	trees := make(map[string]*domainTree, len(cfg.Domains))
	for i := range cfg.Domains {
		d := &cfg.Domains[i]
		_, duplicate := trees[d.Name]
		switch {
		case d.Name == "":
			c.fault(d.Pos, "", "config file cannot have empty domain")
		case duplicate:
			c.fault(d.Pos, "", "duplicate domain '%s' in config file", d.Name)
		}
		tree := c.compile(d)
		if !duplicate {
			trees[d.Name] = tree
		}
	}
	if len(c.faults) > 0 {
		return nil, c.faults
	}
	return trees, nil
}

type domainCompiler struct {
	chargeDenied bool
	native       map[string]Position // positions of the rules in Sluice's format, by name
	faults       []error
	tree         *domainTree
	where        *place
}

// fault reports an error at a position, or with the rule's name if it was not read from a file.
func (c *domainCompiler) fault(at Position, rule, format string, args ...any) {
	if at != (Position{}) {
		rule = ""
	}
	c.faults = append(c.faults, &Error{Pos: at, Rule: rule, Msg: fmt.Sprintf(format, args...)})
}

func (c *domainCompiler) compile(d *Domain) *domainTree {
	c.tree = &domainTree{name: d.Name, chargeDenied: c.chargeDenied}
	c.tree.top = c.level(d.Descriptors, nil)
	c.tree.numberNames()
	return c.tree
}

func (c *domainCompiler) level(rules []DescriptorRule, path []*domainNode) *domainLevel {
	l := &domainLevel{byComposite: make(map[string]*domainNode, len(rules))}
	for i := range rules {
		r := &rules[i]
		*c.where = place{at: r.Pos}
		n := &domainNode{rule: r, composite: composite(r.Key, r.Value), order: i}
		if strings.Contains(n.composite, "*") {
			n.pattern = newCompositePattern(n.composite)
		}
		path := append(slices.Clip(path), n)
		name := descriptorName(c.tree.name, path)
		_, duplicate := l.byComposite[n.composite]
		switch {
		case r.Key == "":
			c.fault(r.Pos, name, "descriptor has empty key")
		case duplicate:
			c.fault(r.Pos, name, "duplicate descriptor composite key '%s'", fullKey(c.tree.name, path))
		default:
			l.byComposite[n.composite] = n
			l.inOrder = append(l.inOrder, n)
		}
		c.limit(n, path, name)
		if r.ShareThreshold && n.pattern == nil {
			c.fault(r.Pos, name, "share_threshold can only be used with wildcard values (containing '*'), "+
				"but found key '%s'", n.composite)
		}
		if len(r.Descriptors) > 0 {
			n.below = c.level(r.Descriptors, path)
		}
	}
	l.wildcards = newWildcardIndex(l.inOrder)
	return l
}

// composite returns the text that identifies a rule of a level and that a request's entry is compared with.
func composite(key, value string) string {
	if value == "" {
		return key
	}
	return key + "_" + value
}

func fullKey(domain string, path []*domainNode) string {
	s := domain
	for _, n := range path {
		s += "." + n.composite
	}
	return s
}

func (c *domainCompiler) limit(n *domainNode, path []*domainNode, name string) {
	r := n.rule
	if len(r.Limits) == 0 && !r.Unlimited {
		return
	}
	n.limit = &DescriptorLimit{
		Domain: c.tree.name, FullKey: fullKey(c.tree.name, path), Name: r.Name, Unlimited: r.Unlimited,
		Shadow: r.Shadow, Quota: r.Quota, Replaces: r.Replaces, Metadata: r.Metadata, Source: r,
		path: path, number: -1,
	}
	c.tree.limits = append(c.tree.limits, n.limit)
	if r.Unlimited && len(r.Limits) > 0 {
		c.fault(r.Limits[0].Pos, name, "should not specify rate limit unit when unlimited")
	} else {
		c.rules(n.limit, name)
	}
	for _, replaced := range r.Replaces {
		switch replaced {
		case "":
			c.fault(r.Pos, name, "should not have an empty replaces entry")
		case r.Name:
			c.fault(r.Pos, name, "replaces should not contain name of same descriptor")
		}
	}
}

// rules creates the limiter's rules of a limit. The first is named by the path; others have a number or a name after
// it.
func (c *domainCompiler) rules(l *DescriptorLimit, path string) {
	if at, taken := c.native[path]; taken && len(l.Source.Limits) > 0 {
		c.fault(l.Source.Pos, path, "the rule %s also has the name %q, and the two would share a bucket: rename it",
			at.or("of Config.Rules"), path)
	}
	names := make(map[string]bool)
	for i := range l.Source.Limits {
		limit := &l.Source.Limits[i]
		name := path
		switch {
		case limit.Name != "":
			name += "#" + nameToken(limit.Name)
		case i > 0:
			name += "#" + strconv.Itoa(i+1)
		}
		if names[name] {
			c.fault(limit.Pos, path, "two limits have the name %q: rename one", limit.Name)
		}
		names[name] = true
		if limit.Unlimited || limit.DenyAll {
			c.fault(limit.Pos, path, "a limit of a descriptor cannot be unlimited or deny: "+
				"set unlimited next to the limits, or a limit of 0")
			continue
		}
		if limit.Limit.Algorithm == sluice.Concurrency {
			c.fault(limit.Pos, path, "concurrency limits are not supported for descriptors, because RLS calls do not report the end of a request: "+
				"use a rule for HTTP requests")
			continue
		}
		rule := sluice.Rule{
			Name: shortName(name), Limit: limit.Limit, Accuracy: limit.Accuracy, OnFailure: limit.OnFailure,
			Shadow: l.Shadow, ChargeDenied: limit.ChargeDenied || c.chargeDenied,
		}
		c.rule(l, rule, limit.Pos)
	}
}

func (c *domainCompiler) rule(l *DescriptorLimit, rule sluice.Rule, at Position) {
	if at == (Position{}) {
		at = l.Source.Pos
	}
	if _, err := rule.Limit.Build(); err != nil {
		words := compiler{rule: rule.Name}
		words.limitFaults(at, err)
		c.faults = append(c.faults, words.faults...)
		return
	}
	made, err := sluice.NewRule(rule)
	if err != nil {
		c.fault(at, rule.Name, "%v", err)
		return
	}
	l.Rules = append(l.Rules, made)
}

// numberNames numbers the names that some limit replaces and some limit has, so that requests need not compare texts.
func (t *domainTree) numberNames() {
	numbers := make(map[string]int)
	for _, l := range t.limits {
		for _, name := range l.Replaces {
			numbers[name] = -1
		}
	}
	for _, l := range t.limits {
		number, wanted := numbers[l.Name]
		if !wanted || l.Name == "" {
			continue
		}
		if number < 0 {
			number = t.names
			numbers[l.Name] = number
			t.names++
		}
		l.number = number
	}
	for _, l := range t.limits {
		for _, name := range l.Replaces {
			if number := numbers[name]; number >= 0 {
				l.replaces = append(l.replaces, number)
			}
		}
	}
}
