package ruletest

import (
	"math"

	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// expect reads allow, deny, reject, unlimited or {allow: n, deny: m}.
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
		"reject":    "equal requests are all rejected or none: write expect: reject",
		"unlimited": "equal requests are all unlimited or none: write expect: unlimited",
	}
	sound := d.Count()
	strictyaml.Decode(&d.Decoder, n, "expect", fields, moved, e)
	if d.Count() == sound && e.Allowed+e.Denied == 0 {
		d.Fault(n, "expect: there are no numbers: write the numbers of allowed and denied requests, {allow: 2, deny: 1}")
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

// expectations reports expectations that contradict each other, so that no request could meet them.
func (d *decoder) expectations(n *strictyaml.Node, q *requestDraft) {
	e := &q.Expect
	counted := e.Allowed + e.Denied
	switch {
	case e.Kind != 0 || counted == 0:
	case !q.times && counted <= maxTimes:
		q.Times = counted
	case counted != q.Times:
		d.Fault(n.Field("expect"), "expect: allow %d and deny %d make %d, but times is %d",
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
		valid bool
		why   string
	}{
		{"rule", e.Rule != nil, mayAllow || mayDeny, "no rule counts the request"},
		{"remaining", e.Remaining != nil, mayAllow || mayDeny, "no rule counts the request"},
		{"retry_after", e.RetryAfter != nil, mayDeny, "only a denied request has a retry time"},
		{"delay", e.Delay != nil, mayAllow, "only an allowed request is delayed"},
		{"shadow", e.Shadow != nil, mayAllow || mayDeny, "no rule counts the request"},
	} {
		if assertion.given && !assertion.valid {
			d.Fault(n.Field(assertion.key), "%s: cannot be combined with expect: %v: %s", assertion.key, e.Kind, assertion.why)
		}
	}
}
