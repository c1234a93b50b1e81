package ruletest

import (
	"math"

	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// expect reads allow, deny, refuse, unlimited or {allow: n, deny: m}.
func (d *decoder) expect(e *Expect, n *strictyaml.Node) {
	e.At = d.at(n)
	if n.Kind != strictyaml.Mapping {
		word, ok := d.OneOf(n, "expect", kindNames[Allow:]...)
		if ok {
			e.Kind = Allow + Kind(word)
		}
		return
	}
	fields := strictyaml.Fields[Expect]{
		"allow": func(e *Expect, n *strictyaml.Node) { e.Allowed = d.number(n, "expect: allow") },
		"deny":  func(e *Expect, n *strictyaml.Node) { e.Denied = d.number(n, "expect: deny") },
	}
	moved := map[string]string{
		"refuse":    "requests that are refused are all refused: write expect: refuse",
		"unlimited": "requests that no rule limits all pass: write expect: unlimited",
	}
	sound := d.Count()
	strictyaml.Decode(&d.Decoder, n, "expect", fields, moved, e)
	if d.Count() == sound && e.Allowed+e.Denied == 0 {
		d.Fault(n, "expect: nothing is counted: write how many are allowed and how many denied, {allow: 2, deny: 1}")
	}
}

func (d *decoder) number(n *strictyaml.Node, what string) int {
	value, _ := d.Int(n, what, 0, maxTimes)
	return int(value)
}

// remaining reads a number, or numbers by rule.
func (d *decoder) remaining(n *strictyaml.Node) *Number {
	r := &Number{At: d.at(n)}
	if n.Kind != strictyaml.Mapping {
		r.N, _ = d.Int(n, "remaining", 0, math.MaxInt64)
		return r
	}
	r.ByRule = []RuleNumber{}
	for _, f := range n.Fields {
		value, _ := d.Int(f.Value, "remaining: "+f.Key.Text, 0, math.MaxInt64)
		r.ByRule = append(r.ByRule, RuleNumber{d.at(f.Key), f.Key.Text, value})
	}
	return r
}

// expectations finds what contradicts itself: no request could fulfil it.
func (d *decoder) expectations(n *strictyaml.Node, q *requestDraft) {
	e := &q.Expect
	counted := e.Allowed + e.Denied
	switch {
	case e.Kind != 0 || counted == 0:
	case !q.times && counted <= maxTimes:
		q.Times = counted
	case counted != q.Times:
		d.Fault(n.Field("expect"), "expect: allow %d and deny %d make %d, but times says %d",
			e.Allowed, e.Denied, counted, q.Times)
	}
	if q.Settle != nil {
		return
	}
	mayDeny := e.Kind == Deny || e.Kind == 0
	mayAllow := e.Kind == Allow || e.Kind == 0
	for _, assertion := range []struct {
		key   string
		given bool
		makes bool // sense
		why   string
	}{
		{"rule", e.Rule != nil, mayAllow || mayDeny, "no rule counts such a request"},
		{"remaining", e.Remaining != nil, mayAllow || mayDeny, "no rule counts such a request"},
		{"retry_after", e.RetryAfter != nil, mayDeny, "only a request that is denied is told when to retry"},
		{"delay", e.Delay != nil, mayAllow, "only a request that is allowed waits for its turn"},
		{"shadow", e.Shadow != nil, mayAllow || mayDeny, "no rule counts such a request"},
	} {
		if assertion.given && !assertion.makes {
			d.Fault(n.Field(assertion.key), "%s: cannot hold together with expect: %v: %s", assertion.key, e.Kind, assertion.why)
		}
	}
}
