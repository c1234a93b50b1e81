package authn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// JWTConfig is the configuration of [JWT]. Exactly one of SecretFile, KeySetFile and KeySetURL must be set.
type JWTConfig struct {
	Algorithms []string // accepted: HS* with SecretFile, all others with a JWKS
	SecretFile string   // shared secret of HS*, at least 32 bytes
	KeySetFile string   // JWKS
	KeySetURL  *KeySetURL

	Issuer    string        // required; empty: any
	Audience  []string      // accepted; a token must have one of them; empty: any
	Leeway    time.Duration // tolerated clock difference
	UserClaim string        // default sub; it must be a string
	PlanClaim string        // default plan
	Strip     bool          // do not forward tokens
}

// JWT authenticates requests by a signed token in Authorization: Bearer.
//
// Only configured algorithms are accepted, regardless of the token's header, and a key is used only for algorithms of its kind.
// Keys and key URLs in tokens (jku, x5u, jwk, x5c) are ignored. A token must have an expiry.
type JWT struct {
	info   MethodInfo
	cfg    JWTConfig
	parser *jwt.Parser
	keys   keySource
}

// keySource is a source of keys.
type keySource interface {
	// candidateKeys returns the keys for a token's key ID and algorithm, possibly none. The error is [ErrUnavailable] if no keys
	// have been loaded yet.
	candidateKeys(r *http.Request, id, algorithm string) ([]any, error)
	// Run reloads keys when they change, until ctx is done, and Reload reloads them now. If that fails, the last valid keys stay
	// in use.
	Run(ctx context.Context, log *slog.Logger)
	Reload(log *slog.Logger)
}

const maxTokenBytes = 8 << 10

// Algorithms are the supported signature algorithms.
var Algorithms = []string{
	"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", ed25519SignatureAlg, "HS256", "HS384", "HS512",
}

// IsSymmetric reports whether an algorithm uses a shared secret.
func IsSymmetric(algorithm string) bool { return strings.HasPrefix(algorithm, "HS") }

// NewJWT reads the secret or the JWKS file. A JWKS URL is fetched in the background; see [JWT.Run].
func NewJWT(cfg JWTConfig) (*JWT, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.UserClaim == "" {
		cfg.UserClaim = "sub"
	}
	if cfg.PlanClaim == "" {
		cfg.PlanClaim = "plan"
	}
	options := []jwt.ParserOption{
		jwt.WithValidMethods(cfg.Algorithms), jwt.WithJSONNumber(), jwt.WithExpirationRequired(), jwt.WithLeeway(cfg.Leeway), jwt.WithStrictDecoding(),
	}
	if cfg.Issuer != "" {
		options = append(options, jwt.WithIssuer(cfg.Issuer))
	}
	if len(cfg.Audience) > 0 {
		options = append(options, jwt.WithAudience(cfg.Audience...))
	}
	j := &JWT{
		cfg: cfg, parser: jwt.NewParser(options...),
		info: MethodInfo{Challenge: "Bearer", Places: []Place{bearer}, Forward: !cfg.Strip},
	}
	var err error
	switch {
	case cfg.SecretFile != "":
		j.keys, err = newSecret(cfg.SecretFile)
	case cfg.KeySetFile != "":
		j.keys, err = newKeySetFile(cfg.KeySetFile)
	default:
		j.keys, err = newJWKSCache(*cfg.KeySetURL)
	}
	if err != nil {
		return nil, err
	}
	return j, nil
}

func (c *JWTConfig) check() error {
	if len(c.Algorithms) == 0 {
		return fmt.Errorf("there are no algorithms: write those of your issuer, such as RS256")
	}
	shared := 0
	for _, a := range c.Algorithms {
		if !slices.Contains(Algorithms, a) {
			return fmt.Errorf("there is no algorithm %.20q: write %s", a, strings.Join(Algorithms, ", "))
		}
		if IsSymmetric(a) {
			shared++
		}
	}
	sources := 0
	for _, there := range []bool{c.SecretFile != "", c.KeySetFile != "", c.KeySetURL != nil} {
		if there {
			sources++
		}
	}
	switch {
	case shared > 0 && shared < len(c.Algorithms):
		return errors.New("HS256, HS384 and HS512 use a shared secret, all others use public keys: write one kind only")
	case sources != 1:
		return errors.New("write one of secret_file, jwks_file and jwks_url")
	case (shared > 0) != (c.SecretFile != ""):
		return errors.New("HS256, HS384 and HS512 need secret_file, all others need jwks_file or jwks_url")
	}
	return nil
}

