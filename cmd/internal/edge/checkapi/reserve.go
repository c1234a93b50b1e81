package checkapi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/internal/problem"
	"github.com/sluiceproject/sluice/rules"
)

// serveReserve decides a check and returns a reservation for its charges.
func (a *API) serveReserve(w http.ResponseWriter, r *http.Request) {
	c := a.begin()
	defer c.recycle()
	p := c.prepare(r, reserveBody)
	if p == nil {
		p = c.fits(&c.checks[0])
	}
	if p != nil {
		p.write(w)
		return
	}
	c.reserves = true
	a.serveOne(w, r, c)
}

// reserve appends the reservation for the charges of result.
func (c *call) reserve(result *checkResult) {
	if result.status != http.StatusOK {
		c.out = append(c.out, `,"reservation":null,"expires_at":null`...)
		return
	}
	kept := c.reserved(result)
	kept.expires = time.Now().Add(c.checks[0].ttl).Truncate(time.Millisecond)
	_, _ = rand.Read(kept.id[:]) // never fails
	c.out = append(c.out, `,"reservation":"`...)
	c.out = c.api.tokens.write(c.out, kept)
	c.out = append(c.out, `","expires_at":"`...)
	c.out = append(kept.expires.UTC().AppendFormat(c.out, time.RFC3339Nano), '"')
}

// fits rejects, before anything is charged, a check whose takes do not fit in a token.
func (c *call) fits(q *check) *rejection {
	var takes []sluice.Take
	if q.domain != "" {
		c.set.MatchDescriptors(q.domain, q.descriptors, &c.decided.Matched)
		takes = c.decided.Matched.Takes
	} else {
		if _, p := c.match(q); p != nil {
			return p
		}
		takes = c.matched.Takes
	}
	if tokenSize(takes) > maxToken || len(takes) > maxTakes {
		bounds.Reservation.Reached()
		return &rejection{status: http.StatusBadRequest, detail: "the keys of the matching rules are too long for a reservation: " +
			"the maximum is about 30 KiB in total"}
	}
	return nil
}

// reserved returns a reservation with the charged takes. Takes that a rule granted by failing open were not charged.
func (c *call) reserved(result *checkResult) *reservation {
	r := &reservation{}
	for i := range result.takes {
		t, d := &result.takes[i], &result.decisions[i]
		if _, ok := t.Settlement(d, 0); !ok {
			continue
		}
		limit := t.EffectiveLimit()
		k := reserved{
			rule: t.Rule.Name, key: t.Key, hashTag: t.HashTag, at: d.Receipt, charged: d.Granted, of: d.Limit,
			identity: private.ParamsOf(limit).Identity(), limit: limitDigest(limit),
			fixed: c.fixedCost(i), marked: t.Settles,
		}
		if d.Source == sluice.SourceFailLocal {
			k.process = c.api.tokens.process
		}
		r.takes = append(r.takes, k)
	}
	return r
}

// fixedCost reports whether a rule counts requests instead of cost: the check sets no cost, and the rule neither reads it
// from an attribute nor has an actual cost.
func (c *call) fixedCost(i int) bool {
	if q := &c.checks[0]; q.hasCost || q.domain != "" {
		return false
	}
	rule := c.matched.Rules[i]
	return rule.Cost.From == nil && rule.ActualCost == nil
}

func (a *API) serveSettle(w http.ResponseWriter, r *http.Request) {
	c := a.begin()
	defer c.recycle()
	if p := c.read(r); p != nil {
		p.write(w)
		return
	}
	body, f := c.parseSettle(c.body)
	if f != nil {
		problem.New(http.StatusBadRequest, f.Error()).Write(w)
		return
	}
	set, p := a.setNow()
	if p != nil {
		p.write(w)
		return
	}
	now := time.Now()
	kept, err := a.tokens.read(body.reservation, now)
	switch {
	case errors.Is(err, errExpired):
		problem.New(http.StatusGone, "reservation expired, its charge is not settled: settle earlier, or reserve with a longer ttl").Write(w)
		return
	case err != nil:
		problem.New(http.StatusBadRequest, "reservation: "+err.Error()+": send the reservation returned by /v1/reserve unchanged. "+
			"Without check_api.reservation_secret_file only the process that created it can settle it").Write(w)
		return
	}
	s, p := a.settle(r.Context(), set.Set, kept, body.actualCost, now)
	if p != nil {
		p.write(w)
		return
	}
	c.out = s.append(c.out[:0])
	c.send(w, http.StatusOK)
}

