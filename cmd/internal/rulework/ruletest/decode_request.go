package ruletest

import (
	"maps"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/sample"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/internal/suggest"
	"github.com/sluiceproject/sluice/rules"
)

// requestDraft is a request while its keys are read, in any order.
type requestDraft struct {
	Request
	http  *sample.HTTP // also filled without the key request, so that the other keys can be checked
	hits  int64
	times bool // given
}

// onlyHTTP and onlyDescriptor are the keys that need request or descriptor.
var (
	onlyHTTP       = []string{"headers", "cookies", "claims", "attributes", "ip", "status", "actual_cost", "duration"}
	onlyDescriptor = []string{"hits"}
)

// request reads a request and adds it to the test.
func (d *decoder) request(n *strictyaml.Node, t *Test) {
	q := requestDraft{Request: Request{At: d.at(n), Times: 1, Status: 200}, http: &sample.HTTP{}, hits: 1}
	q.Expect.At = q.At
	sound := strictyaml.Decode(&d.Decoder, n, "requests", d.requestFields(), misplaced, &q)
	if n.Kind != strictyaml.Mapping {
		return
	}
	d.requestKind(n, &q)
	d.reservation(n, &q)
	if sound && n.Field("expect") == nil && n.Field("settle") == nil {
		d.Fault(n, "requests: an entry has no expect: write expect: allow, deny, reject or unlimited, or the numbers, "+
			"{allow: 2, deny: 1}")
	}
	d.expectations(n, &q)
	if len(t.Requests) > 0 && q.Offset < t.Requests[len(t.Requests)-1].Offset {
		before := t.Requests[len(t.Requests)-1].Offset
		d.Fault(atOr(n, "at"), "at: %s is before the request above, at %s: put requests in the order of their times",
			term.Duration(q.Offset), term.Duration(before))
	}
	d.requests++
	d.sends += q.Times
	switch {
	case d.requests == maxRequests+1:
		d.Fault(n, "the file has more than %d requests: split it", maxRequests)
	case d.sends > maxSends && d.sends-q.Times <= maxSends:
		d.Fault(n, "the file sends more than %d requests, times included: split it", maxSends)
	}
	t.Requests = append(t.Requests, q.Request)
}

// atOr returns the value of a key, or the mapping if it has none.
func atOr(n *strictyaml.Node, key string) *strictyaml.Node {
	if value := n.Field(key); value != nil {
		return value
	}
	return n
}

// requestKind determines whether it is an HTTP request or one to a domain.
func (d *decoder) requestKind(n *strictyaml.Node, q *requestDraft) {
	send, descriptor := n.Field("request"), n.Field("descriptor")
	wrong := onlyDescriptor
	switch {
	case n.Field("settle") != nil:
		d.onlySettles(n)
		return
	case send != nil && descriptor != nil:
		d.Fault(descriptor, "requests: an entry has either request or descriptor: write two entries")
		return
	case send != nil:
		q.HTTP = q.http
		if _, err := q.HTTP.Request(); err != nil && q.http.Method != "" {
			d.Fault(send, "request: %v", err)
		}
	case descriptor != nil:
		wrong = onlyHTTP
		if q.Descriptors != nil {
			for i := range q.Descriptors.Each {
				q.Descriptors.Each[i].Cost = q.hits
			}
		}
	default:
		d.Fault(n, "requests: an entry sends nothing: write request: POST /posts, or descriptor: {domain: auth, entries: {auth_type: login}}, "+
			"or settle: {a: 10} for the actual cost of a reservation")
		return
	}
	for _, key := range wrong {
		if value := n.Field(key); value != nil && send != nil {
			d.Fault(value, "%s: needs descriptor: the rules determine the cost of an HTTP request", key)
		} else if value != nil {
			d.Fault(value, "%s: needs request: a descriptor has only domain and entries", key)
		}
	}
}

// withSettle are the keys that can be combined with settle, and notReserved those that cannot be combined with reserve.
var (
	withSettle  = []string{"at", "settle", "rule", "remaining", "forgiven"}
	notReserved = []string{"status", "actual_cost", "duration", "times", "hits"}
)

// onlySettles reports keys that cannot be combined with settle.
func (d *decoder) onlySettles(n *strictyaml.Node) {
	for _, f := range n.Fields {
		if !slices.Contains(withSettle, f.Key.Text) {
			d.Fault(f.Key, "%s: cannot be combined with settle: write two entries", f.Key.Text)
		}
	}
}

