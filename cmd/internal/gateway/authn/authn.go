package authn

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Identity is the authenticated sender of a request. Its maps are shared and must not be modified.
type Identity struct {
	User       string            // empty: not authenticated
	Claims     map[string]string // of a token; see flatten
	Attributes map[string]string // user, plan and attributes of the account file
	forwarded  Place             // header of forwarded credentials; zero: none
}

// Method is an authentication method.
type Method interface {
	// Authenticate returns [ErrNoCredentials] if the request has no credentials of this kind, a [*CredentialError] if it has wrong
	// ones, and [ErrBusy] or [ErrUnavailable] if they cannot be checked now.
	Authenticate(r *http.Request) (Identity, error)
	// Info returns a description that never changes.
	Info() *MethodInfo
}

// MethodInfo describes a method.
type MethodInfo struct {
	Challenge string  // WWW-Authenticate header of responses to requests without credentials
	Places    []Place // headers of the credentials
	Forward   bool    // forward right credentials
}

// Place is a header with credentials.
type Place struct {
	Header string // canonical
	Scheme string // authentication scheme, such as Bearer; empty: none
}

// in reports whether headers contain credentials of this place. The scheme is case-insensitive.
func (p *Place) in(h http.Header) bool {
	for _, v := range h[p.Header] {
		if p.Scheme == "" {
			return true
		}
		if _, ok := cutScheme(v, p.Scheme); ok {
			return true
		}
	}
	return false
}

// cutScheme returns the value after a scheme.
func cutScheme(value, scheme string) (string, bool) {
	word, rest, _ := strings.Cut(value, " ")
	return strings.TrimLeft(rest, " "), strings.EqualFold(word, scheme)
}

// read returns the credentials of this place. Several are an error, because upstreams could use another one than this program.
func (p *Place) read(h http.Header) (string, error) {
	all := h[p.Header]
	if !p.in(h) {
		return "", ErrNoCredentials
	}
	if len(all) > 1 {
		return "", stale("the header %s is there %d times: send one", p.Header, len(all))
	}
	if p.Scheme == "" {
		return all[0], nil
	}
	text, _ := cutScheme(all[0], p.Scheme)
	return text, nil
}

var (
	// ErrNoCredentials means that a request has no credentials of the kind.
	ErrNoCredentials = errors.New("authn: no credentials")
	// ErrBusy means that too many passwords are being checked.
	ErrBusy = errors.New("authn: too many passwords are being checked")
	// ErrUnavailable means that there are no keys yet to verify tokens with.
	ErrUnavailable = errors.New("authn: no keys yet to verify tokens with")
)

// CredentialError is the error for wrong credentials. Its text may be sent to the client.
type CredentialError struct {
	Reason string
	// Guess reports whether the credentials may have been guessed. Expired, disabled and foreign credentials are no guesses.
	Guess bool
}

func (w *CredentialError) Error() string { return "authn: " + w.Reason }

func guess(reason string) error { return &CredentialError{Reason: reason, Guess: true} }

// bearer is the place of tokens.
var bearer = Place{Header: "Authorization", Scheme: "Bearer"}

func stale(format string, args ...any) error {
	return &CredentialError{Reason: fmt.Sprintf(format, args...)}
}

// Rejection is the response to a request that is not authenticated.
type Rejection struct {
	Status     int      // 401, 429 or 503
	Challenges []string // one WWW-Authenticate each, if it is 401
	Detail     string   // for the client
	RetryAfter time.Duration
	Limit      int64 // of a 429: maximum burst of wrong credentials
}

// account is an entry of an account file.
type account struct {
	identity Identity
	expires  time.Time // zero: never
	disabled bool
}

// usable returns an error if the account is disabled or expired.
func (a *account) usable(what string, now time.Time) error {
	switch {
	case a.disabled:
		return stale("%s is disabled: contact its issuer", what)
	case !a.expires.IsZero() && !now.Before(a.expires):
		return stale("%s expired at %s: request a new one", what, a.expires.UTC().Format(time.RFC3339))
	}
	return nil
}
