package gateway

import (
	"net/http"

	"github.com/sluiceproject/sluice/httplimit"
)

// authenticate finds out whose request it is, and tells the rules.
func (x *Exchange) authenticate(r *http.Request) (*http.Request, *refusal) {
	if x.Route.Authn == nil {
		return r, nil
	}
	id, refused := x.Route.Authn.Admit(r)
	if refused != nil {
		return nil, &refusal{
			status: refused.Status, detail: sentence(refused.Detail), challenges: refused.Challenges, retryAfter: refused.RetryAfter,
		}
	}
	x.identity = id
	ctx := r.Context()
	if len(id.Claims) > 0 {
		ctx = httplimit.WithClaims(ctx, id.Claims)
	}
	if len(id.Attributes) > 0 {
		ctx = httplimit.WithAttributes(ctx, id.Attributes)
	}
	if ctx == r.Context() {
		return r, nil
	}
	return r.WithContext(ctx), nil
}

// sentence has a text begin and end as a sentence does.
func sentence(s string) string {
	if s == "" {
		return s
	}
	if c := s[0]; c >= 'a' && c <= 'z' {
		s = string(c-'a'+'A') + s[1:]
	}
	if s[len(s)-1] != '.' {
		s += "."
	}
	return s
}
