package authn

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/panics"
)

// Bounds of a set of keys.
const (
	maxKeySetBytes         = 256 << 10
	maxKeysInSet           = 100
	minRSABits, maxRSABits = 2048, 8192 // bits
	maxWithoutKeyID        = 16         // keys that are tried for a token that does not name one
	maxExponent            = 1<<31 - 1
	ed25519SignatureAlg    = "EdDSA"
)

// jwk is a key of a set (RFC 7517), as far as it matters. What is secret in it is not read.
type jwk struct {
	Kty    string   `json:"kty"`
	Kid    string   `json:"kid"`
	Use    string   `json:"use"`
	KeyOps []string `json:"key_ops"`
	Alg    string   `json:"alg"`
	Crv    string   `json:"crv"`
	N      string   `json:"n"`
	E      string   `json:"e"`
	X      string   `json:"x"`
	Y      string   `json:"y"`
}

// publicKey checks signatures. It is good for some algorithms only, so that a token cannot have one key be taken for
// another kind of key.
type publicKey struct {
	id         string
	algorithms []string
	key        any // *rsa.PublicKey, *ecdsa.PublicKey, ed25519.PublicKey, or []byte
}

// parseKeySet reads a set of keys. Keys that are for something else are left out, as RFC 7517 has it; a set without any
// that can be used is an error.
func parseKeySet(data []byte) (keys []publicKey, err error) {
	defer panics.Recover(func(e *panics.Error) { keys, err = nil, e })
	if len(data) > maxKeySetBytes {
		bounds.KeySet.Reached()
		return nil, fmt.Errorf("the set of keys has more than %d bytes", maxKeySetBytes)
	}
	var set struct {
		Keys []jwk `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, errors.New(`it is no set of keys: write JSON such as {"keys": [{"kty": "RSA", …}]}`) // without what is in it
	}
	if len(set.Keys) > maxKeysInSet {
		bounds.KeySet.Reached()
		return nil, fmt.Errorf("the set has %d keys, at most %d are read", len(set.Keys), maxKeysInSet)
	}
	var all []publicKey
	var why error
	for i := range set.Keys {
		key, err := set.Keys[i].public()
		if err != nil {
			why = fmt.Errorf("key %d: %w", i+1, err)
			continue
		}
		all = append(all, key)
	}
	switch {
	case len(all) > 0:
		return all, nil
	case why != nil:
		return nil, fmt.Errorf("no key of the set can be used: %w", why)
	}
	return nil, errors.New("the set has no keys")
}

func (j *jwk) public() (publicKey, error) {
	k := publicKey{id: j.Kid}
	if j.Use != "" && j.Use != "sig" || len(j.KeyOps) > 0 && !slices.Contains(j.KeyOps, "verify") {
		return k, errors.New("it is not for signatures")
	}
	var err error
	switch j.Kty {
	case "RSA":
		k.algorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
		k.key, err = j.rsa()
	case "EC":
		k.algorithms, k.key, err = j.ec()
	case "OKP":
		k.algorithms = []string{ed25519SignatureAlg}
		k.key, err = j.ed25519()
	case "oct":
		return k, errors.New("it is a shared secret, which anybody who reads the set could sign with: use secret_file")
	default:
		return k, errors.New("its kty is none of RSA, EC and OKP")
	}
	if err != nil {
		return k, err
	}
	if j.Alg != "" {
		if !slices.Contains(k.algorithms, j.Alg) {
			return k, errors.New("its alg does not go with its kty")
		}
		k.algorithms = []string{j.Alg}
	}
	return k, nil
}

func (j *jwk) rsa() (*rsa.PublicKey, error) {
	n, err := number(j.N)
	if err != nil {
		return nil, err
	}
	e, err := number(j.E)
	switch {
	case err != nil:
		return nil, err
	case n.BitLen() < minRSABits || n.BitLen() > maxRSABits:
		return nil, fmt.Errorf("it has %d bits: between %d and %d are safe and quick", n.BitLen(), minRSABits, maxRSABits)
	case !e.IsInt64() || e.Int64() < 3 || e.Int64() > maxExponent || e.Bit(0) == 0:
		return nil, errors.New("its exponent is odd and between 3 and 2147483647, or it is not safe")
	}
	return &rsa.PublicKey{N: n, E: int(e.Int64())}, nil
}

func (j *jwk) ec() (algorithms []string, key *ecdsa.PublicKey, err error) {
	var curve elliptic.Curve
	switch j.Crv {
	case "P-256":
		curve, algorithms = elliptic.P256(), []string{"ES256"}
	case "P-384":
		curve, algorithms = elliptic.P384(), []string{"ES384"}
	case "P-521":
		curve, algorithms = elliptic.P521(), []string{"ES512"}
	default:
		return nil, nil, errors.New("its curve is none of P-256, P-384 and P-521")
	}
	size := (curve.Params().BitSize + 7) / 8
	point := []byte{4}
	for _, text := range []string{j.X, j.Y} {
		b, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || len(b) != size {
			return nil, nil, fmt.Errorf("its x and y have to be %d bytes each", size)
		}
		point = append(point, b...)
	}
	if key, err = ecdsa.ParseUncompressedPublicKey(curve, point); err != nil {
		return nil, nil, errors.New("its point is not on the curve")
	}
	return algorithms, key, nil
}

func (j *jwk) ed25519() (ed25519.PublicKey, error) {
	b, err := base64.RawURLEncoding.DecodeString(j.X)
	if j.Crv != "Ed25519" || err != nil || len(b) != ed25519.PublicKeySize {
		return nil, errors.New("of this kind only Ed25519 is known, with an x of 32 bytes")
	}
	return ed25519.PublicKey(b), nil
}

func number(text string) (*big.Int, error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) == 0 || len(b) > maxRSABits/8+1 {
		return nil, errors.New("its n and e have to be base64url")
	}
	return new(big.Int).SetBytes(b), nil
}

// candidateKeys are the keys that a token may have been signed with: those of its name and its algorithm. A token without a name
// may have been signed with any, if there are few.
func candidateKeys(all []publicKey, id, algorithm string) (keys []any, named bool) {
	for i := range all {
		if id != "" && all[i].id != id {
			continue
		}
		named = true
		if slices.Contains(all[i].algorithms, algorithm) {
			keys = append(keys, all[i].key)
		}
	}
	if len(keys) > maxWithoutKeyID {
		return nil, named
	}
	return keys, named
}
