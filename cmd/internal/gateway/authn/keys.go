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

// KeysConfig is the configuration of [Keys].
type KeysConfig struct {
	Files   []string
	Header  string // default X-Api-Key
	Bearer  bool   // accept Authorization: Bearer KEY too
	Forward bool   // forward keys
}

// Keys authenticates requests by API key. Account files contain the SHA-256 of keys, which is enough for random keys such as those
// of [NewKey].
//
// A key is looked up in a map by its digest. The time of a lookup depends on the digest but reveals nothing about the keys: an
// attacker cannot choose keys by their SHA-256, and similar digests do not mean similar keys. Unknown keys take the same path as
// known ones.
type Keys struct {
	files
	info MethodInfo
	now  func() time.Time
	live atomic.Pointer[map[[sha256.Size]byte]*account]
}

const (
	keyPrefix   = "slk_" // recognisable for people and secret scanners
	hashPrefix  = "sha256:"
	minKeyChars = 24   // minimum characters of keys that were not generated here
	maxKeyBytes = 1024 // maximum bytes
)

// NewKeys reads the files. Its error joins all errors of the files, each a [*rules.Error].
func NewKeys(cfg KeysConfig) (*Keys, error) {
	if cfg.Header == "" {
		cfg.Header = "X-Api-Key"
	}
	if !httpguts.ValidHeaderFieldName(cfg.Header) {
		return nil, fmt.Errorf("%q is not a header name: write one such as X-Api-Key", cfg.Header)
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

const plainKey = "every reader of this file can use a key in plain text: write hash: with the output of `sluice apikey hash`, and remove the key"

func checkKeyHash(text string) string {
	digits, ok := strings.CutPrefix(text, hashPrefix)
	if !ok {
		return "hash: write sha256: and 64 hexadecimal digits, as `sluice apikey hash` prints. If this is the key itself, " +
			"every reader of this file can use it"
	}
	if sum, err := hex.DecodeString(digits); err != nil || len(sum) != sha256.Size || digits != strings.ToLower(digits) {
		return "hash: write 64 hexadecimal digits in lower case after sha256:, as `sluice apikey hash` prints"
	}
	return ""
}

// use replaces the keys by those in the content of the files.
func (k *Keys) use(content [][]byte) error {
	all, err := readAccounts(&keyKind, k.paths, content)
	if err != nil {
		return err
	}
	live := make(map[[sha256.Size]byte]*account, len(all))
	for i := range all {
		sum, _ := hex.DecodeString(strings.TrimPrefix(all[i].hash, hashPrefix)) // cannot fail: already checked
		live[[sha256.Size]byte(sum)] = &all[i].account
	}
	k.live.Store(&live)
	return nil
}

// Len returns the number of keys.
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
		return Identity{}, guess("the API key is unknown")
	}
	if err := known.usable("the API key", k.now()); err != nil {
		return Identity{}, err
	}
	id := known.identity
	id.forwarded = *at
	return id, nil
}

// shown returns the API key of a request. A Bearer value that looks like a signed token is left to other methods.
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

// NewKey returns a new key of 256 random bits and its hash.
func NewKey() (key, hash string) {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	key = keyPrefix + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b))
	sum := sha256.Sum256([]byte(key))
	return key, hashPrefix + hex.EncodeToString(sum[:])
}

// HashKey returns the hash of an existing key. Short keys are rejected, because they could be found from the hash by trying all.
func HashKey(key string) (hash string, err error) {
	switch {
	case len(key) < minKeyChars:
		return "", fmt.Errorf("the key has %d characters and can be guessed: use at least %d, or create one with sluice apikey new", len(key), minKeyChars)
	case len(key) > maxKeyBytes:
		return "", fmt.Errorf("the key has more than %d bytes", maxKeyBytes)
	case !sendable(key):
		return "", fmt.Errorf("the key cannot be sent in a header: use one without spaces around it, and without line breaks")
	}
	sum := sha256.Sum256([]byte(key))
	return hashPrefix + hex.EncodeToString(sum[:]), nil
}
