package gateway

import (
	"net/http"

	"github.com/sluiceproject/sluice/internal/admission"
)

// authenticate finds out whose request it is, and tells the rules.
func (x *Exchange) authenticate(r *http.Request) *refusal {
	if x.Route.Authn == nil {
		return nil
	}
	id, refused := x.Route.Authn.Admit(r)
	if refused != nil {
		return &refusal{
			status: refused.Status, detail: sentence(refused.Detail), challenges: refused.Challenges, retryAfter: refused.RetryAfter,
		}
	}
	x.identity, x.who = id, admission.Identity{Claims: id.Claims, Attributes: id.Attributes}
	return nil
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
