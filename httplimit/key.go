package httplimit

import (
	"net/http"
	"strings"

	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/internal/keyenc"
	"github.com/sluiceproject/sluice/internal/pairs"
)

// KeyFunc returns the key that a request counts against. Requests with equal keys share a bucket under each rule of the
// limiter. A request for which it returns an error is not served, see [ErrorHandler].
//
// A key that clients can choose freely does not limit them: a client that sends a new X-Api-Key with every request gets a
// new bucket every time. Use verified values, or add a limit by address.
//
// If a request lacks the value, the functions of this package return one key for all such requests, which no value can
// produce. Leaving out a header therefore does not bypass a limit.
type KeyFunc func(r *http.Request) (key string, err error)

// ErrAmbiguousKey is wrapped by the error for a request whose key header, query parameter or cookie occurs more than once
// or in a form that applications parse differently. A handler that reads another value than the counted one would let
// clients bypass the limit. By default such a request is rejected with 400 Bad Request.
var ErrAmbiguousKey = admission.ErrAmbiguousKey

// Global returns the same key, the empty string, for all requests: all clients share one bucket.
func Global() KeyFunc {
	return func(*http.Request) (string, error) { return "", nil }
}

// ByHeader limits by a request header. Requests without the header share one key; an empty value is a value. A request
// with more than one line of the header is rejected with [ErrAmbiguousKey]. The name is compared without case, but X_User
// is not X-User. For "Host" the value is the request's host in lower case.
func ByHeader(name string) KeyFunc {
	name = http.CanonicalHeaderKey(name)
	if name == "" {
		panic("httplimit: ByHeader: empty header name")
	}
	if name == "Host" { // net/http removes it from the header
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

// ByCookie limits by a cookie. Requests without the cookie share one key. Values that some servers parse as equal have
// the same key: escapes are decoded, a space is written as +, and quotes, spaces and + at both ends are removed. The name
// is compared without case. A request with a malformed cookie, or with more than one of that name, is rejected with
// [ErrAmbiguousKey]. Browsers send a name more than once if it was set for several paths, so set the cookie for one path.
func ByCookie(name string) KeyFunc {
	if name == "" {
		panic("httplimit: ByCookie: empty cookie name")
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

// ByQuery limits by a query parameter of the URL. Requests without the parameter share one key; an empty value is a value.
// The name is compared without case. A request with more than one such parameter is rejected with [ErrAmbiguousKey], and
// so is one that applications parse differently: malformed, next to a semicolon, or with a name that some treat as equal.
func ByQuery(name string) KeyFunc {
	return func(r *http.Request) (string, error) {
		return pairKey(pairs.Query(r.URL.RawQuery, name))
	}
}

// ByPathValue limits by a wildcard of the pattern that [http.ServeMux] matched. The middleware must wrap a single handler
// inside the mux: outside, no pattern has been matched yet and all requests share one key. Requests whose wildcard is
// empty share one key.
func ByPathValue(name string) KeyFunc {
	return ByFunc(func(r *http.Request) string { return r.PathValue(name) })
}

// ByBasicAuthUser limits by the user name of HTTP basic authentication. Requests without a user name share one key. The
// password has not been verified: an attacker can use up the quota of another user, or send random names to get new
// buckets. Combine it with a limit by address.
func ByBasicAuthUser() KeyFunc {
	return func(r *http.Request) (string, error) {
		user, _, ok := r.BasicAuth()
		if !ok {
			return keyenc.Absent, nil
		}
		return keyenc.Value(user), nil
	}
}

// ByFunc limits by the result of f, such as an authenticated user, a tenant or a claim. Requests for which f returns the
// empty string share one key, which no value can produce. It panics if f is nil.
func ByFunc(f func(r *http.Request) string) KeyFunc {
	if f == nil {
		panic("httplimit: ByFunc: nil function")
	}
	return func(r *http.Request) (string, error) {
		s := f(r)
		if s == "" {
			return keyenc.Absent, nil
		}
		return keyenc.Value(s), nil
	}
}

// Combine limits by several keys together, such as user and route. Requests share a bucket if all their keys are equal.
// The combined key is unambiguous whatever the keys contain; see [JoinKey]. It panics if a key is nil.
func Combine(keys ...KeyFunc) KeyFunc {
	for _, k := range keys {
		if k == nil {
			panic("httplimit: Combine: nil KeyFunc")
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

// JoinKey returns the key that [Combine] builds from these parts, for use with Limiter.Reset or in a handler that limits
// by a value of the body. Different lists of parts have different keys.
func JoinKey(parts ...string) string { return keyenc.Join(parts...) }
