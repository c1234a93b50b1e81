package authn

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// KeysConfig is how [Keys] are made.
type KeysConfig struct {
	Files   []string
	Header  string // default X-Api-Key
	Bearer  bool   // also Authorization: Bearer KEY
	Forward bool   // keys are forwarded
}

// Keys knows who a request is from by its API key. Files hold the keys' SHA-256, which is enough for keys that nobody can
// guess, as [NewKey] makes them.
//
// A key is found in a map by its digest. That takes a different time for different digests, and tells nothing of the keys:
// who can choose a text by its SHA-256 has broken SHA-256, and how near a digest is to another says nothing of how near
// the texts are. Unknown keys go the same way as known ones.
type Keys struct {
	files
	info MethodInfo
	now  func() time.Time
	live atomic.Pointer[map[[sha256.Size]byte]*account]
}

const (
	keyPrefix   = "slk_" // so that people and scanners of repositories see what it is
	hashPrefix  = "sha256:"
	minKeyChars = 24   // characters of keys from elsewhere
	maxKeyBytes = 1024 // bytes of what is looked at
)

// NewKeys reads the files. The error joins all faults, each a [*rules.Error].
func NewKeys(cfg KeysConfig) (*Keys, error) {
	if cfg.Header == "" {
		cfg.Header = "X-Api-Key"
	}
	if !httpguts.ValidHeaderFieldName(cfg.Header) {
		return nil, fmt.Errorf("%q is no name of a header: write one such as X-Api-Key", cfg.Header)
	}
	k := &Keys{now: time.Now, info: MethodInfo{
		Challenge: fmt.Sprintf(`ApiKey header="%s"`, http.CanonicalHeaderKey(cfg.Header)),
		Places:    []Place{{Header: http.CanonicalHeaderKey(cfg.Header)}},
		Forward:   cfg.Forward,
	}}
	if cfg.Bearer {
		k.info.Places = append(k.info.Places, bearer)
	}
	k.files = files{what: "API keys", paths: cfg.Files, maxBytes: strictyaml.MaxBytes, use: k.use}
	if _, err := k.load(); err != nil {
		return nil, err
	}
	return k, nil
}

var keyKind = kind{
	list: "keys", one: "a key", hash: checkKeyHash,
	secret: map[string]string{"key": plainKey, "secret": plainKey, "token": plainKey, "api_key": plainKey},
}

const plainKey = "a key in plain text can be used by whoever reads this file: write hash: with what `sluice apikey hash` prints for it, and remove it here"

func checkKeyHash(text string) string {
	digits, ok := strings.CutPrefix(text, hashPrefix)
	if !ok {
		return "hash: write sha256: and 64 hexadecimal digits, as `sluice apikey hash` prints. If this is the key itself, " +
			"whoever reads this file can use it"
	}
	if sum, err := hex.DecodeString(digits); err != nil || len(sum) != sha256.Size || digits != strings.ToLower(digits) {
		return "hash: there have to be 64 hexadecimal digits, a to f small, behind sha256: as `sluice apikey hash` prints"
	}
	return ""
}

// use takes the content of the files.
func (k *Keys) use(content [][]byte) error {
	all, err := readAccounts(&keyKind, k.paths, content)
	if err != nil {
		return err
	}
	live := make(map[[sha256.Size]byte]*account, len(all))
	for i := range all {
		sum, _ := hex.DecodeString(strings.TrimPrefix(all[i].hash, hashPrefix)) // it was looked at
		live[[sha256.Size]byte(sum)] = &all[i].account
	}
	k.live.Store(&live)
	return nil
}

// Len is how many keys there are.
func (k *Keys) Len() int { return len(*k.live.Load()) }

// Info implements [Method].
func (k *Keys) Info() *MethodInfo { return &k.info }

// Authenticate implements [Method].
func (k *Keys) Authenticate(r *http.Request) (Identity, error) {
	shown, at, err := k.shown(r.Header)
	if err != nil {
		return Identity{}, err
	}
	if len(shown) > maxKeyBytes {
		bounds.APIKey.Reached()
		return Identity{}, stale("an API key has at most %d bytes", maxKeyBytes)
	}
	known := (*k.live.Load())[sha256.Sum256([]byte(shown))]
	if known == nil {
		return Identity{}, guess("the API key is not known")
	}
	if err := known.usable("the API key", k.now()); err != nil {
		return Identity{}, err
	}
	id := known.identity
	id.forwarded = *at
	return id, nil
}

// shown is the key that a request has. What looks like a signed token behind Bearer is left to those who read such.
func (k *Keys) shown(h http.Header) (key string, at *Place, err error) {
	err = ErrNoCredentials
	for i := range k.info.Places {
		p := &k.info.Places[i]
		text, here := p.read(h)
		switch {
		case here == ErrNoCredentials, p.Scheme != "" && strings.Count(text, ".") == 2:
			continue
		case here != nil:
			return "", nil, here
		case at != nil:
			return "", nil, stale("there are two API keys, in %s and %s: send one", at.Header, p.Header)
		}
		key, at, err = text, p, nil
	}
	return key, at, err
}

// NewKey makes a key of 256 random bits, and its hash.
func NewKey() (key, hash string) {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	key = keyPrefix + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b))
	sum := sha256.Sum256([]byte(key))
	return key, hashPrefix + hex.EncodeToString(sum[:])
}

// HashKey is the hash of a key from elsewhere. Short keys are refused: their hash tells the key to who can try all.
func HashKey(key string) (hash string, err error) {
	switch {
	case len(key) < minKeyChars:
		return "", fmt.Errorf("a key of %d characters can be found by trying all of them: use at least %d, or let sluice apikey new make one", len(key), minKeyChars)
	case len(key) > maxKeyBytes:
		return "", fmt.Errorf("a key has at most %d bytes", maxKeyBytes)
	case !sendable(key):
		return "", fmt.Errorf("the key cannot be sent in a header: use one without spaces around it, and without line breaks")
	}
	sum := sha256.Sum256([]byte(key))
	return hashPrefix + hex.EncodeToString(sum[:]), nil
}
