package authn

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Identity is who a request is from. Its maps are shared and must not be changed.
type Identity struct {
	User       string            // empty: nobody said who they are
	Claims     map[string]string // of a token; see [Claims]
	Attributes map[string]string // user, plan and what the files say
	forwarded  Place             // of credentials that are forwarded; zero: none
}

// Method is one way to say who one is.
type Method interface {
	// Authenticate returns [ErrNoCredentials] if the request has no credentials of this kind, a [*CredentialError] if it has wrong ones, and
	// [ErrBusy] or [ErrUnavailable] if nobody can tell now.
	Authenticate(r *http.Request) (Identity, error)
	// Info is the same always.
	Info() *MethodInfo
}

// MethodInfo describes a method.
type MethodInfo struct {
	Challenge string  // what WWW-Authenticate says to who has no credentials
	Places    []Place // where the credentials are
	Forward   bool    // they are forwarded, when they were right
}

// Place is a header that holds credentials.
type Place struct {
	Header string // canonical
	Scheme string // the word before them, such as Bearer; empty: there is none
}

// in tells whether headers have something in the place. The scheme may be written in any case.
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

// cutScheme returns what stands behind a scheme.
func cutScheme(value, scheme string) (string, bool) {
	word, rest, _ := strings.Cut(value, " ")
	return strings.TrimLeft(rest, " "), strings.EqualFold(word, scheme)
}

// read returns what is in the place. Two of them are wrong, whatever they are: nobody knows which one another program takes.
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
	// ErrNoCredentials is that there are no credentials of the kind.
	ErrNoCredentials = errors.New("authn: no credentials")
	// ErrBusy is that too many passwords are being checked.
	ErrBusy = errors.New("authn: too many passwords are being checked")
	// ErrUnavailable is that there are no keys yet to check tokens with.
	ErrUnavailable = errors.New("authn: there are no keys yet to check tokens with")
)

// CredentialError is why credentials are wrong, as their sender may read it.
type CredentialError struct {
	Reason string
	// Guess is that they may have been guessed. It is not when they were right once, or somebody else's.
	Guess bool
}

func (w *CredentialError) Error() string { return "authn: " + w.Reason }

func guess(reason string) error { return &CredentialError{Reason: reason, Guess: true} }

// bearer is where tokens are.
var bearer = Place{Header: "Authorization", Scheme: "Bearer"}

func stale(format string, args ...any) error {
	return &CredentialError{Reason: fmt.Sprintf(format, args...)}
}

// Rejection is the response to a request that is not authenticated.
type Rejection struct {
	Status     int      // 401, 429 or 503
	Challenges []string // one WWW-Authenticate each, if it is 401
	Detail     string   // in words
	RetryAfter time.Duration
	Limit      int64 // of a 429: how many wrong credentials may come at once
}

// account is one entry of a file.
type account struct {
	identity Identity
	expires  time.Time // zero: never
	disabled bool
}

// usable tells why credentials that are right are of no use, or nil.
func (a *account) usable(what string, now time.Time) error {
	switch {
	case a.disabled:
		return stale("%s is switched off: ask who gave it to you", what)
	case !a.expires.IsZero() && !now.Before(a.expires):
		return stale("%s expired at %s: ask for another", what, a.expires.UTC().Format(time.RFC3339))
	}
	return nil
}