// settlement is the result of a settlement.
type settlement struct {
	settled      bool
	forgiven     int64    // not charged, because the usage reached its cap
	unknownRules []string // rules that were removed or changed algorithm
	reason       string
}

// skew is the maximum difference between the clocks of instances that settle each other's reservations.
const skew = time.Minute

func (a *API) settle(ctx context.Context, set *rules.Set, kept *reservation, actual int64, now time.Time) (s settlement, p *rejection) {
	var takes []sluice.Take
	for i := range kept.takes {
		k := &kept.takes[i]
		t, ok := k.take(set)
		if !ok {
			s.unknownRules = append(s.unknownRules, k.rule)
			continue
		}
		takes = append(takes, a.settles(k, t, actual)...)
	}
	if len(s.unknownRules) > 0 && len(takes) == 0 {
		s.reason = "not settled, because the rules were removed or changed algorithm: " + strings.Join(s.unknownRules, ", ")
		return s, nil
	}
	remember := min(kept.expires.Sub(now)+skew, private.MaxSettleMemory)
	var err error
	s.settled, s.forgiven, err = private.SettleOnce(ctx, a.Limiter, string(kept.id[:]), remember, takes)
	switch {
	case err != nil && errors.Is(err, sluice.ErrInvalid):
		return s, &rejection{status: http.StatusInternalServerError, detail: "internal error: " + err.Error()}
	case err != nil:
		return s, &rejection{status: http.StatusServiceUnavailable, detail: fmt.Sprintf("store unavailable: send the request again; "+
			"it is settled once even if it has already arrived (%v)", err)}
	case !s.settled:
		s.reason = "already settled: nothing was changed"
	case len(s.unknownRules) > 0:
		s.reason = "some rules are not settled, because they were removed or changed algorithm"
	}
	return s, nil
}

// settles returns the takes that settle the charge of t.
func (a *API) settles(k *reserved, t sluice.Take, actual int64) []sluice.Take {
	if k.fixed && actual > 0 {
		actual = k.charged
	}
	d := sluice.Decision{Granted: k.charged, Receipt: k.at, Limit: k.of}
	switch k.process {
	case 0:
	case a.tokens.process:
		d.Source = sluice.SourceFailLocal
	default:
		// Another process decided during an outage and reports the charge to the store on recovery. A cost above the charge is
		// charged here; only the other process could refund a cost below it.
		if actual <= k.charged {
			return nil
		}
		t.Cost, t.Receipt, t.Settles = actual-k.charged, k.at, false
		return []sluice.Take{t}
	}
	s, ok := t.Settlement(&d, actual)
	if !ok {
		return nil
	}
	return []sluice.Take{s}
}

// take returns the charged take. It returns false if the rule was removed or changed algorithm.
func (k *reserved) take(set *rules.Set) (sluice.Take, bool) {
	rule, limits := set.LookupLimits(k.rule, k.key)
	var found *sluice.Limit
	for _, l := range limits {
		if private.ParamsOf(l).Identity() != k.identity {
			continue
		}
		if found == nil || limitDigest(l) == k.limit { // the first one if the limit was changed
			found = l
		}
	}
	return sluice.Take{Rule: rule, Limit: found, Key: k.key, HashTag: k.hashTag, Settles: k.marked}, found != nil
}

func (s *settlement) append(b []byte) []byte {
	b = append(b, `{"settled":false`...)
	if s.settled {
		b = append(b[:len(b)-len("false")], "true"...)
	}
	b = appendField(b, "forgiven", s.forgiven)
	b = append(b, `,"unknown_rules":[`...)
	for i, name := range s.unknownRules {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, name)
	}
	b = appendString(append(b, `],"reason":`...), s.reason)
	return append(b, "}\n"...)
}