// reservation checks the keys of reservations.
func (d *decoder) reservation(n *strictyaml.Node, q *requestDraft) {
	reserve, as := n.Field("reserve"), n.Field("as")
	switch {
	case n.Field("settle") != nil:
		return
	case n.Field("forgiven") != nil:
		d.Fault(n.Field("forgiven"), "forgiven: needs settle")
	case reserve != nil && as == nil:
		d.Fault(reserve, "reserve: the reservation has no name: add one, such as as: a")
	case reserve == nil && as != nil:
		d.Fault(as, "as: needs reserve: add reserve: 5")
	}
	if reserve == nil || as == nil {
		return
	}
	for _, key := range notReserved {
		if value := n.Field(key); value != nil {
			d.Fault(value, "%s: cannot be combined with reserve: write the actual cost as settle: {%s: 10}", key, q.As)
		}
	}
	if line, taken := d.reserved[q.As]; taken {
		d.Fault(as, "as: the reservation at line %d has the same name %q: rename one", line, q.As)
	}
	d.reserved[q.As] = as.Line
}

// settle reads {a: 10, b: 0}.
func (d *decoder) settle(n *strictyaml.Node) []Actual {
	all := []Actual{}
	if !d.IsMapping(n, "settle") {
		return all
	}
	if len(n.Fields) == 0 && n.Whole() {
		d.Fault(n, "settle: is empty: write the actual cost of a reservation, {a: 10}")
	}
	for _, f := range n.Fields {
		name := f.Key.Text
		if _, known := d.reserved[name]; !known {
			msg := ""
			if best := suggest.Closest(name, slices.Sorted(maps.Keys(d.reserved))); best != "" {
				msg = ": did you mean " + strictyaml.Quote(best) + "?"
			}
			d.Fault(f.Key, "settle: no request above is reserved as %s%s", strictyaml.Quote(name), msg)
		}
		cost, _ := d.Int(f.Value, "settle: "+name, 0, sluice.MaxCost)
		all = append(all, Actual{d.at(f.Key), name, cost})
	}
	return all
}

type requestFields = strictyaml.Fields[requestDraft]

func (d *decoder) requestFields() requestFields {
	return requestFields{
		"at":         func(q *requestDraft, n *strictyaml.Node) { q.Offset, _ = d.duration(n, "at") },
		"request":    func(q *requestDraft, n *strictyaml.Node) { d.send(q, n) },
		"descriptor": func(q *requestDraft, n *strictyaml.Node) { q.Descriptors = d.descriptor(n) },
		"headers": func(q *requestDraft, n *strictyaml.Node) {
			d.pairs(n, "headers", func(key, value *strictyaml.Node) error { return q.http.AddHeader(key.Text, value.Text) })
		},
		"cookies": func(q *requestDraft, n *strictyaml.Node) {
			d.pairs(n, "cookies", func(key, value *strictyaml.Node) error { return q.http.AddCookie(key.Text, value.Text) })
		},
		"claims":     func(q *requestDraft, n *strictyaml.Node) { q.http.Claims = d.texts(n, "claims") },
		"attributes": func(q *requestDraft, n *strictyaml.Node) { q.http.Attributes = d.texts(n, "attributes") },
		"ip":         func(q *requestDraft, n *strictyaml.Node) { q.http.Addr = d.addr(n) },
		"status": func(q *requestDraft, n *strictyaml.Node) {
			status, ok := d.Int(n, "status", 200, 599)
			if ok {
				q.Status = int(status)
			}
		},
		"actual_cost": func(q *requestDraft, n *strictyaml.Node) {
			if amount, ok := d.Int(n, "actual_cost", 0, sluice.MaxCost); ok {
				q.ActualCost = &amount
			}
		},
		"reserve": func(q *requestDraft, n *strictyaml.Node) { q.Reserve, _ = d.Int(n, "reserve", 1, sluice.MaxCost) },
		"as":      func(q *requestDraft, n *strictyaml.Node) { q.As, _ = d.String(n, "as") },
		"settle":  func(q *requestDraft, n *strictyaml.Node) { q.Settle = d.settle(n) },
		"forgiven": func(q *requestDraft, n *strictyaml.Node) {
			q.Expect.Forgiven = &Number{At: d.at(n)}
			q.Expect.Forgiven.N, _ = d.Int(n, "forgiven", 0, math.MaxInt64)
		},
		"duration": func(q *requestDraft, n *strictyaml.Node) { q.Duration, _ = d.duration(n, "duration") },
		"hits":     func(q *requestDraft, n *strictyaml.Node) { q.hits, _ = d.Int(n, "hits", 1, sluice.MaxCost) },
		"times": func(q *requestDraft, n *strictyaml.Node) {
			times, ok := d.Int(n, "times", 1, maxTimes)
			if q.times = true; ok {
				q.Times = int(times)
			}
		},
		"expect":      func(q *requestDraft, n *strictyaml.Node) { d.expect(&q.Expect, n) },
		"rule":        func(q *requestDraft, n *strictyaml.Node) { q.Expect.Rule = d.text(n, "rule") },
		"shadow":      func(q *requestDraft, n *strictyaml.Node) { q.Expect.Shadow = d.text(n, "shadow") },
		"remaining":   func(q *requestDraft, n *strictyaml.Node) { q.Expect.Remaining = d.remaining(n) },
		"retry_after": func(q *requestDraft, n *strictyaml.Node) { q.Expect.RetryAfter = d.durationAt(n, "retry_after") },
		"delay":       func(q *requestDraft, n *strictyaml.Node) { q.Expect.Delay = d.durationAt(n, "delay") },
	}
}

