package rules

// matchLists matches a request with attributes that the index cannot read. The deny list and the allow list come before
// the rules: the error is returned only if no entry matches.
func (s *Set) matchLists(m *MatchResult, unreadable error) error {
	for i := range s.items {
		it := &s.items[i]
		if it.kind == limits {
			break
		}
		if m.Queued != nil && m.withheld(it) {
			continue
		}
		all := true
		for j := range it.predicates {
			ok, err := it.predicates[j].holds(m)
			if err != nil {
				return err
			}
			if all = ok; !all {
				break
			}
		}
		switch {
		case all && it.kind == denies:
			return m.reject(nil, "on the deny list")
		case all:
			m.Outcome = MatchExempt
			return nil
		}
	}
	return unreadable
}
