package memcachestore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/storetest"
)

// memory is a backend in this process. It proves that the kit needs nothing of a server beyond the interface backend.
type memory struct {
	mu      sync.Mutex // guards the fields below
	entries map[string]entry
	version uint64 // of the last value
}

type entry struct {
	stored
	expires time.Time // zero if the value does not expire
}

func (m *memory) String() string { return "memory" }

func (m *memory) get(ctx context.Context, keys []string, out []stored) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, k := range keys {
		out[i] = m.lookUpLocked(k)
	}
	return ctx.Err()
}

func (m *memory) lookUpLocked(key string) stored {
	e := m.entries[key]
	if !e.expires.IsZero() && !time.Now().Before(e.expires) {
		return stored{}
	}
	return e.stored
}

func (m *memory) swap(ctx context.Context, swaps []swap) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range swaps {
		x := &swaps[i]
		switch x.lost = !x.overwrite && x.version != m.lookUpLocked(x.key).version; {
		case x.lost:
		case len(x.value) > maxValue || x.ttl < 0 || x.overwrite && x.value == nil:
			return fmt.Errorf("value of %d bytes with TTL %v under %s", len(x.value), x.ttl, x.key)
		case x.value == nil:
			delete(m.entries, x.key)
		default:
			m.version++
			e := entry{stored: stored{value: x.value, version: m.version}}
			if x.ttl != forever {
				e.expires = time.Now().Add(x.ttl)
			}
			m.entries[x.key] = e
		}
	}
	return nil
}

// newMemories returns empty backends.
func newMemories(n int) []backend {
	all := make([]backend, n)
	for i := range all {
		all[i] = &memory{entries: map[string]entry{}}
	}
	return all
}

// newMemoryKit returns a kit for one process that shares these backends with others.
func newMemoryKit(t testing.TB, backends []backend, now func() time.Time) *kit {
	s := newKit(kitConfig{
		pkg: "kit", keyPrefix: "k:", timeout: time.Minute, now: now,
		pick: func(hash uint64) int { return int(hash % uint64(len(backends))) },
	}, backends)
	t.Cleanup(s.close)
	return s
}

// TestKitConformance runs storetest with one process and several shards.
func TestKitConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{
		Open: func(t testing.TB, clock *storetest.Clock) sluice.Store {
			return newMemoryKit(t, newMemories(3), clock.Now)
		},
	})
}

// TestKitProcessesAtOnce runs kits that share only their backends, like processes.
func TestKitProcessesAtOnce(t *testing.T) {
	backends := newMemories(2)
	storetest.TwoAtOnce(t, [2]sluice.Store{newMemoryKit(t, backends, nil), newMemoryKit(t, backends, nil)})
}

// TestKitConflict checks that a lost swap is counted and the take decided again.
func TestKitConflict(t *testing.T) {
	backends := newMemories(1)
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerDay(3)}))
	takes, out := []sluice.Take{{Rule: rule, Key: "k", Cost: 1}}, make([]sluice.Decision, 1)
	other, meddled := newMemoryKit(t, backends, nil), false
	s := newMemoryKit(t, backends, func() time.Time { // called between the read and the swap
		if !meddled {
			meddled = true
			if err := other.Apply(t.Context(), takes, make([]sluice.Decision, 1)); err != nil {
				t.Error(err)
			}
		}
		return time.Now()
	})
	if err := s.Apply(t.Context(), takes, out); err != nil || out[0].Remaining != 1 || s.casConflicts.Load() != 1 {
		t.Errorf("%+v, error %v, %d conflicts, want 1 remaining after 1", out[0], err, s.casConflicts.Load())
	}
}
