package ruletest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

// Result is the result of a test.
type Result struct {
	Test     *Test
	Requests int           // number of sent requests
	Virtual  time.Duration // virtual time
	Elapsed  time.Duration // real time
	Failures []Failure
}

// Passed reports whether no expectation failed.
func (r *Result) Passed() bool { return len(r.Failures) == 0 }

// Failure is one expectation that was not met.
type Failure struct {
	At        rules.Position
	Request   string // the request and its time
	Field     string // key of the test file: "expect", "remaining"
	Want, Got string
	Why       []string // how the rules matched the request
}

// storeBytes is more than a test's keys can fill: one per send at most, and most tests have one.
const storeBytes = 256 << 20

// Run runs the tests for whose names wanted returns true. An error means that a test could not be run, not that it
// failed.
func (f *File) Run(ctx context.Context, wanted func(name string) bool) ([]Result, error) {
	var all []Result
	for i := range f.Tests {
		if !wanted(f.Tests[i].Name) {
			continue
		}
		r, err := f.runTest(ctx, &f.Tests[i])
		if err != nil {
			return all, fmt.Errorf("%v: test %q: %w", f.Tests[i].At, f.Tests[i].Name, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// runner runs one test.
type runner struct {
	set     *rules.Set
	store   *memstore.Store
	limiter *sluice.Limiter
	now     time.Time

	held        []heldRequest
	reserved    map[string][]sluice.Take // takes that settle reservations at 0
	forgiven    int64                    // by settlements so far
	plain       rules.MatchResult        // for reservations, which acquire no permits
	matched     rules.MatchResult
	descriptors rules.DescriptorMatches
	decisions   []sluice.Decision
}

func (f *File) runTest(ctx context.Context, t *Test) (Result, error) {
	began := time.Now()
	result := Result{Test: t}
	r := &runner{set: f.Set, now: f.Start, matched: rules.MatchResult{Concurrency: true}, reserved: make(map[string][]sluice.Take)}
	store, err := memstore.Open(memstore.Config{MaxBytes: storeBytes, Now: func() time.Time { return r.now }})
	if err != nil {
		return result, err
	}
	events := sluice.Events{OnForgiven: func(_ context.Context, _ sluice.Take, n int64) { r.forgiven += n }}
	r.store = store
	if r.limiter, err = sluice.NewWithRules(store, nil, sluice.WithEvents(events)); err != nil {
		return result, err
	}
	for i := range t.Requests {
		q := &t.Requests[i]
		if err := r.advance(ctx, f.Start.Add(q.Offset)); err != nil {
			return result, err
		}
		result.Virtual = q.Offset
		failures, err := r.request(ctx, q)
		if err != nil {
			return result, err
		}
		result.Requests += q.Times
		result.Failures = append(result.Failures, failures...)
	}
	result.Elapsed = time.Since(began)
	return result, nil
}

// outcome is the outcome of a request. It is valid until the next one.
type outcome struct {
	kind      Kind
	why       string // for Reject and Unlimited
	takes     []sluice.Take
	names     []string // names[i] is the name of the limit of takes[i] in a rule file, if it differs
	decisions []sluice.Decision
}

// request sends a request as often as configured and checks the expectations.
func (r *runner) request(ctx context.Context, q *Request) ([]Failure, error) {
	if q.Settle != nil {
		return r.settleReserved(ctx, q)
	}
	var sent *http.Request
	if q.HTTP != nil {
		var err error
		if sent, err = q.HTTP.Request(); err != nil {
			return nil, err
		}
	}
	var failed []Failure
	var last outcome
	var counts [len(kindNames)]int
	for i := range q.Times {
		var err error
		if q.HTTP != nil {
			last, err = r.http(ctx, sent, q)
		} else {
			last, err = r.descriptor(ctx, q)
		}
		if err != nil {
			return nil, err
		}
		counts[last.kind]++
		if q.Expect.Kind != 0 && last.kind != q.Expect.Kind && failed == nil {
			failed = []Failure{r.wrongKind(q, i, &last)}
		}
	}
	if failed != nil { // other expectations would fail for the same reason
		return failed, nil
	}
	if e := &q.Expect; e.Kind == 0 && (counts[Allow] != e.Allowed || counts[Deny] != e.Denied) {
		return []Failure{r.wrongCounts(q, &counts, &last)}, nil
	}
	return r.assert(q, &last), nil
}

// http sends one HTTP request like the middleware of a server.
func (r *runner) http(ctx context.Context, sent *http.Request, q *Request) (outcome, error) {
	m := &r.matched
	if q.Reserve > 0 { // like the check API
		m = &r.plain
	}
	if err := r.set.Match(httplimit.NewRulesRequest(sent, r.set), m); err != nil {
		return outcome{kind: Reject, why: plainError(err)}, nil
	}
	switch {
	case m.Outcome == rules.MatchRejected && m.Rule != nil:
		return outcome{kind: Reject, why: fmt.Sprintf("rule %s: %s", m.Rule.Name, m.Reason)}, nil
	case m.Outcome == rules.MatchRejected:
		return outcome{kind: Reject, why: m.Reason}, nil
	case m.Outcome == rules.MatchExempt:
		return outcome{kind: Unlimited, why: "the request is on the allow list"}, nil
	case m.Outcome == rules.MatchUnlimited:
		return outcome{kind: Unlimited, why: "no rule matches the request"}, nil
	case len(m.Takes) == 0:
		return outcome{kind: Unlimited, why: "the matching rules set no limit for this request"}, nil
	}
	for i := range m.Takes {
		rule := m.Rules[i]
		m.Takes[i].Settles = (len(rule.ChargeStatus) > 0 || rule.ActualCost != nil) && m.Takes[i].EffectiveLimit().Algorithm != sluice.Concurrency
	}
	o, err := r.decide(ctx, m.Takes, q)
	if err != nil || o.kind == Deny || q.Reserve > 0 {
		return o, err
	}
	return o, r.hold(ctx, m, o.decisions, q)
}

// descriptor sends one request to an Envoy domain.
func (r *runner) descriptor(ctx context.Context, q *Request) (outcome, error) {
	m, d := &r.descriptors, q.Descriptors
	r.set.MatchDescriptors(d.Domain, d.Each, m)
	switch {
	case !m.DomainFound:
		return outcome{kind: Unlimited, why: fmt.Sprintf("there is no domain %q", d.Domain)}, nil
	case len(m.Takes) == 0:
		return outcome{kind: Unlimited, why: "the domain has no limit for these descriptors"}, nil
	}
	o, err := r.decide(ctx, m.Takes, q)
	o.names = make([]string, len(m.Takes))
	for _, each := range m.Matches {
		for i := range each.N {
			o.names[each.First+i] = each.Limit.Name
		}
	}
	return o, err
}

func (r *runner) decide(ctx context.Context, takes []sluice.Take, q *Request) (outcome, error) {
	for i := range takes {
		if q.Reserve > 0 {
			takes[i].Cost, takes[i].Settles = q.Reserve, true
		}
	}
	if len(r.decisions) < len(takes) {
		r.decisions = make([]sluice.Decision, len(takes))
	}
	allowed, err := r.limiter.Decide(ctx, takes, r.decisions)
	o := outcome{kind: Deny, takes: takes, decisions: r.decisions[:len(takes)]}
	if allowed {
		o.kind = Allow
	}
	setPermitRetryAfter(takes, o.decisions)
	if q.Reserve > 0 && allowed {
		r.reserve(q.As, &o)
	}
	return o, err
}

// reserve stores the takes of a reservation.
func (r *runner) reserve(name string, o *outcome) {
	for i := range o.takes {
		if t, ok := o.takes[i].Settlement(&o.decisions[i], 0); ok {
			t.Key, t.HashTag = strings.Clone(t.Key), strings.Clone(t.HashTag)
			r.reserved[name] = append(r.reserved[name], t)
		}
	}
}

// settleReserved settles reservations, each only once, and checks the remaining quota under all of their rules.
func (r *runner) settleReserved(ctx context.Context, q *Request) ([]Failure, error) {
	r.forgiven = 0
	o := outcome{kind: Allow}
	for _, s := range q.Settle {
		takes := r.reserved[s.Name]
		for i := range takes {
			o.takes = append(o.takes, sluice.Take{Rule: takes[i].Rule, Limit: takes[i].Limit, Key: takes[i].Key, HashTag: takes[i].HashTag})
			if takes[i].Receipt == 0 {
				continue // already settled
			}
			due := takes[i]
			due.Cost = s.Cost - due.Charged
			if err := r.limiter.Settle(ctx, []sluice.Take{due}); err != nil {
				return nil, err
			}
			takes[i].Receipt = 0
		}
	}
	if len(o.takes) == 0 {
		o.kind, o.why = Unlimited, "nothing was reserved"
	}
	o.decisions = make([]sluice.Decision, len(o.takes))
	if _, err := r.limiter.Decide(ctx, o.takes, o.decisions); err != nil {
		return nil, err
	}
	all := r.assert(q, &o)
	if f := q.Expect.Forgiven; f != nil && f.N != r.forgiven {
		all = append(all, r.fail(q, f.At, "forgiven", fmt.Sprint(f.N), fmt.Sprint(r.forgiven)))
	}
	return all, nil
}

// settlement returns the takes that change the charged cost to that of the response, like middleware after the handler
// has returned.
func settlement(m *rules.MatchResult, ds []sluice.Decision, q *Request) (due []sluice.Take) {
	for i := range m.Takes {
		if m.Takes[i].EffectiveLimit().Algorithm == sluice.Concurrency {
			continue
		}
		rule, cost := m.Rules[i], ds[i].Granted
		switch {
		case len(rule.ChargeStatus) > 0 && !rule.ChargeStatus.Contains(q.Status):
			cost = 0
		case rule.ActualCost != nil && q.ActualCost != nil:
			cost = *q.ActualCost
		case rule.ActualCost != nil && rule.ActualCost.Default != nil:
			cost = *rule.ActualCost.Default
		}
		if t, ok := m.Takes[i].Settlement(&ds[i], cost); ok && t.Cost != 0 {
			t.Key, t.HashTag = strings.Clone(t.Key), strings.Clone(t.HashTag)
			due = append(due, t)
		}
	}
	return due
}
