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

// Bounds of a JWKS.
const (
	maxKeySetBytes         = 256 << 10
	maxKeysInSet           = 100
	minRSABits, maxRSABits = 2048, 8192
	maxWithoutKeyID        = 16 // maximum keys to try for a token without a key ID
	maxExponent            = 1<<31 - 1
	ed25519SignatureAlg    = "EdDSA"
)

// jwk is a key of a JWKS (RFC 7517). Private parts are not decoded.
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

// publicKey verifies signatures of some algorithms only, so that a token cannot select an algorithm of another kind of key
// (algorithm confusion).
type publicKey struct {
	id         string
	algorithms []string
	key        any // *rsa.PublicKey, *ecdsa.PublicKey, ed25519.PublicKey, or []byte
}

// parseKeySet parses a JWKS. Unusable keys are ignored, as RFC 7517 requires; a JWKS without usable keys is an error.
func parseKeySet(data []byte) (keys []publicKey, err error) {
	defer panics.Recover(func(e *panics.Error) { keys, err = nil, e })
	if len(data) > maxKeySetBytes {
		bounds.KeySet.Reached()
		return nil, fmt.Errorf("the JWKS has more than %d bytes", maxKeySetBytes)
	}
	var set struct {
		Keys []jwk `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, errors.New(`not a JWKS: write JSON such as {"keys": [{"kty": "RSA", …}]}`) // without parts of the file
	}
	if len(set.Keys) > maxKeysInSet {
		bounds.KeySet.Reached()
		return nil, fmt.Errorf("the JWKS has %d keys, more than %d", len(set.Keys), maxKeysInSet)
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
		return nil, fmt.Errorf("no usable key in the JWKS: %w", why)
	}
	return nil, errors.New("the JWKS has no keys")
}

func (j *jwk) public() (publicKey, error) {
	k := publicKey{id: j.Kid}
	if j.Use != "" && j.Use != "sig" || len(j.KeyOps) > 0 && !slices.Contains(j.KeyOps, "verify") {
		return k, errors.New("not for signatures")
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
		return k, errors.New("a shared secret, with which every reader of the JWKS could sign: use secret_file")
	default:
		return k, errors.New("kty is none of RSA, EC and OKP")
	}
	if err != nil {
		return k, err
	}
	if j.Alg != "" {
		if !slices.Contains(k.algorithms, j.Alg) {
			return k, errors.New("alg does not match kty")
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
		return nil, fmt.Errorf("the modulus has %d bits: it must have %d to %d", n.BitLen(), minRSABits, maxRSABits)
	case !e.IsInt64() || e.Int64() < 3 || e.Int64() > maxExponent || e.Bit(0) == 0:
		return nil, errors.New("the exponent must be odd and between 3 and 2147483647")
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
		return nil, nil, errors.New("crv is none of P-256, P-384 and P-521")
	}
	size := (curve.Params().BitSize + 7) / 8
	point := []byte{4}
	for _, text := range []string{j.X, j.Y} {
		b, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || len(b) != size {
			return nil, nil, fmt.Errorf("x and y must have %d bytes each", size)
		}
		point = append(point, b...)
	}
	if key, err = ecdsa.ParseUncompressedPublicKey(curve, point); err != nil {
		return nil, nil, errors.New("the point is not on the curve")
	}
	return algorithms, key, nil
}

func (j *jwk) ed25519() (ed25519.PublicKey, error) {
	b, err := base64.RawURLEncoding.DecodeString(j.X)
	if j.Crv != "Ed25519" || err != nil || len(b) != ed25519.PublicKeySize {
		return nil, errors.New("of kty OKP only Ed25519 with an x of 32 bytes is supported")
	}
	return ed25519.PublicKey(b), nil
}

func number(text string) (*big.Int, error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) == 0 || len(b) > maxRSABits/8+1 {
		return nil, errors.New("n and e must be base64url")
	}
	return new(big.Int).SetBytes(b), nil
}

// candidateKeys returns the keys that a token may be signed with: those with its key ID and algorithm. For a token without a key ID
// it returns all keys of the algorithm, if they are at most maxWithoutKeyID.
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
