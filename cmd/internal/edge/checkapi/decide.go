package checkapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/quota"
	"github.com/sluiceproject/sluice/rules"
)

// checkResult is the result of a check. Its slices belong to the call and are valid until the next check is decided.
type checkResult struct {
	status    int    // HTTP status of a response to this check alone
	reason    string // for humans; may be empty
	takes     []sluice.Take
	decisions []sluice.Decision // decisions[i] is that of takes[i]
}

// decide decides a check. It returns a rejection if no decision was possible.
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

// match finds the rules of a check with attributes. A result with a status is final.
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
		result = checkResult{status: http.StatusOK, reason: "no limit applies to the key"}
	}
	return result, nil
}

// matchFault returns the text of an error of Match, with a hint how to fix the attributes.
func matchFault(err error) string {
	text := strings.TrimPrefix(err.Error(), "rules: ")
	switch {
	case errors.Is(err, rules.ErrAmbiguousPath):
		text += `: send the path as the client did, escaped and without the query, such as "/posts"`
	case errors.Is(err, rules.ErrAmbiguous):
		text += ": reject such requests, or send the value that your application reads"
	case errors.Is(err, rules.ErrInvalidCost):
		text += ": send a valid value, or send cost next to the attributes"
	}
	return text
}

// decideDescriptors decides a check with descriptors as the RLS service does.
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
		return checkResult{status: http.StatusOK, reason: "there is no domain " + strconv.Quote(shown(q.domain)) + ", so no limit applies"}, nil
	case len(result.takes) == 0:
		return checkResult{status: http.StatusOK, reason: "no rule of the domain limits these descriptors"}, nil
	}
	result.evaluate(!c.decided.OverLimit)
	return result, nil
}

// evaluate sets the status and the reason from the decisions.
func (result *checkResult) evaluate(allowed bool) {
	result.status = http.StatusOK
	if !allowed {
		d := quota.NewDenial(result.takes, result.decisions)
		result.status, result.reason = d.Status, d.Detail()
	}
}

// wouldCost converts the decision of a peek, which is for a cost of 1, to that for a larger cost. The time until it would be
// allowed is unknown; RetryAfter is the upper bound: the time until the bucket is fully reset.
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

// unknown reports whether the remaining quota is unknown: the store is unavailable and the rule fails open or closed, the
// rule is suspended, or the deny cache decided because of another rule.
func unknown(d *sluice.Decision) bool {
	return d.Source >= sluice.SourceFailOpen || d.Source == sluice.SourceDenyCache && d.Allowed
}

// problemOf returns the response for a check that was not decided. An unavailable store does not cause one: fail modes decide.
func problemOf(ctx context.Context, err error) *rejection {
	switch {
	case ctx.Err() != nil:
		return &rejection{status: http.StatusServiceUnavailable, detail: "request cancelled or timed out"}
	case errors.Is(err, sluice.ErrInvalid):
		return &rejection{status: http.StatusInternalServerError, detail: "internal error: " + err.Error()}
	}
	return &rejection{status: http.StatusServiceUnavailable, detail: "no decision was made: send the request again: " + err.Error()}
}

// maxDelay returns the time to wait before the request proceeds. Rules in shadow mode do not delay.
func (result *checkResult) maxDelay() (delay time.Duration) {
	for i := range result.decisions {
		if d := &result.decisions[i]; d.Allowed && !result.takes[i].Rule.Shadow {
			delay = max(delay, d.Delay)
		}
	}
	return delay
}
