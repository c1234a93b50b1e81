package httplimit

import (
	"context"
	"net/http"

	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/rules"
)

// NewRulesRequest returns the [rules.Request] of an HTTP request, as [RulesMiddleware] uses it, to match or explain a
// request without the middleware. It panics if an argument is nil.
//
//   - The path is the URL's, by which [http.ServeMux] routes, not RequestURI: handlers use the URL, also if other
//     middleware has changed it. A path with a semicolon is rejected ([rules.ErrAmbiguousPath]), because Go's handlers
//     treat the rest of the segment as part of the name and other applications as parameters, which rules do not see.
//   - A header is ambiguous if it has several lines, or a line under a name that some applications treat as equal, such
//     as X_User for X-User. "Host" is the request's host in lower case.
//   - A query parameter is ambiguous if it occurs several times, or in a form that applications parse differently:
//     malformed, next to a semicolon, or with a name that some treat as equal. Names are compared without case.
//   - A cookie is ambiguous if it occurs several times or in a form that servers parse differently. Its value is
//     normalized: escapes are decoded, a space is written as +, and quotes, spaces and + at both ends are removed.
//   - Claims are set with [ContextWithClaims], attributes with [ContextWithAttributes].
//   - The client's address is found as by [ByIP], configured by the set's ClientIP.
func NewRulesRequest(r *http.Request, set *rules.Set) rules.Request {
	switch {
	case r == nil:
		panic("httplimit: NewRulesRequest: nil request")
	case set == nil:
		panic("httplimit: NewRulesRequest: nil set: check the error of rules.New")
	}
	return admission.NewRulesRequest(r, set)
}

// ContextWithClaims returns a context with the claims of a token, which rules refer to as "claim:sub". Rules trust the
// claims, so the token must have been verified. The claims replace those of ctx, and the map must not be changed
// afterwards. Set them in middleware around [RulesMiddleware].
func ContextWithClaims(ctx context.Context, claims map[string]string) context.Context {
	return admission.ContextWithClaims(ctx, claims)
}

// ContextWithAttributes returns a context with attributes that the program sets, which rules refer to as "attr:region".
// The values are added to those of ctx and replace values of the same name. The map must not be changed afterwards. Set
// them in middleware around [RulesMiddleware].
func ContextWithAttributes(ctx context.Context, values map[string]string) context.Context {
	return admission.ContextWithAttributes(ctx, values)
}
