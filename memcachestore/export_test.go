package memcachestore

import (
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/private"
)

// Sharing returns a store with another clock and prefix that uses the connections of s. The conformance suite opens
// more stores than a server accepts connections.
func (s *Store) Sharing(prefix string, now func() time.Time) *Store {
	return newStore(Config{KeyPrefix: prefix, Timeout: s.kit.timeout, Now: now}, s.servers)
}

// ItemName returns the stored key of a bucket's state.
func (s *Store) ItemName(r *sluice.Rule, key string) string {
	return s.kit.name(itemDigest(private.RuleOf(r).ID, key))
}

// RecordName returns the stored key of a rule's limit parameters.
func (s *Store) RecordName(r *sluice.Rule) string {
	return s.kit.name(ruleDigest(private.RuleOf(r).ID))
}

// MaxCharges is the number of IDs in an item from which on some get separate keys.
const MaxCharges = maxCharges

// Waiting returns the number of calls that wait for a batch.
func (s *Store) Waiting(r *sluice.Rule, key string) int {
	k := itemDigest(private.RuleOf(r).ID, key)
	part := s.kit.keyLocks.lockPart(k)
	defer part.mu.Unlock()
	if lock := part.locks[k]; lock != nil {
		return len(lock.waiting)
	}
	return 0
}
