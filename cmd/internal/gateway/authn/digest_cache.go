package authn

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/bounds"
)

const (
	mostRemembered = 4096
	rememberFor    = 5 * time.Minute
)

// remembered are passwords that were right, by a keyed digest of the name, the password and the hash: a password that is
// changed is not remembered. Wrong ones are not remembered: guessing stays slow. Nothing can be told by how long a look
// takes, but by who has the password.
type remembered struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]time.Time // when it was right
}

func (m *remembered) has(sum [sha256.Size]byte, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.all[sum]
	return ok && now.Sub(at) < rememberFor
}

func (m *remembered) add(sum [sha256.Size]byte, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = make(map[[sha256.Size]byte]time.Time)
	}
	_, again := m.all[sum]
	for old := range m.all {
		if again || len(m.all) < mostRemembered {
			break
		}
		bounds.RememberedLogins.Reached()
		delete(m.all, old) // any: who has the password is asked for it again
	}
	m.all[sum] = now
}
