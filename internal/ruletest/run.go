package ruletest

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

// Result is how a test went.
type Result struct {
	Test     *Test
	Requests int           // how many were sent
	Virtual  time.Duration // how far the test's clock went
	Elapsed  time.Duration // how long that took
	Failures []Failure
}

// Passed tells that nothing failed.
func (r *Result) Passed() bool { return len(r.Failures) == 0 }

// Failure is one expectation that was not met.
type Failure struct {
	At        rules.Position
	Request   string // what was sent, and when
	Field     string // of the test file: "expect", "remaining"
	Want, Got string
	Why       []string // what the rules made of the request
}

// storeBytes is more than a test's keys can fill: as many as there are sends, and most tests have one.
const storeBytes = 256 << 20

// Run runs the tests whose names are wanted. An error means that a test could not be run, not that it failed.
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
	limiter *sluice.Limiter
	now     time.Time

	flights     []flight
	matched     rules.Matched
	descriptors rules.MatchedDescriptors
	decisions   []sluice.Decision
}

func (f *File) runTest(ctx context.Context, t *Test) (Result, error) {
	began := time.Now()
	result := Result{Test: t}
	r := &runner{set: f.Set, now: f.Start, matched: rules.Matched{Flight: true}}
	store, err := memstore.Open(memstore.Config{Bytes: storeBytes, Now: func() time.Time { return r.now }})
	if err != nil {
		return result, err
	}
	if r.limiter, err = sluice.NewRules(store, nil); err != nil {
		return result, err
	}
	for i := range t.Requests {
		q := &t.Requests[i]
		if err := r.land(ctx, f.Start.Add(q.Offset)); err != nil {
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

// outcome is what became of a request. It is good until the next one.
type outcome struct {
	kind      Kind
	why       string // for Refuse and Unlimited
	takes     []sluice.Take
	names     []string // names[i] is what a rule file calls the limit of takes[i], if not as the take does
	decisions []sluice.Decision
}

// request sends a request as often as it says and compares.
func (r *runner) request(ctx context.Context, q *Request) ([]Failure, error) {
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
			last, err = r.descriptor(ctx, q.Descriptors)
		}
		if err != nil {
			return nil, err
		}
		counts[last.kind]++
		if q.Expect.Kind != 0 && last.kind != q.Expect.Kind && failed == nil {
			failed = []Failure{r.wrongKind(q, i, &last)}
		}
	}
	if failed != nil { // what else is said of the request would only fail for the same reason
		return failed, nil
	}
	if e := &q.Expect; e.Kind == 0 && (counts[Allow] != e.Allowed || counts[Deny] != e.Denied) {
		return []Failure{r.wrongCounts(q, &counts, &last)}, nil
	}
	return r.assert(q, &last), nil
}

// http sends one HTTP request the way a server's middleware does.
func (r *runner) http(ctx context.Context, sent *http.Request, q *Request) (outcome, error) {
	m := &r.matched
	if err := r.set.Match(httplimit.RequestOf(sent, r.set), m); err != nil {
		return outcome{kind: Refuse, why: plainError(err)}, nil
	}
	switch {
	case m.Verdict == rules.Refused && m.Rule != nil:
		return outcome{kind: Refuse, why: fmt.Sprintf("rule %s: %s", m.Rule.Name, m.Why)}, nil
	case m.Verdict == rules.Refused:
		return outcome{kind: Refuse, why: m.Why}, nil
	case m.Verdict == rules.Exempt:
		return outcome{kind: Unlimited, why: "it is on the allow list"}, nil
	case m.Verdict == rules.Unlimited:
		return outcome{kind: Unlimited, why: "no rule matches it"}, nil
	case len(m.Takes) == 0:
		return outcome{kind: Unlimited, why: "the rules that match it have no limit for it"}, nil
	}
	o, err := r.decide(ctx, m.Takes)
	if err != nil || o.kind == Deny {
		return o, err
	}
	if err := r.fly(ctx, m.Takes, o.decisions, q.Takes); err != nil {
		return o, err
	}
	return o, r.settle(ctx, m, o.decisions, q)
}

// descriptor sends one request to an Envoy domain.
func (r *runner) descriptor(ctx context.Context, d *Descriptors) (outcome, error) {
	m := &r.descriptors
	r.set.MatchDescriptors(d.Domain, d.Each, m)
	switch {
	case !m.Known:
		return outcome{kind: Unlimited, why: fmt.Sprintf("there is no domain %q", d.Domain)}, nil
	case len(m.Takes) == 0:
		return outcome{kind: Unlimited, why: "the domain has no limit for it"}, nil
	}
	o, err := r.decide(ctx, m.Takes)
	o.names = make([]string, len(m.Takes))
	for _, each := range m.Each {
		for i := range each.N {
			o.names[each.First+i] = each.Limit.Name
		}
	}
	return o, err
}

func (r *runner) decide(ctx context.Context, takes []sluice.Take) (outcome, error) {
	if len(r.decisions) < len(takes) {
		r.decisions = make([]sluice.Decision, len(takes))
	}
	allowed, err := r.limiter.Decide(ctx, takes, r.decisions)
	o := outcome{kind: Deny, takes: takes, decisions: r.decisions[:len(takes)]}
	if allowed {
		o.kind = Allow
	}
	tellFlight(takes, o.decisions)
	return o, err
}

// settle changes what was charged to what the answer costs, as middleware does when the handler has answered.
func (r *runner) settle(ctx context.Context, m *rules.Matched, ds []sluice.Decision, q *Request) error {
	var due []sluice.Take
	for i, t := range m.Takes {
		rule, granted := m.Rules[i], ds[i].Granted
		cost := granted
		switch {
		case len(rule.ChargeStatus) > 0 && !rule.ChargeStatus.Has(q.Status):
			cost = 0
		case rule.Settle != nil && q.Settled != nil:
			cost = *q.Settled
		case rule.Settle != nil && rule.Settle.Default != nil:
			cost = *rule.Settle.Default
		}
		slot := t.Effective().Algorithm == sluice.Concurrency
		if granted > 0 && cost != granted && !slot {
			t.Cost, t.At, t.MaxDelay = cost-granted, ds[i].At, 0
			due = append(due, t)
		}
	}
	if len(due) == 0 {
		return nil
	}
	return r.limiter.Settle(ctx, due)
}
