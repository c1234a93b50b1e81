package adminapi

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/plainfile"
)

// Token is what those show who may use the API: the content of a file, which is read again when it changes. A file with
// several lines has several tokens, so that one can be replaced while the other is still in use.
type Token struct {
	path string

	mu        sync.Mutex // guards the fields below
	digests   [][sha256.Size]byte
	stamp     fileStamp
	checkedAt time.Time
}

// fileStamp tells versions of a file apart.
type fileStamp struct {
	modified time.Time
	size     int64
}

const (
	minTokenBytes      = 16          // characters
	tokenCheckInterval = time.Second // at the file
	maxTokens          = 64 << 10    // bytes of it
)

// ReadToken reads the file.
func ReadToken(path string) (*Token, error) {
	t := &Token{path: path}
	if err := t.read(time.Now()); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Token) read(now time.Time) error {
	t.checkedAt = now
	info, err := os.Stat(t.path)
	if err != nil {
		return err
	}
	stamp := fileStamp{info.ModTime(), info.Size()}
	if stamp == t.stamp && t.digests != nil {
		return nil
	}
	b, err := plainfile.Read(t.path, maxTokens)
	if err != nil {
		return err
	}
	var digests [][sha256.Size]byte
	for line := range bytes.Lines(b) {
		line = bytes.TrimSpace(line)
		switch {
		case len(line) == 0:
			continue
		case len(line) < minTokenBytes:
			return fmt.Errorf("%s: a token of %d characters can be guessed: write at least %d, such as openssl rand -hex 32 prints", t.path, len(line), minTokenBytes)
		}
		digests = append(digests, sha256.Sum256(line))
	}
	if len(digests) == 0 {
		return fmt.Errorf("%s: there is no token in it: write one, such as openssl rand -hex 32 prints", t.path)
	}
	t.digests, t.stamp = digests, stamp
	return nil
}

// is tells whether somebody has shown the token. That takes as long for a wrong one as for the right one: both are hashed,
// and all of the hashes are compared.
func (t *Token) is(shown string) bool {
	sum := sha256.Sum256([]byte(shown))
	right := 0
	for _, d := range t.current() {
		right |= subtle.ConstantTimeCompare(sum[:], d[:])
	}
	return right == 1
}

// current are the tokens' digests. A file that cannot be used leaves the last good ones.
func (t *Token) current() [][sha256.Size]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); now.Sub(t.checkedAt) >= tokenCheckInterval {
		_ = t.read(now)
	}
	return t.digests
}
