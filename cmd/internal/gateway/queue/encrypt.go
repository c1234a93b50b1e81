package queue

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
)

// itemCipher encrypts what is stored, if there is a key. The subject is authenticated with it, so that nothing can be put in the
// place of something else.
type itemCipher struct {
	aead cipher.AEAD // nil: nothing is encrypted
	mark string      // tells keys apart; "": there is none
}

// KeySize is that of a key: AES-256.
const KeySize = 32

// In front of what is stored.
const (
	inClear = 0
	sealed  = 1
)

func newCipher(key []byte) (*itemCipher, error) {
	if len(key) == 0 {
		return &itemCipher{}, nil
	}
	if len(key) != KeySize {
		return nil, fmt.Errorf("queue: the key has %d bytes: it must have %d", len(key), KeySize)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	m := hmac.New(sha256.New, key)
	m.Write([]byte("sluice queue key"))
	return &itemCipher{aead, hex.EncodeToString(m.Sum(nil)[:8])}, nil
}

func (s *itemCipher) encrypt(subject string, plain []byte) []byte {
	if s.aead == nil {
		return append([]byte{inClear}, plain...)
	}
	out := make([]byte, 1+s.aead.NonceSize(), 1+s.aead.NonceSize()+len(plain)+s.aead.Overhead())
	out[0] = sealed
	_, _ = rand.Read(out[1:]) // it never fails
	return s.aead.Seal(out, out[1:], plain, []byte(subject))
}

var errNotDecrypted = errors.New("queue: what is stored is encrypted with another key: set the key_file it was written with")

func (s *itemCipher) decrypt(subject string, b []byte) ([]byte, error) {
	switch {
	case len(b) > 0 && b[0] == inClear:
		return b[1:], nil
	case len(b) == 0 || b[0] != sealed:
		return nil, errCodec
	case s.aead == nil || len(b) < 1+s.aead.NonceSize():
		return nil, errNotDecrypted
	}
	n := 1 + s.aead.NonceSize()
	plain, err := s.aead.Open(nil, b[1:n], b[n:], []byte(subject))
	if err != nil {
		return nil, errNotDecrypted
	}
	return plain, nil
}
