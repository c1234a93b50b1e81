package adminapi

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"sync/atomic"

	"github.com/sluiceproject/sluice/internal/plainfile"
)

// Token are the tokens of a file, which is reloaded when it changes. Each line of the file is a valid token, so that a token can
// be replaced while the old one is still in use.
type Token struct {
	*plainfile.Reloaded
	digests atomic.Pointer[[][sha256.Size]byte]
}

const (
	minTokenBytes = 16
	maxTokens     = 64 << 10 // size of the file in bytes
)

// ReadToken reads the tokens of a file. It returns an error if there is none or one is shorter than 16 bytes. What is their name
// in the log. If the file becomes invalid later, its last valid tokens stay in use.
func ReadToken(what, path string) (*Token, error) {
	t := &Token{}
	t.Reloaded = &plainfile.Reloaded{What: what, Path: path, MaxBytes: maxTokens, Use: t.use}
	if _, err := t.Load(); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Token) use(content []byte) error {
	var digests [][sha256.Size]byte
	for line := range bytes.Lines(content) {
		line = bytes.TrimSpace(line)
		switch {
		case len(line) == 0:
			continue
		case len(line) < minTokenBytes:
			return fmt.Errorf("%s: a token of %d characters can be guessed: write at least %d characters, such as the output of openssl rand -hex 32", t.Path, len(line), minTokenBytes)
		}
		digests = append(digests, sha256.Sum256(line))
	}
	if len(digests) == 0 {
		return fmt.Errorf("%s: no token in the file: write one, such as the output of openssl rand -hex 32", t.Path)
	}
	t.digests.Store(&digests)
	return nil
}

// is reports whether shown is a valid token. It takes the same time for wrong and right tokens, because it compares the
// digest of shown with all digests in constant time.
func (t *Token) is(shown string) bool {
	sum := sha256.Sum256([]byte(shown))
	right := 0
	for _, d := range *t.digests.Load() {
		right |= subtle.ConstantTimeCompare(sum[:], d[:])
	}
	return right == 1
}
