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

// digestCache holds keyed digests for digestTTL: of credentials that were right, and of accounts by address. That of a password has its name and hash, so that a password that is
// changed is not found. Wrong ones are not stored: guessing stays slow. Nothing can be told by how long a look
// takes, but by who has the password.
type digestCache struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]time.Time // when it was right
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
		delete(m.all, old) // any: who has the password is asked for it again
	}
	m.all[sum] = now
}
