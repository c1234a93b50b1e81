package rules

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/keyenc"
	"github.com/sluiceproject/sluice/internal/private"

	"github.com/sluiceproject/sluice/internal/match"
)

func (c *compiler) limits(it *item) {
	r := it.rule
	if len(r.Limits) == 0 {
		c.fault(r.Pos, "there is no limit: write one, such as limit: 100/min")
		return
	}
	for i := range r.Limits {
		if r.Limits[i].Unlimited || r.Limits[i].DenyAll {
			c.fault(r.Limits[i].Pos, "limit: unlimited and deny are for tiers and overrides; for a whole rule use allow or deny at the top of the file")
			return
		}
	}
	it.limits = c.choice(r.Limits)
	most := r.Limits
	if r.Tiers != nil {
		c.tiers(it, r.Tiers)
		for _, limits := range r.Tiers.Limits {
			if len(limits) > len(most) {
				most = limits
			}
		}
	}
	it.overrides = make(map[string]choice)
	head := make(map[string]choice)
	for i := range r.Overrides {
		if limits := c.override(it, &r.Overrides[i], head); len(limits) > len(most) {
			most = limits
		}
	}
	addMissing(it.overrides, head)
	if len(most) > maxLimits {
		c.fault(r.Pos, "%d limits in one rule: at most %d are allowed", len(most), maxLimits)
		return
	}
	c.buckets(it, most)
}

// tiers compiles the limits that an attribute chooses. Its values are compared as those of match are.
func (c *compiler) tiers(it *item, t *Tiers) {
	sound := len(c.faults)
	by, segment := c.refer(it, "tiers", t.By, t.Pos)
	if !segment && by >= 0 && c.attrs.list[by].ip {
		c.fault(t.Pos, "tiers: by: ip chooses nothing: write overrides for single addresses, or a rule with match: {ip: …}")
	}
	known := len(c.faults) == sound
	it.tierBy, it.tiers = by, make(map[string]choice)
	head := make(map[string]choice)
	for _, written := range slices.Sorted(maps.Keys(t.Limits)) {
		built := c.choice(t.Limits[written])
		at := t.Pos
		if l := t.Limits[written]; len(l) > 0 {
			at = l[0].Pos
		}
		if !known {
			continue
		}
		value, err := c.canonical(&part{attr: by, segment: segment}, written)
		if err != nil {
			c.fault(at, "tiers: %v", err)
			continue
		}
		if _, twice := it.tiers[value]; twice {
			c.fault(at, "tiers: %q stands there twice, in another spelling: remove one", written)
		}
		c.doubts(at, "tiers", it, by, written, value)
		it.tiers[value] = built
		if value == "GET" && !segment && c.attrs.list[by].is(FieldMethod) {
			head["HEAD"] = built
		}
	}
	addMissing(it.tiers, head)
}

// addMissing adds what is chosen for HEAD because it is for GET, as match has it, unless something else is.
func addMissing(to, head map[string]choice) {
	for k, built := range head {
		if _, own := to[k]; !own {
			to[k] = built
		}
	}
}

func (c *compiler) override(it *item, o *Override, head map[string]choice) []Limit {
	if len(o.Key) != len(it.rule.Per) {
		c.fault(o.Pos, "overrides: a key has a value for each of per: %d, not %d", len(it.rule.Per), len(o.Key))
		return nil
	}
	if len(o.Key) == 0 {
		c.fault(o.Pos, "overrides: the rule has one count for everybody and so no keys: change its limit instead")
		return nil
	}
	built := c.choice(o.Limits)
	if len(it.per) != len(it.rule.Per) { // which has been reported; what a value is compared with is not known
		return o.Limits
	}
	values, method := slices.Clone(o.Key), -1
	for i, written := range o.Key {
		p := &it.per[i]
		value, err := c.canonical(p, written)
		if err != nil {
			c.fault(o.Pos, "overrides: %v", err)
			return o.Limits
		}
		c.doubts(o.Pos, "overrides", it, p.attr, written, value)
		if values[i] = value; value == "GET" && p.attr >= 0 && c.attrs.list[p.attr].is(FieldMethod) {
			method = i
		}
	}
	k := c.overrideKey(it, values)
	if _, twice := it.overrides[k]; twice {
		c.fault(o.Pos, "overrides: %v stands there twice: remove one", o.Key)
	}
	it.overrides[k] = built
	if method >= 0 {
		values[method] = "HEAD"
		head[c.overrideKey(it, values)] = built
	}
	return o.Limits
}

