package httplimit

import (
	"net/http"
	"slices"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/internal/quota"
)

// WriteDenial writes the response to a request that the handler itself has denied, for example by a value in the body.
// The response is the same as that of [Middleware]. decisions[i] is the decision of rules[i]. If their numbers differ,
// as after Allow on a limiter with several rules, the response names no rules. Only the options [Headers],
// [ResetAsUnixTime] and [DenialHandler] have an effect. It panics if there are no decisions.
//
//	d, err := limiter.Allow(ctx, login.User)
//	if err == nil && !d.Allowed {
//		httplimit.WriteDenial(w, r, limiter.Rules(), []sluice.Decision{d})
//		return
//	}
func WriteDenial(w http.ResponseWriter, r *http.Request, rules []*sluice.Rule, decisions []sluice.Decision, opts ...Option) {
	if len(decisions) == 0 {
		panic("httplimit: WriteDenial: no decisions")
	}
	c := newConfig(opts)
	ps := quota.PoliciesOf(rules, decisions)
	c.headers.Set(w.Header(), r, ps, decisions, true)
	if c.onDenied == nil {
		admission.WriteDenial(w, r, rules, ps, decisions)
		return
	}
	d := quota.DenialOf(slices.Clone(rules), slices.Clone(decisions))
	c.onDenied(w, r, (*Denial)(&d))
}

// SetQuotaHeaders sets the quota headers of a request that the handler itself has allowed, as [Middleware] does. It must
// be called before the response is written. The arguments are those of [WriteDenial].
func SetQuotaHeaders(w http.ResponseWriter, r *http.Request, rules []*sluice.Rule, decisions []sluice.Decision, opts ...Option) {
	if len(decisions) == 0 {
		panic("httplimit: SetQuotaHeaders: no decisions")
	}
	c := newConfig(opts)
	c.headers.Set(w.Header(), r, quota.PoliciesOf(rules, decisions), decisions, false)
}
