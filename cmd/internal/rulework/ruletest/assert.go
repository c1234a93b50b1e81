package ruletest

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/rules"
)

// fail returns a failure with the explanation of the rules.
func (r *runner) fail(q *Request, at rules.Position, field, want, got string) Failure {
	sent := q.describe(secretHeaders(r.set))
	return Failure{At: at, Request: sent, Field: field, Want: want, Got: got, Why: r.explain(q)}
}

func (r *runner) wrongKind(q *Request, i int, o *outcome) Failure {
	got := o.String()
	if q.Times > 1 {
		got = fmt.Sprintf("request %d of %d is %s", i+1, q.Times, got)
	}
	if q.Expect.Kind == Allow && o.kind == Unlimited {
		got += "; if that is meant, write expect: unlimited"
	}
	return r.fail(q, q.Expect.At, "expect", q.Expect.Kind.String(), got)
}

func (r *runner) wrongCounts(q *Request, counts *[len(kindNames)]int, last *outcome) Failure {
	var got []string
	for k := Allow; k <= Unlimited; k++ {
		if counts[k] > 0 {
			got = append(got, fmt.Sprintf("%v %d", k, counts[k]))
		}
	}
	want := fmt.Sprintf("allow %d, deny %d", q.Expect.Allowed, q.Expect.Denied)
	return r.fail(q, q.Expect.At, "expect", want, strings.Join(got, ", ")+"; the last is "+last.String())
}

// assert checks the expectations other than expect for the last of the requests.
func (r *runner) assert(q *Request, o *outcome) []Failure {
	var all []Failure
	e := &q.Expect
	if e.Rule != nil && !o.isBy(e.Rule.Text) {
		all = append(all, r.fail(q, e.Rule.At, "rule", e.Rule.Text, o.String()))
	}
	if e.Shadow != nil && !o.isShadowed(e.Shadow.Text) {
		all = append(all, r.fail(q, e.Shadow.At, "shadow", e.Shadow.Text+" would have denied it", o.shadowed()))
	}
	name := ""
	if e.Rule != nil {
		name = e.Rule.Text
	}
	if n := e.Remaining; n != nil && n.ByRule == nil {
		all = r.remaining(all, q, o, RuleNumber{n.At, name, n.N})
	} else if n != nil {
		for _, each := range n.ByRule {
			all = r.remaining(all, q, o, each)
		}
	}
	if w := e.RetryAfter; w != nil {
		if got, ok := o.retryAfter(name, w.D); !ok {
			all = append(all, r.fail(q, w.At, "retry_after", term.Duration(w.D), got))
		}
	}
	if w := e.Delay; w != nil {
		if got := o.delay(); o.kind != Allow || !near(got, w.D) {
			text := term.Duration(got)
			if o.kind != Allow {
				text = o.String()
			}
			all = append(all, r.fail(q, w.At, "delay", term.Duration(w.D), text))
		}
	}
	return all
}

// retryAfter compares the retry time of a rule, or else the longest of the denying rules.
func (o *outcome) retryAfter(name string, want time.Duration) (got string, ok bool) {
	i := o.tightest(name)
	switch {
	case o.kind != Deny || i < 0:
		return o.String(), false
	case o.decisions[i].ExceedsLimit:
		return "never: the cost exceeds the limit", false
	}
	d := o.decisions[i].RetryAfter
	return term.Duration(d), near(d, want)
}

func (r *runner) remaining(all []Failure, q *Request, o *outcome, want RuleNumber) []Failure {
	i := o.tightest(want.Rule)
	text := fmt.Sprint(want.N)
	if want.Rule != "" {
		text += " of " + want.Rule
	}
	switch {
	case i < 0 && want.Rule != "" && len(o.takes) > 0:
		return append(all, r.fail(q, want.At, "remaining", text, "that rule does not limit the request; "+o.String()))
	case i < 0:
		return append(all, r.fail(q, want.At, "remaining", text, o.String()))
	case o.decisions[i].Remaining != want.N:
		got := fmt.Sprintf("%d of %s", o.decisions[i].Remaining, o.takes[i].Rule.Name)
		return append(all, r.fail(q, want.At, "remaining", text, got))
	}
	return all
}

