package authn

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/bounds"
)

const (
	maxCachedDigests = 4096
	digestTTL        = 5 * time.Minute
)

// digestCache caches keyed digests for digestTTL: of right passwords, and of accounts by address. The digest of a password
// includes user name and hash, so a changed password is not found. Wrong passwords are not cached, so guessing stays slow. The time
// of a lookup reveals nothing without the password.
type digestCache struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]time.Time // time of the last successful check
}

func (m *digestCache) has(sum [sha256.Size]byte, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.all[sum]
	return ok && now.Sub(at) < digestTTL
}

func (m *digestCache) add(sum [sha256.Size]byte, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = make(map[[sha256.Size]byte]time.Time)
	}
	_, again := m.all[sum]
	for old := range m.all {
		if again || len(m.all) < maxCachedDigests {
			break
		}
		bounds.RememberedLogins.Reached()
		delete(m.all, old) // any entry: its password is checked again next time
	}
	m.all[sum] = now
}
