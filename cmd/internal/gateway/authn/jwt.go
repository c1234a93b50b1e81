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

// JWTConfig is how [JWT] is made. There is one source of keys.
type JWTConfig struct {
	Algorithms []string // that are believed: HS* with SecretFile, all others with a set of keys
	SecretFile string   // with the secret of HS*, at least 32 bytes
	KeySetFile string   // JWKS
	KeySetURL  *KeySetURL

	Issuer    string        // that a token must have; empty: any
	Audience  []string      // of which a token must have one; empty: any
	Leeway    time.Duration // by which clocks may differ
	UserClaim string        // default sub; a token in which it is not a string is wrong
	PlanClaim string        // default plan
	Strip     bool          // tokens are not forwarded
}

// JWT knows who a request is from by a signed token, in Authorization: Bearer.
//
// The algorithms are those of the configuration, whatever a token says, and a key is used only for algorithms of its own
// kind. What a token says of where keys are (jku, x5u, jwk, x5c) is not read. A token must say when it expires.
type JWT struct {
	info   MethodInfo
	cfg    JWTConfig
	parser *jwt.Parser
	keys   keySource
}

// keySource is where keys are.
type keySource interface {
	// candidateKeys returns the keys for a token's key id and algorithm: none if there is none, and [ErrUnavailable] if there
	// never were any.
	candidateKeys(r *http.Request, id, algorithm string) ([]any, error)
	// Run has them read again when they change, until the context ends, and Reload now. The last good ones stay.
	Run(ctx context.Context, log *slog.Logger)
	Reload(log *slog.Logger)
}

const maxTokenBytes = 8 << 10 // bytes

// Algorithms are those that can be believed.
var Algorithms = []string{
	"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", ed25519SignatureAlg, "HS256", "HS384", "HS512",
}

// IsSymmetric reports whether an algorithm works with a secret that both sides have.
func IsSymmetric(algorithm string) bool { return strings.HasPrefix(algorithm, "HS") }

// NewJWT reads the secret or the file of keys. Keys from a URL are fetched in the background; see [JWT.Run].
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
		return fmt.Errorf("jwt: there are no algorithms: write those that your issuer signs with, such as RS256")
	}
	shared := 0
	for _, a := range c.Algorithms {
		if !slices.Contains(Algorithms, a) {
			return fmt.Errorf("jwt: there is no algorithm %.20q: write %s", a, strings.Join(Algorithms, ", "))
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
		return errors.New("jwt: HS256, HS384 and HS512 have a shared secret and all others have keys: write one or the other")
	case sources != 1:
		return errors.New("jwt: write one of secret_file, jwks_file and jwks_url")
	case (shared > 0) != (c.SecretFile != ""):
		return errors.New("jwt: secret_file goes with HS256, HS384 and HS512, and they with nothing else")
	}
	return nil
}

// Run reads keys when they change until the context ends.
func (j *JWT) Run(ctx context.Context, log *slog.Logger) { j.keys.Run(ctx, log) }

// Reload reads keys again now.
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

// key finds the keys that a token may be signed with.
func (j *JWT) key(r *http.Request, t *jwt.Token) (any, error) {
	if _, extended := t.Header["crit"]; extended {
		return nil, errUnknownKey // it means something that is not known here, and must not be passed over (RFC 7515)
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

var errUnknownKey = errors.New("no key fits")

// why is what is wrong with a token. Of one whose signature is right, more is told.
func (j *JWT) why(err error) error {
	switch {
	case errors.Is(err, jwt.ErrTokenMalformed):
		return guess("the token cannot be read: send a signed JWT")
	case errors.Is(err, jwt.ErrTokenUnverifiable), errors.Is(err, jwt.ErrTokenSignatureInvalid):
		return guess("the token's signature is not by a key that is known here")
	case errors.Is(err, jwt.ErrTokenExpired):
		return stale("the token expired: ask for another")
	case errors.Is(err, jwt.ErrTokenNotValidYet), errors.Is(err, jwt.ErrTokenUsedBeforeIssued):
		return stale("the token is not valid yet: look at the clock of who made it")
	case errors.Is(err, jwt.ErrTokenInvalidIssuer):
		return stale("the token's issuer is not one that is believed here")
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return stale("the token is for somebody else: its audience is not us")
	case errors.Is(err, jwt.ErrTokenRequiredClaimMissing):
		return stale("the token lacks exp, or another claim that it must have")
	}
	return stale("the token's claims are not sound")
}

// identity is what a token says that is right.
func (j *JWT) identity(claims jwt.MapClaims) (Identity, error) {
	flat := flatten(claims)
	if flat == nil {
		return Identity{}, stale("the token says too much: at most %d claims, of %d bytes each", maxClaims, maxClaimBytes)
	}
	user := flat[j.cfg.UserClaim]
	if user == "" || !sendable(user) || !isText(claims, j.cfg.UserClaim) {
		return Identity{}, stale("the token does not say who it is for: it lacks %s, or that is not a string, or has spaces around it", j.cfg.UserClaim)
	}
	attributes := map[string]string{"user": user}
	if plan := flat[j.cfg.PlanClaim]; plan != "" {
		attributes["plan"] = plan
	}
	return Identity{User: user, Claims: flat, Attributes: attributes, forwarded: bearer}, nil
}
