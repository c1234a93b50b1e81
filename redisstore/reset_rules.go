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
	// resetScanCount is how many keys a step of a reset looks at, at least.
	resetScanCount = 1000
	// resetPageTime is when a page of a reset ends, at the next step.
	resetPageTime = time.Second
)

// ResetRules removes what is stored of rules, of all primaries in turn. It uses SCAN, for about a second a page, and so never
// holds the server up, and removes keys one by one, which a Cluster needs. A user needs the rights scan and del for it, and
// in a Cluster role.
func (s *Store) ResetRules(ctx context.Context, o sluice.ResetOptions) (sluice.ResetPage, error) {
	return s.resetRules(ctx, o, resetPageTime)
}

// resetRules is ResetRules with how long a page takes, at least one step.
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
			if !o.DryRun { // keys that a failover lost were not found, and must not come back
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

// ofRules are the stored keys that are buckets or blocks of the rules.
func (s *Store) ofRules(stored []string, digests map[string]bool) []string {
	found := stored[:0]
	for _, key := range stored {
		if l, ok := s.names.parse(key); ok && digests[l.RuleDigest] {
			found = append(found, key)
		}
	}
	return found
}

// remove removes stored keys, many at a time: a client writes those together. It returns how many the server had: another
// reset may have removed the others, or they have expired.
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

// delete removes a stored key, and returns 1 if there was one.
func (s *Store) delete(ctx context.Context, stored string) (int64, error) {
	reply, err := s.ask(ctx, "DEL", stored)
	if err != nil {
		return 0, err
	}
	return reply.AsInt64()
}
