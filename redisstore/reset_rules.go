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
	at, err := readCursor(o.PageToken, len(primaries))
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
		if !o.DryRun {
			if err := s.remove(ctx, found); err != nil {
				return page, err
			}
		}
		page.Removed += int64(len(found))
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

// remove removes stored keys, many at a time: a client writes those together.
func (s *Store) remove(ctx context.Context, stored []string) error {
	var (
		wait  sync.WaitGroup
		mu    sync.Mutex // guards first
		first error
	)
	for worker := range min(len(stored), maxAsking) {
		wait.Go(func() {
			for i := worker; i < len(stored); i += maxAsking {
				if err := s.do(ctx, "DEL", stored[i]); err != nil {
					mu.Lock()
					first = err
					mu.Unlock()
					return
				}
				s.hints.forget(stored[i])
			}
		})
	}
	wait.Wait()
	return first
}
