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

// Token is the token of the API, read from a file, which is read again when it changes. Each line of the file is a valid
// token, so that a token can be replaced while the old one is still in use.
type Token struct {
	path string

	mu        sync.Mutex // guards the fields below
	digests   [][sha256.Size]byte
	stamp     fileStamp
	checkedAt time.Time
}

// fileStamp identifies a version of a file.
type fileStamp struct {
	modified time.Time
	size     int64
}

const (
	minTokenBytes      = 16
	tokenCheckInterval = time.Second // between checks of the file
	maxTokens          = 64 << 10    // size of the file in bytes
)

// ReadToken reads the tokens of a file. It returns an error if there is none or one is shorter than 16 bytes.
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
			return fmt.Errorf("%s: a token of %d characters can be guessed: write at least %d characters, such as the output of openssl rand -hex 32", t.path, len(line), minTokenBytes)
		}
		digests = append(digests, sha256.Sum256(line))
	}
	if len(digests) == 0 {
		return fmt.Errorf("%s: no token in the file: write one, such as the output of openssl rand -hex 32", t.path)
	}
	t.digests, t.stamp = digests, stamp
	return nil
}

// is reports whether shown is a valid token. It takes the same time for wrong and right tokens, because it compares the
// digest of shown with all digests in constant time.
func (t *Token) is(shown string) bool {
	sum := sha256.Sum256([]byte(shown))
	right := 0
	for _, d := range t.current() {
		right |= subtle.ConstantTimeCompare(sum[:], d[:])
	}
	return right == 1
}

// current returns the digests of the tokens. If the file is invalid, the last valid ones stay in use.
func (t *Token) current() [][sha256.Size]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); now.Sub(t.checkedAt) >= tokenCheckInterval {
		_ = t.read(now)
	}
	return t.digests
}