// send reads method and path, and keeps the values of other keys.
func (d *decoder) send(q *requestDraft, n *strictyaml.Node) {
	text, ok := d.String(n, "request")
	if !ok {
		return
	}
	parsed, err := sample.ParseSend(text)
	if err != nil {
		d.Fault(n, "request: %v", err)
		return
	}
	q.http.Method, q.http.Target = parsed.Method, parsed.Target
	if parsed.Host != "" {
		q.http.Host = parsed.Host
	}
}

// pairs reads a mapping of texts; a list repeats its key.
func (d *decoder) pairs(n *strictyaml.Node, what string, add func(key, value *strictyaml.Node) error) {
	if !d.IsMapping(n, what) {
		return
	}
	for _, f := range n.Fields {
		list := []*strictyaml.Node{f.Value}
		if f.Value.Kind == strictyaml.Sequence {
			list = f.Value.Items
		}
		for _, item := range list {
			if item.Kind != strictyaml.Scalar {
				d.Fault(item, "%s: %s is %s: write a value, '' if it is empty", what, f.Key.Text, item)
			} else if err := add(f.Key, item); err != nil {
				d.Fault(item, "%s: %v", what, err)
			}
		}
	}
}

func (d *decoder) texts(n *strictyaml.Node, what string) map[string]string {
	all := make(map[string]string)
	if !d.IsMapping(n, what) {
		return all
	}
	for _, f := range n.Fields {
		if f.Value.Kind != strictyaml.Scalar {
			d.Fault(f.Value, "%s: %s is %s: write a value, '' if it is empty", what, f.Key.Text, f.Value)
		}
		all[f.Key.Text] = f.Value.Text
	}
	return all
}

func (d *decoder) addr(n *strictyaml.Node) netip.Addr {
	a, err := netip.ParseAddr(n.Text)
	if err != nil || n.Kind != strictyaml.Scalar {
		d.Fault(n, "ip: is %s: write an address, such as 192.0.2.1 or 2001:db8::1", n)
	}
	return a
}

// descriptor reads {domain: auth, entries: {auth_type: login}}; a list of mappings is several descriptors.
func (d *decoder) descriptor(n *strictyaml.Node) *sample.Descriptors {
	all := &sample.Descriptors{}
	fields := strictyaml.Fields[sample.Descriptors]{
		"domain": func(all *sample.Descriptors, n *strictyaml.Node) { all.Domain, _ = d.String(n, "domain") },
		"entries": func(all *sample.Descriptors, n *strictyaml.Node) {
			list := []*strictyaml.Node{n}
			if n.Kind == strictyaml.Sequence {
				list = n.Items
			}
			if len(list) == 0 {
				d.Fault(n, "entries: the list is empty: write the entries of a descriptor, {auth_type: login}")
			}
			for _, item := range list {
				var one rules.Descriptor
				d.pairs(item, "entries", func(key, value *strictyaml.Node) error {
					one.Entries = append(one.Entries, rules.Entry{Key: key.Text, Value: value.Text})
					return nil
				})
				all.Each = append(all.Each, one)
			}
		},
	}
	moved := map[string]string{"hits": "move it next to descriptor"}
	if !strictyaml.Decode(&d.Decoder, n, "descriptor", fields, moved, all) {
		return all
	}
	if n.Field("domain") == nil || n.Field("entries") == nil {
		d.Fault(n, "descriptor: write both domain and entries: {domain: auth, entries: {auth_type: login}}")
	}
	return all
}

// duration reads a duration that may be zero.
func (d *decoder) duration(n *strictyaml.Node, what string) (time.Duration, bool) {
	const most = 10 * 366 * 24 * time.Hour // longer than the memory of any limit
	if n.Kind == strictyaml.Scalar && n.Text == "0" {
		return 0, true
	}
	value, ok := d.DurationOrZero(n, what)
	if ok && value > most {
		d.Fault(n, "%s: is %s: write at most 3660d", what, n)
		return 0, false
	}
	return value, ok
}

func (d *decoder) durationAt(n *strictyaml.Node, what string) *Duration {
	value, _ := d.duration(n, what)
	return &Duration{d.at(n), value}
}

func (d *decoder) text(n *strictyaml.Node, what string) *Text {
	s, _ := d.String(n, what)
	return &Text{d.at(n), s}
}
