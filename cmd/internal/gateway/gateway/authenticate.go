package gateway

import (
	"net/http"

	"github.com/sluiceproject/sluice/internal/admission"
)

// authenticate finds out whose request it is, and tells the rules.
func (x *RequestContext) authenticate(r *http.Request) *rejection {
	if x.Route.Authn == nil {
		return nil
	}
	id, refused := x.Route.Authn.Admit(r)
	if refused != nil {
		return &rejection{
			status: refused.Status, detail: toSentence(refused.Detail), challenges: refused.Challenges, retryAfter: refused.RetryAfter,
		}
	}
	x.identity, x.identityForRules = id, admission.Identity{Claims: id.Claims, Attributes: id.Attributes}
	return nil
}

// toSentence gives a text a capital letter and a full stop.
func toSentence(s string) string {
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
