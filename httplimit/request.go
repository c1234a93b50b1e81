package httplimit

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
	"strings"

	"github.com/sluiceproject/sluice/internal/clientip"
	"github.com/sluiceproject/sluice/internal/pairs"
	"github.com/sluiceproject/sluice/rules"
)

// RequestOf shows an HTTP request to a set's rules, as [Rules] does. It is for whoever matches requests without the
// middleware, or wants a request explained.
//
//   - The path is that of the URL as [http.ServeMux] routes by it, not RequestURI: handlers go by the URL, also where
//     middleware around this one has changed it. A path with a semicolon is refused ([rules.ErrPath]): Go's handlers
//     take what follows for part of the name and other applications for parameters, which rules do not see.
//   - A header that is on several lines is ambiguous, and so is one that has a line under a name which some
//     applications take for the same, X_User for X-User. "Host" is the request's host in lower case.
//   - A query parameter that is given several times is ambiguous, and so is one that applications may read differently:
//     malformed, behind or before a semicolon, or by a name that some take for another. Names are compared without case.
//   - A cookie that is given several times is ambiguous, and so is one that servers may read differently. Its value is what
//     they have in common: escapes are decoded, a space is written +, and quotes, spaces and + at the ends are dropped.
//   - Claims are those of [WithClaims], and attributes of the program those of [WithAttributes].
//   - The client's address is found as [ByIP] finds it, by the set's ClientIP.
func RequestOf(r *http.Request, set *rules.Set) rules.Request {
	switch {
	case r == nil:
		panic("httplimit: RequestOf: the request is nil")
	case set == nil:
		panic("httplimit: RequestOf: the set is nil: check the error of rules.New")
	}
	return &ruleRequest{http: r, ip: clientIP(set)}
}

// ruleRequest is an HTTP request as rules look at it.
type ruleRequest struct {
	http *http.Request
	ip   *clientip.Finder
}

var _ rules.Request = (*ruleRequest)(nil)

// clientIP is the address finder of ByIP as rules configure it. Whatever is wrong with the configuration has been
// reported by rules.New.
func clientIP(set *rules.Set) *clientip.Finder {
	c := &set.Config().ClientIP
	return clientip.New(clientip.Config{Header: c.Header, Hops: c.Hops, Proxies: c.TrustedProxies})
}

// Addr is the client's address.
func (q *ruleRequest) Addr() netip.Addr { return q.ip.Addr(q.http) }

// Attribute returns what rules ask for.
func (q *ruleRequest) Attribute(f *rules.Field) (string, rules.Found) {
	r := q.http
	switch f.Kind {
	case rules.Method:
		return cmp.Or(r.Method, http.MethodGet), rules.Present // empty in requests that are to be sent
	case rules.Host:
		return r.Host, presentIf(r.Host != "")
	case rules.Path:
		return requestPath(r), rules.Present
	case rules.Header:
		return headerValue(r, f)
	case rules.Query:
		value, n := pairs.Query(r.URL.RawQuery, f.Name)
		return value, rules.Found(n) // Absent, Present, Ambiguous
	case rules.Cookie:
		value, n := pairs.Cookie(r.Header["Cookie"], f.Name)
		return value, rules.Found(n)
	case rules.BasicUser:
		if len(r.Header["Authorization"]) > 1 {
			return "", rules.Ambiguous
		}
		if user, _, ok := r.BasicAuth(); ok {
			return user, rules.Present
		}
	case rules.Claim:
		claims, _ := r.Context().Value(claimsKey{}).(map[string]string)
		value, ok := claims[f.Name]
		return value, presentIf(ok)
	case rules.Attr:
		outermost, _ := r.Context().Value(attributesKey{}).(*attributes)
		return outermost.value(f.Name)
	}
	return "", rules.Absent
}

func presentIf(ok bool) rules.Found {
	if ok {
		return rules.Present
	}
	return rules.Absent
}

// requestPath is the path as ServeMux and handlers see it, in the spelling in which it was sent if that is known.
//
// The URL keeps a path decoded in Path and, where the default spelling of that is not what was sent, in RawPath as it
// was. SentPath gives RawPath as long as it still means Path, and otherwise spells Path anew. So an escaped slash is
// still seen as escaped, and when other middleware has changed Path and forgotten RawPath, the path that counts is the
// one that is served. RequestURI has neither property: it may be of the absolute form, and nobody changes it.
func requestPath(r *http.Request) string {
	path := rules.SentPath(r.URL)
	switch {
	case path == "": // "GET http://example.com HTTP/1.1", and CONNECT: ServeMux serves the root
		return "/"
	case strings.IndexByte(path, ';') >= 0:
		// Rules cut parameters off: /users/;1/posts counts as /users/posts, and /a;b.json as /a. The handler gets the
		// path as it was sent, and one for /users/{id}/posts or *.json would be reached past its limit. An escaped
		// semicolon is refused by rules, and so should this one be.
		return strings.ReplaceAll(path, ";", "%3B")
	}
	return path
}

func headerValue(r *http.Request, f *rules.Field) (string, rules.Found) {
	if f.Name == "Host" { // net/http takes it out of the header, and refuses a second one
		return strings.ToLower(r.Host), presentIf(r.Host != "")
	}
	for _, variant := range f.Variants {
		if len(r.Header[variant]) > 0 {
			return "", rules.Ambiguous
		}
	}
	switch lines := r.Header[f.Name]; len(lines) {
	case 0:
		return "", rules.Absent
	case 1:
		return lines[0], rules.Present
	default:
		return "", rules.Ambiguous
	}
}

type claimsKey struct{}

// WithClaims tells rules the claims of a token: what "claim:sub" refers to. They are believed, so whoever sets them
// must have verified the token. The claims replace those that the context had, and the map must not be changed
// afterwards. Rules see them if they are set before [Rules]: by middleware around it.
func WithClaims(ctx context.Context, claims map[string]string) context.Context {
	return context.WithValue(ctx, claimsKey{}, claims)
}

type attributesKey struct{}

// attributes are values that a program has set, on top of others that it has set before.
type attributes struct {
	values map[string]string
	before *attributes
}

func (a *attributes) value(name string) (string, rules.Found) {
	for ; a != nil; a = a.before {
		if value, ok := a.values[name]; ok {
			return value, rules.Present
		}
	}
	return "", rules.Absent
}

// WithAttributes tells rules what only the program knows about a request: what "attr:region" refers to. Several
// middlewares may each set theirs; of two values for one name the later counts. The map must not be changed afterwards.
// Rules see the attributes if they are set before [Rules]: by middleware around it.
func WithAttributes(ctx context.Context, values map[string]string) context.Context {
	before, _ := ctx.Value(attributesKey{}).(*attributes)
	return context.WithValue(ctx, attributesKey{}, &attributes{values, before})
}
