package checkapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/private"
)

// authorizeRefund says why a request may not give back what was charged, or nil.
func (a *API) authorizeRefund(r *http.Request) *rejection {
	if a.Refunds == nil {
		return &rejection{status: http.StatusForbidden, detail: "cost: is negative, which gives back what was charged and is switched off here: " +
			"set check.refund_token_file in the configuration, and send Authorization: Bearer TOKEN"}
	}
	if no := a.Refunds(r); no != nil {
		return &rejection{no.Status, "cost: is negative, which gives back what was charged: " + no.Detail, no.Limit, no.RetryAfter}
	}
	return nil
}

// refund gives back what earlier checks charged. It is decided for all limits that apply, or for none.
func (c *call) refund(ctx context.Context, q *check) (checkResult, *rejection) {
	var takes []sluice.Take
	if q.domain != "" {
		for i := range q.descriptors {
			q.descriptors[i].Cost = q.cost
		}
		c.set.MatchDescriptors(q.domain, q.descriptors, &c.decided.Matched)
		takes = c.decided.Matched.Takes
		if len(takes) == 0 {
			return checkResult{status: http.StatusOK, reason: "no rule of the domain limits these descriptors, so there is nothing to give back"}, nil
		}
	} else {
		result, p := c.match(q)
		if p != nil || result.status != 0 {
			return result, p
		}
		takes = c.matched.Takes
	}
	for i := range takes {
		takes[i].Cost = q.cost
		if p := c.refundable(&takes[i]); p != nil {
			return checkResult{}, p
		}
	}
	if cap(c.decisions) < len(takes) {
		c.decisions = make([]sluice.Decision, len(takes))
	}
	result := checkResult{status: http.StatusOK, takes: takes, decisions: c.decisions[:len(takes)]}
	err := private.Refund(ctx, c.api.Limiter, &result.takes, &result.decisions)
	switch {
	case err == nil:
		return result, nil
	case errors.Is(err, sluice.ErrInvalid) || ctx.Err() != nil:
		return result, problemOf(ctx, err)
	}
	return result, &rejection{status: http.StatusServiceUnavailable, detail: fmt.Sprintf("the store does not answer, so that nothing is known to have been "+
		"given back: peek to find out, and send it again (%v)", err)}
}

// refundable says why a limit cannot give back, or nil.
func (c *call) refundable(t *sluice.Take) *rejection {
	why := ""
	switch algorithm := t.EffectiveLimit().Algorithm; {
	case algorithm == sluice.SlidingWindowLog:
		why = "does not know which of its entries is meant"
	case algorithm == sluice.LeakyQueue:
		why = "has promised the places behind"
	case algorithm == sluice.Concurrency:
		why = "counts requests in progress, which end by themselves"
	case t.Rule.Accuracy == sluice.AccuracyLease && private.IsRemote(c.api.Limiter):
		return &rejection{status: http.StatusUnprocessableEntity, detail: fmt.Sprintf("cost: rule %s has accuracy: lease, and what instances have leased "+
			"and not spent must not be given back: nothing was changed. Reserve and settle, or set accuracy: exact", t.Rule.Name)}
	default:
		return nil
	}
	return &rejection{status: http.StatusUnprocessableEntity, detail: fmt.Sprintf("cost: rule %s cannot give back, because a %s %s: nothing was changed. "+
		"Reserve and settle what may have to be given back", t.Rule.Name, t.EffectiveLimit().Algorithm, why)}
}
