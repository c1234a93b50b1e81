package redisstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/private"
)

var _ sluice.RuleResetter = (*Store)(nil)

const (
	// resetScanCount is the minimum COUNT of a SCAN step of a reset.
	resetScanCount = 1000
	// resetPageTime is the time after which a page of a reset ends, at the next step.
	resetPageTime = time.Second
)

// ResetRules removes the buckets and blocks of rules, of all primaries in turn. It uses SCAN, for about one second per
// page, and so never blocks the server for long. It removes keys one by one, as a Cluster requires. The Redis user
// needs the permissions scan and del, and in a Cluster role.
func (s *Store) ResetRules(ctx context.Context, o sluice.ResetOptions) (sluice.ResetPage, error) {
	return s.resetRules(ctx, o, resetPageTime)
}

// resetRules is ResetRules with the given duration of a page, at least one step.
func (s *Store) resetRules(ctx context.Context, o sluice.ResetOptions, pageTime time.Duration) (sluice.ResetPage, error) {
	if err := private.CheckResetOptions(&o); err != nil {
		return sluice.ResetPage{}, fmt.Errorf("redisstore: %w", err)
	}
	link, err := s.connected()
	if err != nil {
		return sluice.ResetPage{}, unavailable(err)
	}
	primaries, err := link.client.Primaries(ctx)
	if err != nil {
		return sluice.ResetPage{}, unavailable(err)
	}
	at, err := readCursor(o.PageToken, len(primaries), cursorScope("reset", o.Rules))
	if err != nil {
		return sluice.ResetPage{}, err
	}
	digests := make(map[string]bool, len(o.Rules))
	for _, r := range o.Rules {
		digests[string(appendRule(nil, private.RuleOf(r).ID))] = true
	}
	var page sluice.ResetPage
	for began := time.Now(); ; {
		var stored []string
		if stored, at.scan, err = s.scan(ctx, primaries[at.node], at.scan, resetScanCount); err != nil {
			return page, unavailable(err)
		}
		found := s.ofRules(stored, digests)
		removed := int64(len(found))
		if !o.DryRun {
			removed, err = s.remove(ctx, found)
		}
		page.Removed += removed
		if err != nil {
			return page, err
		}
		if at.scan == "0" {
			at.node++
		}
		if at.node == len(primaries) {
			if !o.DryRun { // keys that a failover lost were not found, and hints must not restore them
				for _, r := range o.Rules {
					s.hints.forgetRule(private.RuleOf(r).ID)
				}
			}
			return page, nil
		}
		if time.Since(began) >= pageTime {
			page.NextPageToken = at.String()
			return page, nil
		}
	}
}

// ofRules returns the stored keys that are buckets or blocks of the rules.
func (s *Store) ofRules(stored []string, digests map[string]bool) []string {
	found := stored[:0]
	for _, key := range stored {
		if l, ok := s.names.parse(key); ok && digests[l.RuleDigest] {
			found = append(found, key)
		}
	}
	return found
}

// remove removes stored keys, many at a time, because a client writes concurrent commands together. It returns how many
// keys the server still had: others may have expired or been removed by another reset.
func (s *Store) remove(ctx context.Context, stored []string) (removed int64, first error) {
	var (
		wait sync.WaitGroup
		mu   sync.Mutex // guards removed and first
	)
	for worker := range min(len(stored), maxAsking) {
		wait.Go(func() {
			for i := worker; i < len(stored); i += maxAsking {
				n, err := s.delete(ctx, stored[i])
				mu.Lock()
				removed += n
				if err != nil {
					first = err
				}
				mu.Unlock()
				if err != nil {
					return
				}
				s.hints.forget(stored[i])
			}
		})
	}
	wait.Wait()
	return removed, first
}

// delete removes a stored key. It returns 1 if the key existed, else 0.
func (s *Store) delete(ctx context.Context, stored string) (int64, error) {
	reply, err := s.ask(ctx, "DEL", stored)
	if err != nil {
		return 0, err
	}
	return reply.AsInt64()
}
