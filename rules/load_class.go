package rules

import (
	"fmt"
	"slices"
)

// Priority is the order in which requests are shed; lower priorities first.
type Priority int8

const (
	PriorityLow Priority = iota - 1
	PriorityNormal
	PriorityHigh
	PriorityCritical
)

var priorityNames = [...]string{"low", "normal", "high", "critical"}

// String returns the name that rule files use.
func (p Priority) String() string {
	return priorityNames[min(max(p, PriorityLow), PriorityCritical)-PriorityLow]
}

// PriorityRule sets the priority of matching requests.
type PriorityRule struct {
	Pos      Position
	Match    Match
	Priority Priority
}

// AdaptiveLimit is an adaptive concurrency limit: it bounds the requests in flight by the measured capacity of the
// upstream. See docs/load-shedding.md.
type AdaptiveLimit struct {
	Pos    Position
	Name   string // name of the learnt state: a renamed limit starts from its maximum
	Match  Match  // an empty Match matches every request
	Min    int    // minimum limit on requests in flight; default 10
	Max    int    // maximum limit on requests in flight; default 1000
	Shadow bool   // requests that would be shed are reported and served
}

// Default bounds of an adaptive limit.
const (
	defaultAdaptiveMin = 10
	defaultAdaptiveMax = 1000
	maxAdaptiveLimits  = 1000
	maxInFlight        = 1_000_000
)

// LoadClass is the load-shedding class of a request.
type LoadClass struct {
	Priority      Priority
	AdaptiveLimit *AdaptiveLimit // nil: it is never shed
}

// HasAdaptiveLimits reports whether the set has adaptive limits. Without any, there is no need to call [Set.LoadClass].
func (s *Set) HasAdaptiveLimits() bool { return len(s.cfg.AdaptiveLimits) > 0 }

// LoadClass returns a request's priority and its adaptive limit. It allocates nothing. It uses m only during the call.
// An error means that the request must be rejected, as with [Set.Match].
func (s *Set) LoadClass(r Request, m *MatchResult) (LoadClass, error) {
	m.begin(s, r)
	l, _, err := s.loadClass(m)
	m.request = nil // do not keep the request
	return l, err
}

// loadClass also returns the index of the entry that sets the priority, or -1.
func (s *Set) loadClass(m *MatchResult) (l LoadClass, entry int, err error) {
	entry = -1
	if m.found, err = s.loads.index.find(m, m.found[:0]); err != nil {
		return l, entry, err
	}
	// Of each kind the first match counts. There are few entries, so they are not sorted.
	limit := -1
	for _, number := range m.found {
		f := &s.loads.fast[number]
		best := &entry
		if f.kind == adaptiveLimits {
			best = &limit
		}
		if *best >= 0 && int(number) >= *best {
			continue
		}
		ok, err := f.holds(m)
		if err != nil && !f.shadow {
			return l, -1, err
		}
		if ok {
			*best = int(number)
		}
	}
	if entry >= 0 {
		l.Priority = s.cfg.Priorities[entry].Priority
	}
	if limit >= 0 {
		l.AdaptiveLimit = &s.cfg.AdaptiveLimits[limit-len(s.cfg.Priorities)]
	}
	return l, entry, nil
}

