package rules

import "strings"

// AppendStatKey appends the name of a descriptor in the statistics of Envoy's service: the domain and one part for each
// entry, joined by dots. entries are those that matched the limit.
//
// A part is the key alone if the rule is for any value, the key and the pattern if the rule contains a *, and otherwise
// the key and the value. ValueToMetric of a level uses the value instead of no value or the pattern, and DetailedMetric
// of the limit's own rule does so at all levels; if a ShareThreshold counts values together, the pattern stays.
// A limit that the request brought has no rule, and all entries with their values.
func (l *DescriptorLimit) AppendStatKey(b []byte, entries []Entry) []byte {
	if l.Source == nil {
		b = append(append(b, l.Domain...), '.') // also without entries
		start := len(b)
		for i := range entries {
			if len(b) > start { // the reference writes no dot after empty entries
				b = append(b, '.')
			}
			b = append(b, composite(entries[i].Key, entries[i].Value)...)
		}
		return b
	}
	detailed := l.Source.DetailedMetric
	shares := false
	for i, n := range l.path[:min(len(l.path), len(entries))] {
		shares = shares || n.rule.ShareThreshold && n.matchedBy(&entries[i]) == EntryWildcard
	}
	b = append(b, l.Domain...)
	for i, n := range l.path[:min(len(l.path), len(entries))] {
		e := &entries[i]
		by := n.matchedBy(e)
		b = append(append(b, '.'), e.Key...)
		switch {
		case by == EntryWildcard && (n.rule.ShareThreshold || !n.rule.ValueToMetric && !detailed):
			b = append(append(b, '_'), n.patternValue(e.Key)...)
		case by == EntryKeyOnly && !n.rule.ValueToMetric && !detailed:
		case e.Value != "" || detailed && !shares: // the reference's detailed names keep the underscore of no value
			b = append(append(b, '_'), e.Value...)
		}
	}
	return b
}

// FixedStatKey returns the statistics name of a limit whose descriptors all have the same name.
func (l *DescriptorLimit) FixedStatKey() (key string, ok bool) {
	if l.Source == nil || l.Source.DetailedMetric {
		return "", false
	}
	for _, n := range l.path {
		// If the key contains a *, the name contains the request's key; an underscore at the end may mean that there is
		// no value.
		if n.rule.ValueToMetric || strings.Contains(n.rule.Key, "*") || strings.HasSuffix(n.composite, "_") {
			return "", false
		}
	}
	return l.FullKey, true
}

// AppendCounterKey appends the name of a descriptor in the store of Envoy's service, without the start of the window:
// the domain and then the key and value of each entry, each followed by an underscore. If a ShareThreshold counts
// values together, it contains the pattern instead of the value. Different descriptors may have the same name.
func (l *DescriptorLimit) AppendCounterKey(b []byte, entries []Entry) []byte {
	b = append(append(b, l.Domain...), '_')
	for i := range entries {
		e := &entries[i]
		k, value := e.Key, e.Value
		if i < len(l.path) {
			k, value = l.path[i].counted(e, l.path[i].matchedBy(e))
		}
		b = append(append(b, k...), '_')
		b = append(append(b, value...), '_')
	}
	return b
}

// matchedBy returns how an entry found this rule, given that it did.
func (n *domainNode) matchedBy(e *Entry) EntryMatch {
	switch {
	case isComposite(n.composite, e):
		return EntryExact
	case n.composite != e.Key:
		return EntryWildcard
	case n.pattern != nil && n.pattern.matches(e.Key+"_"+e.Value):
		return EntryWildcard // the entry's key contains a * and equals the rule's; too rare for its own case
	}
	return EntryKeyOnly
}

// isComposite reports whether s is e as KEY_VALUE, without allocating that string.
func isComposite(s string, e *Entry) bool {
	k := len(e.Key)
	return len(s) == k+1+len(e.Value) && s[k] == '_' && s[:k] == e.Key && s[k+1:] == e.Value
}
