package admission

import (
	"net/http"
	"sync"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/internal/quota"
)

// Keyed admits requests by a key, under all rules of a limiter.
type Keyed struct {
	config       Config
	limiter      *sluice.Limiter
	rules        []*sluice.Rule
	policies     *quota.Policies
	limitPerKey  bool // the limiter chooses limits by key
	mayDelay     bool // requests may have to wait
	holdsPermits bool // requests hold permits
	delays       delayQueues
	scratch      sync.Pool // *scratch
}

type scratch struct {
	of        *Keyed
	takes     []sluice.Take
	decisions []sluice.Decision
	delayed   delayedRequest
}

// NewKeyed returns a Keyed for a limiter with rules.
func NewKeyed(limiter *sluice.Limiter, c Config) *Keyed {
	k := &Keyed{config: c, limiter: limiter, rules: limiter.Rules(), limitPerKey: private.HasLimitFor(limiter)}
	k.policies = quota.NewPolicies(k.rules)
	for _, rule := range k.rules {
		k.mayDelay = k.mayDelay || rule.Limit.Algorithm == sluice.LeakyQueue
		k.holdsPermits = k.holdsPermits || rule.Limit.Algorithm == sluice.Concurrency
	}
	k.scratch.New = func() any {
		return &scratch{of: k, takes: make([]sluice.Take, len(k.rules)), decisions: make([]sluice.Decision, len(k.rules))}
	}
	return k
}

// Admit decides a request. A limit that is not nil replaces that of the limiter's only rule. For w see [Controller.Admit].
func (k *Keyed) Admit(w http.ResponseWriter, r *http.Request, key string, cost int64, limit *sluice.Limit) (a Admission, err error) {
	if limit == nil && k.limitPerKey { // the headers contain the limit
		limit = k.limiter.Takes(r.Context(), nil, key, cost)[0].Limit
	}
	a.headers, a.reported.policies, a.reported.rules = &k.config.Headers, k.policies, k.rules
	allowed := false
	if len(k.rules) == 1 && limit == nil && !k.holdsPermits && (!k.mayDelay || cost == 0) {
		allowed, err = k.admitOne(r, key, cost, &a)
	} else {
		allowed, err = k.admitSeveral(w, r, key, cost, limit, &a)
	}
	if err != nil {
		return Admission{}, err
	}
	if a.Outcome = Allowed; allowed {
		a.keyed.chargeIf = k.config.ChargeIf
		return a, nil
	}
	all := a.reported.all()
	tightest := sluice.MostRestrictive(all)
	a.Outcome, a.Rule = Denied, k.rules[tightest].Name
	a.RetryAfter, a.ExceedsLimit = all[tightest].RetryAfter, all[tightest].ExceedsLimit
	return a, nil
}

// admitOne decides under a single rule without allocations.
func (k *Keyed) admitOne(r *http.Request, key string, cost int64, a *Admission) (allowed bool, err error) {
	d := &a.reported.one[0]
	switch {
	case cost == 0:
		*d, err = k.limiter.Peek(r.Context(), key)
	case k.config.ChargeIf != nil:
		var res *sluice.Reservation
		if res, err = k.limiter.Reserve(r.Context(), key, cost); err == nil {
			*d, a.keyed.reservation = res.Decision, res
		}
	default:
		*d, err = k.limiter.AllowN(r.Context(), key, cost)
	}
	return cost == 0 || d.Allowed, err
}

// admitSeveral decides under all rules together.
func (k *Keyed) admitSeveral(
	w http.ResponseWriter, r *http.Request, key string, cost int64, limit *sluice.Limit, a *Admission,
) (bool, error) {
	s := k.scratch.Get().(*scratch)
	for i, rule := range k.rules {
		s.takes[i] = sluice.Take{Rule: rule, Limit: limit, Key: key, Cost: cost, Settles: k.config.ChargeIf != nil}
		if s.takes[i].EffectiveLimit().Algorithm == sluice.Concurrency {
			s.takes[i].Cost, s.takes[i].Settles = min(cost, 1), false
		}
	}
	delayed := isAnyDelayed(k.limiter, s.takes)
	allowed, err := k.decide(w, r, s, delayed)
	if err != nil {
		s.recycle()
		return false, err
	}
	a.pooled, a.reported.decisions = s, s.decisions
	if limit != nil {
		a.reported.policies = quota.NewPolicies(k.rules, limit)
	}
	if hasConcurrencyLimit(s.takes) {
		a.permit = holdPermits(k.limiter, s.takes, s.decisions)
	}
	if !allowed {
		a.release(r.Context())
		return false, nil
	}
	if k.config.ChargeIf != nil {
		a.keyed.refundable = newRefundable(k.limiter, s.takes, s.decisions)
	}
	if delayed {
		s.delayed.release()
		a.noteDelay(&s.delayed)
	}
	return true, nil
}

// decide calls the limiter, and delays the request if a rule requires it.
func (k *Keyed) decide(w http.ResponseWriter, r *http.Request, s *scratch, delayed bool) (bool, error) {
	if !delayed {
		return k.limiter.Decide(r.Context(), s.takes, s.decisions)
	}
	p := &s.delayed
	p.config, p.limiter, p.queues, p.request = &k.config, k.limiter, &k.delays, r
	p.takes, p.out, p.settled = s.takes, s.decisions, nil
	if k.config.ChargeIf != nil {
		p.settled = always
	}
	f := shedTicketOf(w)
	f.wait()
	defer f.resume()
	return p.waitAll()
}

func always(int) bool { return true }

// recycle clears the keys and returns the memory to the pool.
func (s *scratch) recycle() {
	clear(s.takes)
	s.delayed.request = nil
	s.of.scratch.Put(s)
}