// loadClasses compiles the priorities and adaptive limits.
func (c *compiler) loadClasses() {
	for i := range c.cfg.Priorities {
		p := &c.cfg.Priorities[i]
		c.entry = entry{"priorities", i}
		if len(p.Match.Predicates) == 0 {
			c.fault(p.Pos, "priorities: an entry without conditions matches all requests: add a condition; requests without an entry are normal")
		}
		if p.Priority < PriorityLow || p.Priority > PriorityCritical {
			c.fault(p.Pos, "priorities: there is no priority %d: use PriorityLow, PriorityNormal, PriorityHigh or PriorityCritical", p.Priority)
		}
		c.loadClass(prioritises, &p.Match, !slices.ContainsFunc(c.cfg.AdaptiveLimits, func(g AdaptiveLimit) bool { return !g.Shadow }))
	}
	c.entry = entry{}
	if len(c.cfg.AdaptiveLimits) > maxAdaptiveLimits {
		c.fault(c.cfg.AdaptiveLimits[maxAdaptiveLimits].Pos, "load_shedding: %d entries: at most %d are allowed", len(c.cfg.AdaptiveLimits), maxAdaptiveLimits)
		return
	}
	names := make(map[string]Position)
	for i := range c.cfg.AdaptiveLimits {
		g := &c.cfg.AdaptiveLimits[i]
		c.entry = entry{"load_shedding", i}
		c.adaptiveLimit(g, names)
		c.loadClass(adaptiveLimits, &g.Match, g.Shadow)
	}
}

// loadClass compiles an entry. An entry in shadow mode sheds no request.
func (c *compiler) loadClass(kind itemKind, m *Match, shadow bool) {
	*c.where = place{at: m.Pos}
	c.set.loads.items = append(c.set.loads.items, item{kind: kind, predicates: c.match(m), source: m, tierBy: byNothing, costBy: byNothing, shadow: shadow})
}

func (c *compiler) adaptiveLimit(g *AdaptiveLimit, names map[string]Position) {
	if g.Min == 0 {
		g.Min = defaultAdaptiveMin
		if g.Max > 0 {
			g.Min = min(g.Min, g.Max)
		}
	}
	if g.Max == 0 {
		g.Max = max(g.Min, defaultAdaptiveMax)
	}
	switch {
	case g.Name == "":
		c.fault(g.Pos, "load_shedding: the entry has no name: add one, such as name: api")
	case !plainName(g.Name):
		c.fault(g.Pos, "load_shedding: invalid name: use up to %d bytes of printable ASCII without space, #, quote and backslash", maxNameSize)
	}
	if other, taken := names[g.Name]; taken && g.Name != "" {
		c.fault(g.Pos, "load_shedding: an entry named %q is already %s, and the two would share their learnt state: rename one", g.Name, other.or("there"))
	}
	names[g.Name] = g.Pos
	switch {
	case g.Min < 1 || g.Max > maxInFlight:
		c.fault(g.Pos, "load_shedding: concurrency: from %d to %d is not between 1 and %d", g.Min, g.Max, maxInFlight)
	case g.Min > g.Max:
		c.fault(g.Pos, "load_shedding: concurrency: min %d is more than max %d: swap them", g.Min, g.Max)
	}
}

// loadClasses warns of priorities and adaptive limits without effect.
func (w *warner) loadClasses() {
	cfg := &w.set.cfg
	if len(cfg.Priorities) > 0 && len(cfg.AdaptiveLimits) == 0 {
		w.warn(cfg.Priorities[0].Pos, "", "priorities: no request is ever shed, because there is no load_shedding: add load_shedding: [{name: all}]")
	}
	items := w.set.loads.items
	place := func(i int) Position { // position of the entry; its match may have none
		if items[i].kind == prioritises {
			return cfg.Priorities[i].Pos
		}
		return cfg.AdaptiveLimits[i-len(cfg.Priorities)].Pos
	}
	for i := range items {
		what := "priorities: the entry"
		if items[i].kind == adaptiveLimits {
			g := &cfg.AdaptiveLimits[i-len(cfg.Priorities)]
			what = "load_shedding: " + g.Name
			if g.Min == g.Max {
				w.warn(g.Pos, "", "%s: min and max are both %d, so that the limit does not adapt", what, g.Min)
			}
		}
		for j := range i {
			if items[j].kind == items[i].kind && covers(items[j].predicates, items[i].predicates) {
				w.warn(place(i), "", "%s is never reached: the entry %s before it matches all of its requests", what, place(j).or(fmt.Sprintf("with number %d", 1+entryIndex(items, j))))
				break
			}
		}
	}
}
