package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/keyenc"
)

// buckets returns the buckets of a descriptor with these entries, which must belong to the limit.
func (t *domainTree) buckets(l *DescriptorLimit, parts []KeyPart) ([]sluice.Bucket, error) {
	given := make([]Entry, len(parts))
	for i, p := range parts {
		var err error
		if given[i].Key, _, err = readValue(p.Name); err != nil {
			return nil, err
		}
		if given[i].Value, _, err = readValue(p.Value); err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	k, err := t.keyOf(l, given)
	if err != nil { // they may be in another order
		ordered, ok := l.order(given)
		if !ok {
			return nil, err
		}
		if k, err = t.keyOf(l, ordered); err != nil {
			return nil, err
		}
	}
	all := make([]sluice.Bucket, len(l.Rules))
	for i, r := range l.Rules {
		all[i] = sluice.Bucket{Rule: r, Key: k}
	}
	return all, nil
}

// keyOf returns the key of a descriptor of the limit.
func (t *domainTree) keyOf(l *DescriptorLimit, entries []Entry) (string, error) {
	if len(entries) != len(l.path) {
		want := make([]string, len(l.path))
		for i, n := range l.path {
			want[i] = n.rule.Key
		}
		return "", fmt.Errorf("counted per %s: give a value for each", strings.Join(want, ", "))
	}
	var m DescriptorMatches
	m.keys = keyenc.AppendSeveral(nil)
	level := t.top
	for i, n := range l.path {
		e := &entries[i]
		if n.rule.ShareThreshold && e.Value == n.patternValue(e.Key) { // in the form of the key
			m.appendEntry(e.Key, e.Value)
		} else {
			chosen, by := level.choose(e, &m.scratch)
			switch {
			case chosen == nil:
				return "", fmt.Errorf("does not apply to %s", e.label())
			case chosen != n:
				return "", fmt.Errorf("does not apply to %s, which belongs to %s", e.label(), descriptorName(t.name, append(l.path[:i:i], chosen)))
			}
			m.appendEntry(n.counted(e, by))
		}
		level = n.below
	}
	return string(m.keys), nil
}

// order sorts entries by the limit's path. Keys that can have only one value may be missing.
func (l *DescriptorLimit) order(given []Entry) (entries []Entry, ok bool) {
	given = slices.Clone(given)
	for _, n := range l.path {
		i := slices.IndexFunc(given, func(e Entry) bool { return e.Key == n.rule.Key })
		switch {
		case i >= 0:
			entries = append(entries, given[i])
			given = slices.Delete(given, i, i+1)
		case n.pattern == nil && n.rule.Value != "":
			entries = append(entries, Entry{n.rule.Key, n.rule.Value})
		default:
			return nil, false
		}
	}
	return entries, len(given) == 0
}