// Run reloads keys when they change, until ctx is done.
func (j *JWT) Run(ctx context.Context, log *slog.Logger) { j.keys.Run(ctx, log) }

// Reload reloads keys now.
func (j *JWT) Reload(log *slog.Logger) { j.keys.Reload(log) }

// Info implements [Method].
func (j *JWT) Info() *MethodInfo { return &j.info }

// Authenticate implements [Method].
func (j *JWT) Authenticate(r *http.Request) (Identity, error) {
	text, err := bearer.read(r.Header)
	switch {
	case err != nil:
		return Identity{}, err
	case len(text) > maxTokenBytes:
		bounds.Token.Reached()
		return Identity{}, stale("the token has more than %d bytes", maxTokenBytes)
	}
	var away error
	claims := jwt.MapClaims{}
	_, err = j.parser.ParseWithClaims(text, claims, func(t *jwt.Token) (any, error) {
		keys, err := j.key(r, t)
		if errors.Is(err, ErrUnavailable) {
			away = err
		}
		return keys, err
	})
	switch {
	case away != nil:
		return Identity{}, away
	case err != nil:
		return Identity{}, j.why(err)
	}
	if _, payload, ok := strings.Cut(text, "."); ok {
		payload, _, _ = strings.Cut(payload, ".")
		if b, err := j.parser.DecodeSegment(payload); err != nil || !isOne(b) {
			return Identity{}, stale("the token's claims are not one JSON object: something follows it, or a name is there twice")
		}
	}
	return j.identity(claims)
}

// key returns the keys that a token may be signed with.
func (j *JWT) key(r *http.Request, t *jwt.Token) (any, error) {
	if _, extended := t.Header["crit"]; extended {
		return nil, errUnknownKey // a critical header that is not supported must not be ignored (RFC 7515)
	}
	id, _ := t.Header["kid"].(string)
	keys, err := j.keys.candidateKeys(r, id, t.Method.Alg())
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, errUnknownKey
	}
	set := jwt.VerificationKeySet{}
	for _, k := range keys {
		set.Keys = append(set.Keys, k)
	}
	return set, nil
}

var errUnknownKey = errors.New("no matching key")

// why returns the error for the client. It is detailed only for tokens with a valid signature.
func (j *JWT) why(err error) error {
	switch {
	case errors.Is(err, jwt.ErrTokenMalformed):
		return guess("the token cannot be read: send a signed JWT")
	case errors.Is(err, jwt.ErrTokenUnverifiable), errors.Is(err, jwt.ErrTokenSignatureInvalid):
		return guess("the token is not signed by a known key")
	case errors.Is(err, jwt.ErrTokenExpired):
		return stale("the token expired: request a new one")
	case errors.Is(err, jwt.ErrTokenNotValidYet), errors.Is(err, jwt.ErrTokenUsedBeforeIssued):
		return stale("the token is not valid yet: check the clock of its issuer")
	case errors.Is(err, jwt.ErrTokenInvalidIssuer):
		return stale("the issuer of the token is not accepted")
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return stale("the audience of the token is not accepted")
	case errors.Is(err, jwt.ErrTokenRequiredClaimMissing):
		return stale("the token lacks exp or another required claim")
	}
	return stale("the claims of the token are invalid")
}

// identity returns the identity of a valid token.
func (j *JWT) identity(claims jwt.MapClaims) (Identity, error) {
	flat := flatten(claims)
	if flat == nil {
		return Identity{}, stale("the token has too many claims: at most %d, of %d bytes each", maxClaims, maxClaimBytes)
	}
	user := flat[j.cfg.UserClaim]
	if user == "" || !sendable(user) || !isText(claims, j.cfg.UserClaim) {
		return Identity{}, stale("the token has no user: %s is missing, not a string, or has spaces around it", j.cfg.UserClaim)
	}
	attributes := map[string]string{"user": user}
	if plan := flat[j.cfg.PlanClaim]; plan != "" {
		attributes["plan"] = plan
	}
	return Identity{User: user, Claims: flat, Attributes: attributes, forwarded: bearer}, nil
}
