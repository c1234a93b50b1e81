package httplimit

import (
	"context"
	"net/http"

	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/rules"
)

// NewRulesRequest shows an HTTP request to a set's rules, as [RulesMiddleware] does. It is for whoever matches requests without the
// middleware, or wants a request explained.
//
//   - The path is that of the URL as [http.ServeMux] routes by it, not RequestURI: handlers go by the URL, also where
//     middleware around this one has changed it. A path with a semicolon is refused ([rules.ErrAmbiguousPath]): Go's handlers
//     take what follows for part of the name and other applications for parameters, which rules do not see.
//   - A header that is on several lines is ambiguous, and so is one that has a line under a name which some
//     applications take for the same, X_User for X-User. "Host" is the request's host in lower case.
//   - A query parameter that is given several times is ambiguous, and so is one that applications may read differently:
//     malformed, behind or before a semicolon, or by a name that some take for another. Names are compared without case.
//   - A cookie that is given several times is ambiguous, and so is one that servers may read differently. Its value is what
//     they have in common: escapes are decoded, a space is written +, and quotes, spaces and + at the ends are dropped.
//   - Claims are those of [ContextWithClaims], and attributes of the program those of [ContextWithAttributes].
//   - The client's address is found as [ByIP] finds it, by the set's ClientIP.
func NewRulesRequest(r *http.Request, set *rules.Set) rules.Request {
	switch {
	case r == nil:
		panic("httplimit: NewRulesRequest: the request is nil")
	case set == nil:
		panic("httplimit: NewRulesRequest: the set is nil: check the error of rules.New")
	}
	return admission.NewRulesRequest(r, set)
}

// ContextWithClaims tells rules the claims of a token: what "claim:sub" refers to. They are believed, so whoever sets them
// must have verified the token. The claims replace those that the context had, and the map must not be changed
// afterwards. Rules see them if they are set before [RulesMiddleware]: by middleware around it.
func ContextWithClaims(ctx context.Context, claims map[string]string) context.Context {
	return admission.ContextWithClaims(ctx, claims)
}

// ContextWithAttributes tells rules what only the program knows about a request: what "attr:region" refers to. Several
// middlewares may each set theirs; of two values for one name the later counts. The map must not be changed afterwards.
// Rules see the attributes if they are set before [RulesMiddleware]: by middleware around it.
func ContextWithAttributes(ctx context.Context, values map[string]string) context.Context {
	return admission.ContextWithAttributes(ctx, values)
}
