package sluice

import (
	"context"
	"maps"
	"slices"
)

// suspended are the names of rules that are switched off. A nil pointer, which is what nearly always is, costs a load.
type suspended map[string]bool

// Suspend switches rules off in this process by name, until [Limiter.Resume]: what they would decide is allowed and not
// counted. It is for a rule that turns out to do harm, while the rules themselves cannot be changed. The limits
// of a rule that has several ("rule", "rule#2") are switched together.
func (l *Limiter) Suspend(names ...string) {
	l.changeSuspended(func(s suspended) {
		for _, name := range names {
			s[ruleOf(name)] = true
		}
	})
}

// Resume switches suspended rules on again.
func (l *Limiter) Resume(names ...string) {
	l.changeSuspended(func(s suspended) {
		for _, name := range names {
			delete(s, ruleOf(name))
		}
	})
}

// SuspendedRules lists the rules that are switched off.
func (l *Limiter) SuspendedRules() []string {
	if l == nil {
		return nil
	}
	if s := l.suspended.Load(); s != nil {
		return slices.Sorted(maps.Keys(*s))
	}
	return nil
}

// isSuspended reports whether a rule is switched off, by its name or that of one of its limits.
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

// ruleOf is the name without the number of a limit: what stands before the first # that is not in quotes, which names
// made of a request's texts have.
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
	if quoted && first >= 0 { // a quote that never ends is no quote
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
