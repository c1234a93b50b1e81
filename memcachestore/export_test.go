package memcachestore

import (
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/private"
)

// Sharing returns a store on another clock and with another prefix that has the connections of s. The conformance suite
// opens more stores than a server takes connections.
func (s *Store) Sharing(prefix string, now func() time.Time) *Store {
	return &Store{servers: s.servers, rules: make([]group.Registry, len(s.servers)), keyPrefix: prefix, timeout: s.timeout, now: now}
}

// ItemName is where the state of a key is stored.
func (s *Store) ItemName(r *sluice.Rule, key string) string {
	return s.name(itemDigest(private.RuleOf(r).ID, key))
}

// RecordName is where the numbers of a rule are stored.
func (s *Store) RecordName(r *sluice.Rule) string { return s.name(ruleDigest(private.RuleOf(r).ID)) }

// MaxCharges is how many IDs an item remembers before some get keys of their own.
const MaxCharges = maxCharges

// Waiting is how many calls wait to be run together.
func (s *Store) Waiting(r *sluice.Rule, key string) int {
	k := itemDigest(private.RuleOf(r).ID, key)
	part := &s.keyLocks.parts[k[0]%64]
	part.mu.Lock()
	defer part.mu.Unlock()
	if lock := part.lines[k]; lock != nil {
		return len(lock.waiting)
	}
	return 0
}
