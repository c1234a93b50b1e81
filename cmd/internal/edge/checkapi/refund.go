package checkapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/private"
)

// authorizeRefund returns a rejection unless the request is authorized for refunds.
func (a *API) authorizeRefund(r *http.Request) *rejection {
	if a.Refunds == nil {
		return &rejection{status: http.StatusForbidden, detail: "cost: a negative cost is a refund, and refunds are disabled: " +
			"set check_api.refund_token_file in the configuration, and send Authorization: Bearer TOKEN"}
	}
	if no := a.Refunds(r); no != nil {
		return &rejection{no.Status, "cost: a negative cost is a refund: " + no.Detail, no.Limit, no.RetryAfter}
	}
	return nil
}

// refund refunds the cost of earlier checks, for all limits that apply or for none.
func (c *call) refund(ctx context.Context, q *check) (checkResult, *rejection) {
	var takes []sluice.Take
	if q.domain != "" {
		for i := range q.descriptors {
			q.descriptors[i].Cost = q.cost
		}
		c.set.MatchDescriptors(q.domain, q.descriptors, &c.decided.Matched)
		takes = c.decided.Matched.Takes
		if len(takes) == 0 {
			return checkResult{status: http.StatusOK, reason: "no rule of the domain limits these descriptors, so nothing is refunded"}, nil
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
	return result, &rejection{status: http.StatusServiceUnavailable, detail: fmt.Sprintf("store unavailable, the refund is not confirmed: "+
		"check with peek whether it was made, and send it again if not (%v)", err)}
}

// refundable returns a rejection if a limit does not support refunds.
func (c *call) refundable(t *sluice.Take) *rejection {
	why := ""
	switch algorithm := t.EffectiveLimit().Algorithm; {
	case algorithm == sluice.SlidingWindowLog:
		why = "cannot select the entries to refund"
	case algorithm == sluice.LeakyQueue:
		why = "has already scheduled later requests"
	case algorithm == sluice.Concurrency:
		why = "counts requests in flight, whose permits are released when they end"
	case t.Rule.Accuracy == sluice.AccuracyLease && private.IsRemote(c.api.Limiter):
		return &rejection{status: http.StatusUnprocessableEntity, detail: fmt.Sprintf("cost: rule %s has accuracy: lease, which does not support refunds, because the "+
			"store cannot distinguish leased from used quota: nothing was changed. Reserve and settle, or set accuracy: exact", t.Rule.Name)}
	default:
		return nil
	}
	return &rejection{status: http.StatusUnprocessableEntity, detail: fmt.Sprintf("cost: rule %s does not support refunds, because a %s %s: nothing was changed. "+
		"Reserve and settle instead", t.Rule.Name, t.EffectiveLimit().Algorithm, why)}
}