// canonical is a value that was written for overrides or tiers, as that of a request counts.
func (c *compiler) canonical(p *part, written string) (string, error) {
	if !p.segment {
		return c.attrs.list[p.attr].canonicalValue(c.set, written)
	}
	path, err := c.set.writtenPath("/" + written)
	if err != nil || len(path) == 1 || strings.IndexByte(path[1:], '/') >= 0 {
		return "", match.NotASegment(written)
	}
	return path[1:], nil
}

// overrideKey is the key that a request with these values counts under.
func (c *compiler) overrideKey(it *item, values []string) string {
	var b []byte
	if len(values) > 1 {
		b = keyenc.AppendSeveral(b)
	}
	for i, value := range values {
		var text []byte
		if p := &it.per[i]; p.attr >= 0 && c.attrs.list[p.attr].secret {
			text = appendSecret(nil, &c.set.secret, value)
		} else {
			text = keyenc.AppendValue(nil, value)
		}
		if len(values) > 1 {
			b = keyenc.AppendBytes(b, text)
		} else {
			b = text
		}
	}
	return string(b)
}

// choice builds limits. One that is unlimited, or never allows, makes all of it so.
func (c *compiler) choice(limits []Limit) choice {
	var built choice
	for i := range limits {
		l := &limits[i]
		if l.Unlimited || l.DenyAll {
			return choice{never: l.DenyAll}
		}
		limit, err := l.Limit.Build()
		if err != nil {
			c.limitFaults(l.Pos, err)
			return choice{}
		}
		built.limits = append(built.limits, limit)
		c.set.hasConcurrency = c.set.hasConcurrency || limit.Algorithm == sluice.Concurrency
	}
	return built
}

// limitFaults reports what is wrong with a limit in the words of rule files.
func (c *compiler) limitFaults(at Position, err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			c.limitFaults(at, e)
		}
		return
	}
	var l *sluice.LimitError
	if errors.As(err, &l) {
		c.fault(at, "limit: %s: %s", fieldName(l.Field), l.Msg)
		return
	}
	c.fault(at, "limit: %v", err)
}

// fieldName is what rule files call a field of sluice.Limit.
func fieldName(field string) string {
	switch field {
	case "Count":
		return "rate"
	case "SubWindows":
		return "sub_windows"
	}
	return strings.ToLower(field)
}

// buckets makes the limiter's rules of a rule, as many as its longest list of limits.
func (c *compiler) buckets(it *item, most []Limit) {
	r := it.rule
	names := make(map[string]bool)
	for i := range most {
		name := r.Name
		switch {
		case most[i].Name != "":
			name += "#" + most[i].Name
		case i > 0:
			name += fmt.Sprintf("#%d", i+1)
		}
		if names[name] {
			c.fault(most[i].Pos, "two limits are named %q: give each its own name", most[i].Name)
			continue
		}
		names[name] = true
		limit := most[i].Limit
		if i < len(r.Limits) {
			limit = r.Limits[i].Limit
		}
		it.buckets = append(it.buckets, c.bucket(r, name, limit, most[i].Pos))
	}
}

func (c *compiler) bucket(r *Rule, name string, limit sluice.Limit, at Position) bucket {
	rule := sluice.Rule{
		Name: name, Limit: limit, OnFailure: r.OnFailure, Shadow: r.Shadow, ChargeDenied: r.ChargeDenied, Accuracy: r.Accuracy,
	}
	rule.ChargeDenied = r.ChargeDenied && limit.Algorithm != sluice.Concurrency                                                                             // who was denied is not in flight
	if r.Accuracy == sluice.AccuracyLease && !private.SupportsLease(&limit) || r.Accuracy == sluice.AccuracyEventual && !private.SupportsEventual(&limit) { // which has been reported
		rule.Accuracy = sluice.AccuracyExact
	}
	enforced, err := sluice.NewRule(rule)
	rule.Shadow = true
	shadow, err2 := sluice.NewRule(rule)
	if err != nil || err2 != nil {
		if _, limitErr := limit.Build(); limitErr == nil { // else it has been reported
			c.fault(at, "%v", err)
		}
		return bucket{}
	}
	return bucket{enforced, shadow}
}
