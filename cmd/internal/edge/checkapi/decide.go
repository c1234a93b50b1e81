package checkapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/quota"
	"github.com/sluiceproject/sluice/rules"
)

// checkResult is what became of a check. Its slices are the call's, good until the next check is decided.
type checkResult struct {
	status    int    // what the check alone is answered with
	reason    string // empty if limits say it all
	takes     []sluice.Take
	decisions []sluice.Decision // decisions[i] is that of takes[i]
}

// decide decides a check. A problem means that it was not.
func (c *call) decide(ctx context.Context, q *check) (checkResult, *rejection) {
	if q.cost < 0 {
		return c.refund(ctx, q)
	}
	if q.domain != "" {
		return c.decideDescriptors(ctx, q)
	}
	result, p := c.match(q)
	if len(c.matched.Shadowed) > 0 && !q.isPeek() {
		c.api.Limiter.ReportShadowed(ctx, c.matched.Shadowed)
	}
	if p != nil || result.status != 0 {
		return result, p
	}
	takes := c.matched.Takes
	if cap(c.decisions) < len(takes) {
		c.decisions = make([]sluice.Decision, len(takes))
	}
	result = checkResult{takes: takes, decisions: c.decisions[:len(takes)]}
	c.asked = c.asked[:0]
	for i := range takes {
		if q.hasCost {
			takes[i].Cost = q.cost
		}
		takes[i].Settles = c.reserves
		if q.isPeek() {
			c.asked = append(c.asked, takes[i].Cost)
			takes[i].Cost = 0
		}
	}
	allowed, err := c.api.Limiter.Decide(ctx, takes, result.decisions)
	if err != nil {
		return result, problemOf(ctx, err)
	}
	if q.isPeek() {
		allowed = true
		for i := range result.decisions {
			wouldCost(&result.decisions[i], takes[i].Rule, c.asked[i])
			allowed = allowed && result.decisions[i].Allowed
		}
	}
	result.evaluate(allowed)
	return result, nil
}

// isPeek reports whether the check has a cost of 0.
func (q *check) isPeek() bool { return q.peek || q.hasCost && q.cost == 0 }

// match finds the rules of a check with attributes. A verdict with a status is final.
func (c *call) match(q *check) (result checkResult, p *rejection) {
	q.request.findClient(c.set.clients)
	if err := c.set.Match(&q.request, &c.matched); err != nil {
		return result, &rejection{status: http.StatusBadRequest, detail: "attributes: " + matchFault(err)}
	}
	switch {
	case c.matched.Outcome == rules.MatchRejected:
		result = checkResult{status: http.StatusForbidden, reason: c.matched.Reason}
		if rule := c.matched.Rule; rule != nil {
			result.reason = "rule " + rule.Name + ": the request " + result.reason
		}
	case c.matched.Outcome == rules.MatchExempt:
		result = checkResult{status: http.StatusOK, reason: "on the allow list"}
	case c.matched.Outcome == rules.MatchUnlimited:
		result = checkResult{status: http.StatusOK, reason: "no rule matches"}
	case len(c.matched.Takes) == 0:
		result = checkResult{status: http.StatusOK, reason: "no limit applies to its key"}
	}
	return result, nil
}

// matchFault says what is wrong with the attributes, and what to send instead.
func matchFault(err error) string {
	text := err.Error()
	switch {
	case errors.Is(err, rules.ErrAmbiguousPath):
		text += `: send the path as the client did, escaped and without the query, such as "/posts"`
	case errors.Is(err, rules.ErrAmbiguous):
		text += ": reject such requests, or send the value that your application reads"
	case errors.Is(err, rules.ErrInvalidCost):
		text += ": send one, or cost beside the attributes"
	}
	return text
}

// decideDescriptors decides a check of descriptors as Envoy is answered.
func (c *call) decideDescriptors(ctx context.Context, q *check) (result checkResult, p *rejection) {
	cost := int64(1)
	if q.hasCost {
		cost = q.cost
	}
	for i := range q.descriptors {
		q.descriptors[i].Cost = cost
		if q.isPeek() {
			q.descriptors[i].Cost = 0
		}
	}
	c.decided.Settles = c.reserves
	if err := c.api.Descriptors.Decide(ctx, c.set.Set, q.domain, q.descriptors, &c.decided); err != nil {
		return result, problemOf(ctx, err)
	}
	result.takes, result.decisions = c.decided.Matched.Takes, c.decided.Decisions
	if q.isPeek() && cost > 1 {
		for i := range result.decisions {
			wouldCost(&result.decisions[i], result.takes[i].Rule, cost)
		}
		c.api.Descriptors.Overall(q.descriptors, &c.decided)
	}
	switch {
	case !c.decided.Matched.DomainFound:
		return checkResult{status: http.StatusOK, reason: "there is no domain " + strconv.Quote(shown(q.domain)) + ", so nothing limits it"}, nil
	case len(result.takes) == 0:
		return checkResult{status: http.StatusOK, reason: "no rule of the domain limits these descriptors"}, nil
	}
	result.evaluate(!c.decided.OverLimit)
	return result, nil
}

// evaluate says what the decisions mean for the check.
func (result *checkResult) evaluate(allowed bool) {
	result.status = http.StatusOK
	if !allowed {
		d := quota.NewDenial(result.takes, result.decisions)
		result.status, result.reason = d.Status, d.Detail()
	}
}

// wouldCost makes the answer of a take that only looked, which is about one, that of a larger one. When there would be
// room for it is not known: at the latest when nothing is spent any more.
func wouldCost(d *sluice.Decision, r *sluice.Rule, cost int64) {
	if cost <= 1 || !d.Allowed && !d.ShadowDenied || unknown(d) || cost <= d.Remaining {
		return
	}
	d.Delay, d.ExceedsLimit, d.RetryAfter = 0, cost > d.Limit, max(d.RetryAfter, d.ResetAfter)
	if d.ExceedsLimit {
		d.RetryAfter = 0
	}
	d.Allowed, d.ShadowDenied = r.Shadow, r.Shadow
}

// unknown tells that nobody was asked what remains: the store is away and the rule is open or closed, an operator has
// switched it off, or the denial of another rule was remembered.
func unknown(d *sluice.Decision) bool {
	return d.Source >= sluice.SourceFailOpen || d.Source == sluice.SourceDenyCache && d.Allowed
}

// problemOf says why nothing was decided. A store that is away is no reason: rules say what happens then.
func problemOf(ctx context.Context, err error) *rejection {
	switch {
	case ctx.Err() != nil:
		return &rejection{status: http.StatusServiceUnavailable, detail: "the client has left, or its time is over"}
	case errors.Is(err, sluice.ErrInvalid):
		return &rejection{status: http.StatusInternalServerError, detail: "the service is at fault: " + err.Error()}
	}
	return &rejection{status: http.StatusServiceUnavailable, detail: "nothing was decided: " + err.Error()}
}

// maxDelay is how long the caller has to wait. A peek takes no place, and a shadow rule delays no request.
func (result *checkResult) maxDelay() (delay time.Duration) {
	for i := range result.decisions {
		if d := &result.decisions[i]; d.Allowed && !result.takes[i].Rule.Shadow {
			delay = max(delay, d.Delay)
		}
	}
	return delay
}
