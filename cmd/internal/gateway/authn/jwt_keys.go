package authn

import (
	"bytes"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/sluiceproject/sluice/rules"
)

// secret is a shared secret in a file.
type secret struct {
	files
	live atomic.Pointer[[]byte]
}

const minSecretBytes = 32

func newSecret(path string) (*secret, error) {
	s := new(secret)
	s.files = files{what: "JWT secret", paths: []string{path}, maxBytes: 4 << 10, use: func(all [][]byte) error {
		b := bytes.TrimRight(all[0], "\r\n")
		if len(b) < minSecretBytes {
			return &rules.Error{Pos: rules.Position{File: path}, Msg: fmt.Sprintf(
				"the secret has %d bytes and can be guessed: write at least %d, such as openssl rand -hex 32 prints", len(b), minSecretBytes)}
		}
		s.live.Store(&b)
		return nil
	}}
	_, err := s.load()
	return s, err
}

func (s *secret) candidateKeys(_ *http.Request, _, algorithm string) ([]any, error) {
	if !IsSymmetric(algorithm) {
		return nil, nil
	}
	return []any{*s.live.Load()}, nil
}

// keySetFile is a JWKS in a file.
type keySetFile struct {
	files
	live atomic.Pointer[[]publicKey]
}

func newKeySetFile(path string) (*keySetFile, error) {
	k := new(keySetFile)
	k.files = files{what: "JWKS", paths: []string{path}, maxBytes: maxKeySetBytes, use: func(all [][]byte) error {
		keys, err := parseKeySet(all[0])
		if err != nil {
			return &rules.Error{Pos: rules.Position{File: path}, Msg: err.Error()}
		}
		k.live.Store(&keys)
		return nil
	}}
	_, err := k.load()
	return k, err
}

func (k *keySetFile) candidateKeys(_ *http.Request, id, algorithm string) ([]any, error) {
	keys, _ := candidateKeys(*k.live.Load(), id, algorithm)
	return keys, nil
}
