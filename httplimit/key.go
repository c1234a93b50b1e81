package httplimit

import (
	"net/http"
	"strings"

	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/internal/keyenc"
	"github.com/sluiceproject/sluice/internal/pairs"
)

// KeyFunc says whom a request counts against. Requests with equal keys share a bucket, under each rule of the limiter.
//
// An error denies the request: it never passes unlimited. See [ErrorHandler].
//
// A key that callers can choose freely limits nobody: whoever can send a new X-Api-Key each time has a new bucket each
// time. Key by what has been verified, or put a limit by address around it.
//
// Where a request lacks what a key is made of, the functions of this package give it the key that all such requests
// share and that no value can produce. So leaving the header out is no way around a limit.
type KeyFunc func(r *http.Request) (key string, err error)

// ErrAmbiguousKey is wrapped by the error of a request that gives a keyed header, query parameter or cookie more than once, or so
// that applications may read it differently. If the handler reads another value than the one that was counted, the limit is
// bypassed. By default such a request is rejected with 400 Bad Request.
var ErrAmbiguousKey = admission.ErrAmbiguousKey

// Global gives all requests one key, the empty string: a limit for everybody together.
func Global() KeyFunc {
	return func(*http.Request) (string, error) { return "", nil }
}

// ByHeader limits by a request header. Requests without it share a key, one that no value has; an empty value is a
// value. A request that has it on more than one line is refused with [ErrAmbiguousKey]. X_User is not X-User: only the
// name with the same punctuation is read, in any case. For "Host" it is the request's host in lower case.
func ByHeader(name string) KeyFunc {
	name = http.CanonicalHeaderKey(name)
	if name == "" {
		panic("httplimit: ByHeader: the header's name is empty")
	}
	if name == "Host" { // net/http takes it out of the header
		return ByFunc(func(r *http.Request) string { return strings.ToLower(r.Host) })
	}
	return func(r *http.Request) (string, error) {
		switch lines := r.Header[name]; len(lines) {
		case 0:
			return keyenc.Absent, nil
		case 1:
			return keyenc.Value(lines[0]), nil
		default:
			return "", ErrAmbiguousKey
		}
	}
}

// ByCookie limits by a cookie. Requests without it share a key, one that no value has. Spellings that some server takes for
// one value have one key: escapes are decoded, a space is written +, and quotes, spaces and + at the ends are dropped. The
// name is compared without case. A request that gives the cookie more than once, or malformed, is rejected with [ErrAmbiguousKey].
// (Browsers repeat names that were set for several paths: set the cookie for one.)
func ByCookie(name string) KeyFunc {
	if name == "" {
		panic("httplimit: ByCookie: the cookie's name is empty")
	}
	return func(r *http.Request) (string, error) {
		return pairKey(pairs.Cookie(r.Header["Cookie"], name))
	}
}

func pairKey(value string, n pairs.Count) (string, error) {
	switch n {
	case pairs.None:
		return keyenc.Absent, nil
	case pairs.One:
		return keyenc.Value(value), nil
	}
	return "", ErrAmbiguousKey
}

// ByQuery limits by a parameter of the URL's query. Requests without it share a key, one that no value has; an empty
// value is a value. The name is compared without case. A request that gives it more than once, or so that applications may
// read it differently, is rejected with [ErrAmbiguousKey]: malformed, beside a semicolon, or by a name that some take for it.
func ByQuery(name string) KeyFunc {
	return func(r *http.Request) (string, error) {
		return pairKey(pairs.Query(r.URL.RawQuery, name))
	}
}

// ByPathValue limits by a wildcard of the pattern that [http.ServeMux] matched. The middleware has to be inside the
// mux, around a single handler: outside nothing has been matched yet, and all requests share a key. So do requests
// whose wildcard matched nothing.
func ByPathValue(name string) KeyFunc {
	return ByFunc(func(r *http.Request) string { return r.PathValue(name) })
}

// ByBasicAuthUser limits by the user name of HTTP basic authentication. Requests without one share a key. Nobody has
// checked the password yet, so a stranger can spend a user's budget, and choose new names for new budgets: have a
// limit by address as well.
func ByBasicAuthUser() KeyFunc {
	return func(r *http.Request) (string, error) {
		user, _, ok := r.BasicAuth()
		if !ok {
			return keyenc.Absent, nil
		}
		return keyenc.Value(user), nil
	}
}

// ByFunc limits by what f returns: a user that has been authenticated, a tenant, a claim. Requests for which that is
// empty share a key, one that no value has.
func ByFunc(f func(r *http.Request) string) KeyFunc {
	if f == nil {
		panic("httplimit: ByFunc: the function is nil")
	}
	return func(r *http.Request) (string, error) {
		s := f(r)
		if s == "" {
			return keyenc.Absent, nil
		}
		return keyenc.Value(s), nil
	}
}

// Combine limits by several keys at once: by user and route, say. Two requests share a bucket if they agree in all of
// them. Values are never joined by a separator that one of them could contain; see [JoinKey].
func Combine(keys ...KeyFunc) KeyFunc {
	for _, k := range keys {
		if k == nil {
			panic("httplimit: Combine: a key is nil")
		}
	}
	return func(r *http.Request) (string, error) {
		var room [192]byte
		b := keyenc.AppendSeveral(room[:0])
		for _, keyOf := range keys {
			part, err := keyOf(r)
			if err != nil {
				return "", err
			}
			b = keyenc.AppendPart(b, part)
		}
		return string(b), nil
	}
}

// JoinKey is the key that [Combine] makes of these parts, for whoever has to name it elsewhere: in Limiter.Reset, or in a
// handler that limits by what it found in the body. Different parts, or differently many, have different keys.
func JoinKey(parts ...string) string { return keyenc.Join(parts...) }
