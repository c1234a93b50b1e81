package rules

import (
	"fmt"
	"slices"
)

// Priority is who goes first when not all can be served. Larger ones do.
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

// PriorityRule gives the requests that match a priority.
type PriorityRule struct {
	Pos      Position
	Match    Match
	Priority Priority
}

// AdaptiveLimit bounds the requests in flight by what the upstream can take, which is learnt. See docs/load-shedding.md.
type AdaptiveLimit struct {
	Pos    Position
	Name   string // of what is learnt: a renamed limit starts from its maximum
	Match  Match  // an empty Match holds always
	Min    int    // in flight, which are never too many; default 10
	Max    int    // in flight, at most; default 1000
	Shadow bool   // who would be turned away is reported and served
}

// Bounds of an adaptive limit, if it has none of its own.
const (
	defaultAdaptiveMin = 10
	defaultAdaptiveMax = 1000
	maxGates           = 1000
	maxInFlight        = 1_000_000
)

// LoadClass is what a set says about a request for when not all can be served.
type LoadClass struct {
	Priority      Priority
	AdaptiveLimit *AdaptiveLimit // nil: it is never turned away
}

// HasAdaptiveLimits reports whether the set has adaptive limits at all. Without any there is nothing to ask [Set.LoadClass].
func (s *Set) HasAdaptiveLimits() bool { return len(s.cfg.AdaptiveLimits) > 0 }

// LoadClass finds a request's priority and its adaptive limit. It allocates nothing. The MatchResult is only used meanwhile. An error means
// that the request has to be refused, as with [Set.Match].
func (s *Set) LoadClass(r Request, m *MatchResult) (LoadClass, error) {
	m.begin(s, r)
	l, _, err := s.loadClass(m)
	m.request = nil // let go of it
	return l, err
}

// loadClass also returns the number of the entry that gives the priority, or -1.
func (s *Set) loadClass(m *MatchResult) (l LoadClass, entry int, err error) {
	entry = -1
	if m.found, err = s.loads.index.find(m, m.found[:0]); err != nil {
		return l, entry, err
	}
	// Of each kind the first counts. There are few, so they are not sorted.
	gate := -1
	for _, number := range m.found {
		f := &s.loads.fast[number]
		best := &entry
		if f.kind == adaptiveLimits {
			best = &gate
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
	if gate >= 0 {
		l.AdaptiveLimit = &s.cfg.AdaptiveLimits[gate-len(s.cfg.Priorities)]
	}
	return l, entry, nil
}

// loadClasses compiles the priorities and adaptive limits.
func (c *compiler) loadClasses() {
	for i := range c.cfg.Priorities {
		p := &c.cfg.Priorities[i]
		c.entry = entry{"priorities", i}
		if len(p.Match.Predicates) == 0 {
			c.fault(p.Pos, "priorities: an entry without conditions is everybody: say what it matches; what no entry matches is normal")
		}
		if p.Priority < PriorityLow || p.Priority > PriorityCritical {
			c.fault(p.Pos, "priorities: there is no priority %d: use PriorityLow, PriorityNormal, PriorityHigh or PriorityCritical", p.Priority)
		}
		c.loadClass(prioritises, &p.Match, !slices.ContainsFunc(c.cfg.AdaptiveLimits, func(g AdaptiveLimit) bool { return !g.Shadow }))
	}
	c.entry = entry{}
	if len(c.cfg.AdaptiveLimits) > maxGates {
		c.fault(c.cfg.AdaptiveLimits[maxGates].Pos, "shed: %d entries: at most %d are allowed", len(c.cfg.AdaptiveLimits), maxGates)
		return
	}
	names := make(map[string]Position)
	for i := range c.cfg.AdaptiveLimits {
		g := &c.cfg.AdaptiveLimits[i]
		c.entry = entry{"shed", i}
		c.adaptiveLimit(g, names)
		c.loadClass(adaptiveLimits, &g.Match, g.Shadow)
	}
}

// loadClass compiles an entry. One in shadow mode sheds no request.
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
		c.fault(g.Pos, "shed: the entry has no name: add one that says what is protected, such as name: api")
	case !plainName(g.Name):
		c.fault(g.Pos, "shed: the name may hold up to %d bytes of printable ASCII but no space, #, quote or backslash", maxNameSize)
	}
	if other, taken := names[g.Name]; taken && g.Name != "" {
		c.fault(g.Pos, "shed: an entry named %q is %s already, and the two would share what they learn: rename one", g.Name, other.or("there"))
	}
	names[g.Name] = g.Pos
	switch {
	case g.Min < 1 || g.Max > maxInFlight:
		c.fault(g.Pos, "shed: in_flight: from %d to %d is not between 1 and %d", g.Min, g.Max, maxInFlight)
	case g.Min > g.Max:
		c.fault(g.Pos, "shed: in_flight: min %d is more than max %d: swap them", g.Min, g.Max)
	}
}

// loadClasses warns of priorities and adaptive limits that do nothing.
func (w *warner) loadClasses() {
	cfg := &w.set.cfg
	if len(cfg.Priorities) > 0 && len(cfg.AdaptiveLimits) == 0 {
		w.warn(cfg.Priorities[0].Pos, "", "priorities: nobody is ever turned away by priority, since there is no shed: add shed: [{name: all}]")
	}
	items := w.set.loads.items
	place := func(i int) Position { // of the entry; its match may have none
		if items[i].kind == prioritises {
			return cfg.Priorities[i].Pos
		}
		return cfg.AdaptiveLimits[i-len(cfg.Priorities)].Pos
	}
	for i := range items {
		what := "priorities: the entry"
		if items[i].kind == adaptiveLimits {
			g := &cfg.AdaptiveLimits[i-len(cfg.Priorities)]
			what = "shed: " + g.Name
			if g.Min == g.Max {
				w.warn(g.Pos, "", "%s: min and max are both %d, so that nothing is learnt and that many are always let in", what, g.Min)
			}
		}
		for j := range i {
			if items[j].kind == items[i].kind && covers(items[j].predicates, items[i].predicates) {
				w.warn(place(i), "", "%s is never reached: all that it matches is matched before by the entry %s", what, place(j).or(fmt.Sprintf("with number %d", 1+entryIndex(items, j))))
				break
			}
		}
	}
}
