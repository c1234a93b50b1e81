package sluice

import (
	"context"
	"maps"
	"slices"
)

// suspended is the set of names of suspended rules. A nil pointer to it, the usual case, costs one load.
type suspended map[string]bool

// Suspend stops enforcing rules by name in this instance until [Limiter.Resume]: their takes are allowed and not
// counted. It is for a rule that does harm while the rules themselves cannot be changed. The limits of a rule with
// several ("rule", "rule#2") are suspended together.
func (l *Limiter) Suspend(names ...string) {
	l.changeSuspended(func(s suspended) {
		for _, name := range names {
			s[ruleOf(name)] = true
		}
	})
}

// Resume enforces suspended rules again.
func (l *Limiter) Resume(names ...string) {
	l.changeSuspended(func(s suspended) {
		for _, name := range names {
			delete(s, ruleOf(name))
		}
	})
}

// SuspendedRules returns the names of the suspended rules.
func (l *Limiter) SuspendedRules() []string {
	if l == nil {
		return nil
	}
	if s := l.suspended.Load(); s != nil {
		return slices.Sorted(maps.Keys(*s))
	}
	return nil
}

// isSuspended reports whether a rule is suspended, by its name or that of one of its limits.
func (l *Limiter) isSuspended(name string) bool {
	if l == nil {
		return false
	}
	s := l.suspended.Load()
	if s == nil {
		return false
	}
	return (*s)[ruleOf(name)]
}

func (l *Limiter) changeSuspended(change func(suspended)) {
	if l == nil {
		return
	}
	for {
		old := l.suspended.Load()
		next := suspended{}
		if old != nil {
			next = maps.Clone(*old)
		}
		change(next)
		p := &next
		if len(next) == 0 {
			p = nil
		}
		if l.suspended.CompareAndSwap(old, p) {
			return
		}
	}
}

// ruleOf returns the name without the number of a limit: the part before the first # outside quotes. Names that contain
// text of a request quote it.
func ruleOf(name string) string {
	quoted, first := false, -1
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == '#' && !quoted:
			return name[:i]
		case c == '#' && first < 0:
			first = i
		}
	}
	if quoted && first >= 0 { // an unterminated quote is no quote
		return name[:first]
	}
	return name
}

// applySuspended allows the takes of suspended rules and applies the others.
func (l *Limiter) applySuspended(ctx context.Context, s suspended, takes []Take, out []Decision) error {
	var rest []Take
	var at []int
	for i := range takes {
		if t := &takes[i]; s[ruleOf(t.Rule.Name)] {
			out[i] = Decision{Allowed: true, Source: SourceSuspended, Limit: t.EffectiveLimit().Max()}
			continue
		}
		rest, at = append(rest, takes[i]), append(at, i)
	}
	if len(rest) == 0 {
		return nil
	}
	decisions := make([]Decision, len(rest))
	err := l.applyAll(ctx, rest, decisions)
	for j, i := range at {
		out[i] = decisions[j]
	}
	return err
}
