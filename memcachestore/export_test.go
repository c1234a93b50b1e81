package memcachestore

import (
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/private"
)

// Sharing returns a store on another clock and with another prefix that has the connections of s. The conformance suite
// opens more stores than a server takes connections.
func (s *Store) Sharing(prefix string, now func() time.Time) *Store {
	return newStore(Config{KeyPrefix: prefix, Timeout: s.kit.timeout, Now: now}, s.servers)
}

// ItemName is where the state of a key is stored.
func (s *Store) ItemName(r *sluice.Rule, key string) string {
	return s.kit.name(itemDigest(private.RuleOf(r).ID, key))
}

// RecordName is where the numbers of a rule are stored.
func (s *Store) RecordName(r *sluice.Rule) string {
	return s.kit.name(ruleDigest(private.RuleOf(r).ID))
}

// MaxCharges is how many IDs an item remembers before some get keys of their own.
const MaxCharges = maxCharges

// Waiting is how many calls wait to be run together.
func (s *Store) Waiting(r *sluice.Rule, key string) int {
	k := itemDigest(private.RuleOf(r).ID, key)
	part := s.kit.keyLocks.lockPart(k)
	defer part.mu.Unlock()
	if lock := part.locks[k]; lock != nil {
		return len(lock.waiting)
	}
	return 0
}
