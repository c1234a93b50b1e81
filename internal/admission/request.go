package admission

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"net/netip"
	"strings"

	"github.com/sluiceproject/sluice/internal/clientip"
	"github.com/sluiceproject/sluice/internal/match"
	"github.com/sluiceproject/sluice/internal/pairs"
	"github.com/sluiceproject/sluice/rules"
)

// Identity is what is known of whom a request is from beside the request itself.
type Identity struct {
	Claims     map[string]string // of a token that was verified
	Attributes map[string]string // that only the program knows
}

// NewRulesRequest shows an HTTP request to a set's rules.
func NewRulesRequest(r *http.Request, set *rules.Set) rules.Request {
	return &ruleRequest{http: r, ip: ClientIP(set)}
}

// ruleRequest is an HTTP request as rules look at it.
type ruleRequest struct {
	http *http.Request
	who  *Identity // nil: the request's context knows
	ip   *clientip.Finder
}

var _ rules.Request = (*ruleRequest)(nil)

// ClientIP finds the clients of requests as the rules configure it. Whatever is wrong with the configuration has been
// reported by rules.New.
func ClientIP(set *rules.Set) *clientip.Finder {
	c := &set.Config().ClientIP
	return clientip.New(clientip.Config{Header: c.Header, Hops: c.ProxyHops, Proxies: c.TrustedProxies})
}

// Addr is the client's address.
func (q *ruleRequest) Addr() netip.Addr { return q.ip.Addr(q.http) }

// Attribute returns what rules ask for.
func (q *ruleRequest) Attribute(f *rules.Field) (string, rules.Presence) {
	r := q.http
	switch f.Kind {
	case rules.FieldMethod:
		return cmp.Or(r.Method, http.MethodGet), rules.Present // empty in requests that are to be sent
	case rules.FieldHost:
		return r.Host, presentIf(r.Host != "")
	case rules.FieldPath:
		return requestPath(r), rules.Present
	case rules.FieldHeader:
		return headerValue(r, f)
	case rules.FieldQuery:
		value, n := pairs.Query(r.URL.RawQuery, f.Name)
		return value, rules.Presence(n) // Absent, Present, Ambiguous
	case rules.FieldCookie:
		value, n := pairs.Cookie(r.Header["Cookie"], f.Name)
		return value, rules.Presence(n)
	case rules.FieldBasicUser:
		if len(r.Header["Authorization"]) > 1 {
			return "", rules.Ambiguous
		}
		if user, _, ok := r.BasicAuth(); ok {
			return user, rules.Present
		}
	case rules.FieldClaim:
		value, ok := q.claims()[f.Name]
		return value, presentIf(ok)
	case rules.FieldAttr:
		value, ok := q.attributes()[f.Name]
		return value, presentIf(ok)
	}
	return "", rules.Absent
}

func presentIf(ok bool) rules.Presence {
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
	path := match.SentPath(r.URL)
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

func headerValue(r *http.Request, f *rules.Field) (string, rules.Presence) {
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

type (
	claimsKey     struct{}
	attributesKey struct{}
)

func (q *ruleRequest) claims() map[string]string {
	if q.who != nil {
		return q.who.Claims
	}
	claims, _ := q.http.Context().Value(claimsKey{}).(map[string]string)
	return claims
}

func (q *ruleRequest) attributes() map[string]string {
	if q.who != nil {
		return q.who.Attributes
	}
	return attributesOf(q.http.Context())
}

func attributesOf(ctx context.Context) map[string]string {
	values, _ := ctx.Value(attributesKey{}).(map[string]string)
	return values
}

// ContextWithClaims tells rules the claims of a request with the context. They replace those that the context had.
func ContextWithClaims(ctx context.Context, claims map[string]string) context.Context {
	return context.WithValue(ctx, claimsKey{}, claims)
}

// ContextWithAttributes tells rules attributes of a request with the context. They are added to those that the context
// has; of two values for one name the later counts.
func ContextWithAttributes(ctx context.Context, values map[string]string) context.Context {
	if before := attributesOf(ctx); len(before) > 0 {
		both := maps.Clone(before)
		maps.Copy(both, values)
		values = both
	}
	return context.WithValue(ctx, attributesKey{}, values)
}
