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

// serveReserve decides as a check does, and gives a token for what was spent.
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

// reserve writes the token for what was spent.
func (c *call) reserve(result *checkResult) {
	if result.status != http.StatusOK {
		c.out = append(c.out, `,"reservation":null,"expires":null`...)
		return
	}
	kept := c.reserved(result)
	kept.expires = time.Now().Add(c.checks[0].ttl).Truncate(time.Millisecond)
	_, _ = rand.Read(kept.id[:]) // never fails
	c.out = append(c.out, `,"reservation":"`...)
	c.out = c.api.tokens.write(c.out, kept)
	c.out = append(c.out, `","expires":"`...)
	c.out = append(kept.expires.UTC().AppendFormat(c.out, time.RFC3339Nano), '"')
}

// fits refuses, before anything is spent, what would not fit in a token.
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
		return &rejection{status: http.StatusBadRequest, detail: "the values that the rules count by are too long for a reservation: " +
			"together they may have about 30 KiB"}
	}
	return nil
}

// reserved lists what was charged. What a rule that fails open granted was charged nowhere.
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

// fixedCost tells that a rule counts requests and not what they cost: the check leaves the cost to rules, and this one
// reads it from nowhere and does not settle.
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
		problem.New(http.StatusGone, "reservation: it has expired, and what it charged stays charged: settle earlier, or reserve with a longer ttl").Write(w)
		return
	case err != nil:
		problem.New(http.StatusBadRequest, "reservation: "+err.Error()+": send what /v1/reserve answered, as it is. "+
			"Without check.secret_file only the process that gave it can settle it").Write(w)
		return
	}
	s, p := a.settle(r.Context(), set.Set, kept, body.actual, now)
	if p != nil {
		p.write(w)
		return
	}
	c.out = s.append(c.out[:0])
	c.send(w, http.StatusOK)
}

// settlement is what became of a settlement.
type settlement struct {
	settled      bool
	forgiven     int64    // not charged, because of the cap on debt
	unknownRules []string // rules that there are no more
	reason       string
}

// skew is by how much the clocks of processes that settle each other's reservations may differ.
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
		s.reason = "there are no such rules any more, or they count in another way, so there is nothing to settle: " + strings.Join(s.unknownRules, ", ")
		return s, nil
	}
	remember := min(kept.expires.Sub(now)+skew, private.MaxSettleMemory)
	var err error
	s.settled, s.forgiven, err = private.SettleOnce(ctx, a.Limiter, string(kept.id[:]), remember, takes)
	switch {
	case err != nil && errors.Is(err, sluice.ErrInvalid):
		return s, &rejection{status: http.StatusInternalServerError, detail: "the service is at fault: " + err.Error()}
	case err != nil:
		return s, &rejection{status: http.StatusServiceUnavailable, detail: fmt.Sprintf("the store does not answer: send it again; "+
			"if it has arrived, that changes nothing (%v)", err)}
	case !s.settled:
		s.reason = "it was settled before: a second time changes nothing"
	case len(s.unknownRules) > 0:
		s.reason = "of some rules there is nothing to settle: there are none such any more, or they count in another way"
	}
	return s, nil
}

// settles returns the takes that settle what was charged by t.
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
		// Another process has decided it and charges the store for it when it can. What it cost beyond that is charged here;
		// what it did not need only the other could give back.
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

// take is what was charged. It is false if the rule is gone, or counts in another way.
func (k *reserved) take(set *rules.Set) (sluice.Take, bool) {
	rule, limits := set.LookupLimits(k.rule, k.key)
	var found *sluice.Limit
	for _, l := range limits {
		if private.ParamsOf(l).Identity() != k.identity {
			continue
		}
		if found == nil || limitDigest(l) == k.limit { // the rule's own if the numbers have changed
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
	b = append(b, `,"gone":[`...)
	for i, name := range s.unknownRules {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, name)
	}
	b = appendString(append(b, `],"why":`...), s.reason)
	return append(b, "}\n"...)
}