// near reports whether two durations are equal to the millisecond: refills are exact to the microsecond, and 333.334ms is
// hard to write.
func near(a, b time.Duration) bool { return (a - b).Abs() < time.Millisecond }

// is reports whether name names the take's limit: by the rule's name, by its own, or by that of a descriptor's limit. A
// rule's first limit has the name of the rule, and can also be named as #1.
func (o *outcome) is(i int, name string) bool {
	full := o.takes[i].Rule.Name
	return full == name || strings.HasPrefix(full, name+"#") || full+"#1" == name || o.names != nil && o.names[i] == name
}

// tightest returns the most restrictive decision of a rule, or of all; -1 if there is none.
func (o *outcome) tightest(name string) int {
	best := -1
	for i := range o.takes {
		if name != "" && !o.is(i, name) {
			continue
		}
		if best < 0 || sluice.MostRestrictive([]sluice.Decision{o.decisions[best], o.decisions[i]}) == 1 {
			best = i
		}
	}
	return best
}

// isBy reports whether a rule denied the request or, if none did, whether it is the most restrictive one.
func (o *outcome) isBy(name string) bool {
	i := o.tightest(name)
	if i < 0 {
		return false
	}
	if o.kind == Deny {
		return !o.decisions[i].Allowed
	}
	best := o.tightest("")
	return sluice.MostRestrictive([]sluice.Decision{o.decisions[i], o.decisions[best]}) == 0
}

func (o *outcome) isShadowed(name string) bool {
	for i := range o.takes {
		if o.is(i, name) && o.decisions[i].ShadowDenied {
			return true
		}
	}
	return false
}

// shadowed lists the rules in shadow mode that would have denied the request.
func (o *outcome) shadowed() string {
	var names []string
	for i := range o.takes {
		if o.decisions[i].ShadowDenied {
			names = append(names, o.takes[i].Rule.Name)
		}
	}
	if names == nil {
		return "no shadow rule would have denied it; " + o.String()
	}
	return strings.Join(names, " and ") + " would have denied it"
}

// delay returns the delay of the request; a rule in shadow mode delays no request.
func (o *outcome) delay() time.Duration {
	var d time.Duration
	for i := range o.takes {
		if !o.takes[i].Rule.Shadow && o.decisions[i].Granted > 0 {
			d = max(d, o.decisions[i].Delay)
		}
	}
	return d
}

// String describes the outcome of the request.
func (o *outcome) String() string {
	switch o.kind {
	case Reject:
		return "rejected: " + o.why
	case Unlimited:
		return "unlimited: " + o.why
	case Allow:
		i := o.tightest("")
		s := fmt.Sprintf("allowed: %s", o.state(i))
		if d := o.delay(); d > 0 {
			s += ", after a delay of " + term.Duration(d)
		}
		return s
	}
	var by []string
	for i := range o.takes {
		if d := &o.decisions[i]; !d.Allowed {
			text := fmt.Sprintf("%s, retry after %s", o.state(i), term.Duration(d.RetryAfter))
			if d.ExceedsLimit {
				text = fmt.Sprintf("%s, and the cost of %d exceeds the limit", o.state(i), o.takes[i].Cost)
			}
			by = append(by, text)
		}
	}
	return "denied: " + strings.Join(by, "; ")
}

func (o *outcome) state(i int) string {
	d, name := &o.decisions[i], o.takes[i].Rule.Name
	if o.takes[i].Rule.Shadow { // clients get the state of rules in shadow mode too
		name += " (shadow mode)"
	}
	return fmt.Sprintf("%s has %d of %d left", name, d.Remaining, d.Limit)
}
