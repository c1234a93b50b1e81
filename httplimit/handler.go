package httplimit

import (
	"net/http"
	"slices"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/internal/quota"
)

// WriteDenial answers a request that a handler has denied itself, because it is limited by something in the body, say. It
// sends what [Middleware] sends on a denial. The decisions are those of the rules: rules[i] gave decisions[i]. If there
// are not as many rules as decisions, as after Allow on a limiter with several, the rules are not named. Of the
// options, [Headers], [ResetAsUnixTime] and [DenialHandler] count.
//
//	d, err := limiter.Allow(ctx, login.User)
//	if err == nil && !d.Allowed {
//		httplimit.WriteDenial(w, r, limiter.Rules(), []sluice.Decision{d})
//		return
//	}
func WriteDenial(w http.ResponseWriter, r *http.Request, rules []*sluice.Rule, decisions []sluice.Decision, opts ...Option) {
	if len(decisions) == 0 {
		panic("httplimit: WriteDenial: there is no decision")
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

// SetQuotaHeaders tells the caller of a request that a handler has allowed itself what quota is left, as [Middleware] does.
// It must be called before the response is written. The arguments are those of [WriteDenial].
func SetQuotaHeaders(w http.ResponseWriter, r *http.Request, rules []*sluice.Rule, decisions []sluice.Decision, opts ...Option) {
	if len(decisions) == 0 {
		panic("httplimit: SetQuotaHeaders: there is no decision")
	}
	c := newConfig(opts)
	c.headers.Set(w.Header(), r, quota.PoliciesOf(rules, decisions), decisions, false)
}
