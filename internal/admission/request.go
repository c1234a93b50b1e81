package admission

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/clientip"
	"github.com/sluiceproject/sluice/internal/match"
	"github.com/sluiceproject/sluice/internal/pairs"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/internal/quota"
	"github.com/sluiceproject/sluice/rules"
)

// Identity is the authenticated identity of a client.
type Identity struct {
	Claims     map[string]string // claims of a verified token
	Attributes map[string]string // attributes that the program sets
}

// NewRulesRequest returns the [rules.Request] of an HTTP request.
func NewRulesRequest(r *http.Request, set *rules.Set) rules.Request {
	return &ruleRequest{http: r, ip: ClientIP(set)}
}

// ruleRequest is the [rules.Request] of an HTTP request.
type ruleRequest struct {
	http *http.Request
	who  *Identity // nil: from the request's context
	ip   *clientip.Finder
}

var _ rules.Request = (*ruleRequest)(nil)

// ClientIP returns the Finder that the set configures. Errors of the configuration have been reported by rules.New.
func ClientIP(set *rules.Set) *clientip.Finder {
	c := &set.Config().ClientIP
	return clientip.New(clientip.Config{Header: c.Header, Hops: c.ProxyHops, Proxies: c.TrustedProxies})
}

// Addr returns the client's address.
func (q *ruleRequest) Addr() netip.Addr { return q.ip.Addr(q.http) }

// Attribute returns the value of a field.
func (q *ruleRequest) Attribute(f *rules.Field) (string, rules.Presence) {
	r := q.http
	switch f.Kind {
	case rules.FieldMethod:
		return cmp.Or(r.Method, http.MethodGet), rules.Present // empty means GET in client requests
	case rules.FieldHost:
		return r.Host, presentIf(r.Host != "")
	case rules.FieldPath:
		return requestPath(r), rules.Present
	case rules.FieldHeader:
		return headerValue(r, f)
	case rules.FieldQuery:
		value, n := pairs.Query(r.URL.RawQuery, f.Name)
		return value, rules.Presence(n) // Absent, Present, Ambiguous
	case rules.FieldCookie:
		value, n := pairs.Cookie(r.Header["Cookie"], f.Name)
		return value, rules.Presence(n)
	case rules.FieldBasicUser:
		if len(r.Header["Authorization"]) > 1 {
			return "", rules.Ambiguous
		}
		if user, _, ok := r.BasicAuth(); ok {
			return user, rules.Present
		}
	case rules.FieldClaim:
		value, ok := q.claims()[f.Name]
		return value, presentIf(ok)
	case rules.FieldAttr:
		value, ok := q.attributes()[f.Name]
		return value, presentIf(ok)
	}
	return "", rules.Absent
}

func presentIf(ok bool) rules.Presence {
	if ok {
		return rules.Present
	}
	return rules.Absent
}

// requestPath returns the path as ServeMux and handlers see it, with the escapes that were sent if they are known.
//
// A URL has the decoded path in Path and, if the default encoding of Path differs from the path that was sent, the original
// in RawPath. SentPath returns RawPath if it decodes to Path, and otherwise encodes Path. So an escaped slash stays escaped,
// and if other middleware has changed Path but not RawPath, rules see the path that is served. RequestURI has neither
// property: it may be in absolute form, and middleware does not change it.
func requestPath(r *http.Request) string {
	path := match.SentPath(r.URL)
	switch {
	case path == "": // "GET http://example.com HTTP/1.1", and CONNECT: ServeMux serves the root
		return "/"
	case strings.IndexByte(path, ';') >= 0:
		// Rules remove parameters: /users/;1/posts counts as /users/posts, and /a;b.json as /a. The handler gets the path
		// as it was sent, so that a client could reach a handler for /users/{id}/posts or *.json and bypass its limit. Rules
		// reject an escaped semicolon, and must reject this one too.
		return strings.ReplaceAll(path, ";", "%3B")
	}
	return path
}

func headerValue(r *http.Request, f *rules.Field) (string, rules.Presence) {
	if f.Name == "Host" { // net/http removes it from the header and rejects a second one
		return strings.ToLower(r.Host), presentIf(r.Host != "")
	}
	for _, variant := range f.Variants {
		if len(r.Header[variant]) > 0 {
			return "", rules.Ambiguous
		}
	}
	switch lines := r.Header[f.Name]; len(lines) {
	case 0:
		return "", rules.Absent
	case 1:
		return lines[0], rules.Present
	default:
		return "", rules.Ambiguous
	}
}

type (
	claimsKey     struct{}
	attributesKey struct{}
)

func (q *ruleRequest) claims() map[string]string {
	if q.who != nil {
		return q.who.Claims
	}
	claims, _ := q.http.Context().Value(claimsKey{}).(map[string]string)
	return claims
}

func (q *ruleRequest) attributes() map[string]string {
	if q.who != nil {
		return q.who.Attributes
	}
	return attributesOf(q.http.Context())
}

func attributesOf(ctx context.Context) map[string]string {
	values, _ := ctx.Value(attributesKey{}).(map[string]string)
	return values
}

// ContextWithClaims returns a context with the claims. They replace those of ctx.
func ContextWithClaims(ctx context.Context, claims map[string]string) context.Context {
	return context.WithValue(ctx, claimsKey{}, claims)
}

// ContextWithAttributes returns a context with the attributes. They are added to those of ctx and replace values of the
// same name.
func ContextWithAttributes(ctx context.Context, values map[string]string) context.Context {
	if before := attributesOf(ctx); len(before) > 0 {
		both := maps.Clone(before)
		maps.Copy(both, values)
		values = both
	}
	return context.WithValue(ctx, attributesKey{}, values)
}

// matchedRequest is a request with its matching rules and decisions. It is pooled: the keys of takes are in a buffer of
// matched, and nothing of it may be used after recycle.
type matchedRequest struct {
	of        *ruleSet
	request   ruleRequest
	matched   rules.MatchResult
	decisions []sluice.Decision
	quota.List
	delayed       delayedRequest
	mayBeRefunded func(i int) bool // mayRefund
}

// prepare allocates the decisions and returns the policies of the takes. If settles is true, it marks the takes that may be
// settled when the request is done.
func (m *matchedRequest) prepare(settles bool) *quota.Policies {
	takes := m.matched.Takes
	for i := range takes {
		takes[i].Settles = settles && m.mayRefund(i) && takes[i].EffectiveLimit().Algorithm != sluice.Concurrency
	}
	if cap(m.decisions) < len(takes) {
		m.decisions = make([]sluice.Decision, len(takes))
	}
	m.decisions = m.decisions[:len(takes)]
	return m.List.Of(&m.of.policies, takes)
}

// mayRefund reports whether a take may be refunded when the request is done.
func (m *matchedRequest) mayRefund(i int) bool {
	rule := m.matched.Rules[i]
	return len(rule.ChargeStatus) > 0 || rule.ActualCost != nil
}

// charges returns the takes that may have to be settled, with copies of their keys, or nil if there are none.
func (m *matchedRequest) charges(limiter *sluice.Limiter, set func() *rules.Set) *statusCharges {
	var c *statusCharges
	for i := range m.matched.Takes {
		rule := m.matched.Rules[i]
		permit := m.matched.Takes[i].EffectiveLimit().Algorithm == sluice.Concurrency // released when the request is done
		if permit || len(rule.ChargeStatus) == 0 && rule.ActualCost == nil {
			continue
		}
		t, charged := m.matched.Takes[i].Settlement(&m.decisions[i], 0)
		if !charged && (rule.ActualCost == nil || !rule.ActualCost.StripHeader) {
			continue
		}
		if c == nil {
			c = &statusCharges{refundable: refundable{limiter: limiter}, set: set}
		}
		read := -1
		if rule.ActualCost != nil { // strip_header applies even if nothing was charged
			if c.reader == nil {
				c.reader = &costReader{client: m.request.Addr()}
			}
			read = len(c.reader.sources)
			c.reader.want(rule.ActualCost)
		}
		if !charged {
			continue
		}
		t.Key = strings.Clone(t.Key)
		c.takes, c.rules, c.reads = append(c.takes, t), append(c.rules, rule), append(c.reads, read)
	}
	return c
}

// keepsOrder reports whether the rule of take i queues requests and keeps the order of each key.
func (m *matchedRequest) keepsOrder(i int) bool {
	rule := m.matched.Rules[i]
	return rule.OnLimit == rules.OnLimitQueue && rule.Queue.Ordered && !m.List.Rules[i].Shadow
}

// chargedOnArrival reports whether the rule of take i charges a queued request when it arrives and not when it is
// delivered: the rule does not queue requests and also charges denied ones.
func (m *matchedRequest) chargedOnArrival(i int) bool {
	return m.matched.Takes[i].Rule.ChargeDenied && m.matched.Rules[i].OnLimit != rules.OnLimitQueue
}

// chargeOnce changes the takes of an attempt to deliver a queued request. Rules that charged the request on arrival are only
// peeked at, and the rule that queued it charges its delivery but no denied attempt.
func (m *matchedRequest) chargeOnce(l *delayQueues) {
	for i := range m.matched.Takes {
		switch t := &m.matched.Takes[i]; {
		case m.chargedOnArrival(i):
			t.Cost = 0
		case t.Rule.ChargeDenied:
			l.withoutCharge(t)
		}
	}
}

// QueueTarget describes how to queue a request.
type QueueTarget struct {
	Rule       string             // the rule that queues the request
	Key        string             // its key under that rule
	Options    rules.QueueOptions // options of that rule, with defaults filled in
	RetryAfter time.Duration      // time until the request may be allowed
	Denied     []string           // names of the policies that denied it; empty if it only waits behind others of its key
	Charges    []rules.Charge     // charges of all rules that apply to it, for Try.Stored
}

// queueTarget returns how to queue a denied request, or nil if it must be denied.
func (m *matchedRequest) queueTarget() *QueueTarget {
	by := -1
	for i := range m.decisions {
		rule, d := m.matched.Rules[i], &m.decisions[i]
		if !d.Allowed && (rule.OnLimit != rules.OnLimitQueue || isFinal(d)) {
			return nil
		}
		switch {
		case m.keepsOrder(i) && (by < 0 || !m.matched.Rules[by].Queue.Ordered):
			by = i
		case !d.Allowed && by < 0:
			by = i
		}
	}
	if by < 0 {
		return nil
	}
	rule := m.matched.Rules[by]
	return &QueueTarget{
		Rule: rule.Name, Key: strings.Clone(m.matched.Takes[by].Key), Options: rule.Queue.WithDefaults(),
		RetryAfter: m.decisions[sluice.MostRestrictive(m.decisions)].RetryAfter, Charges: m.matched.Charges(),
	}
}

// isFinal reports whether a denial is neither delayed nor queued: the cost exceeds the limit, an operator has blocked the key, or
// the rule fails closed.
func isFinal(d *sluice.Decision) bool {
	return d.ExceedsLimit || d.Blocked || d.Source == sluice.SourceFailClosed
}

// refundPlace refunds an allowed request that must be queued behind others.
func (m *matchedRequest) refundPlace(ctx context.Context, limiter *sluice.Limiter) {
	for i := range m.decisions {
		if m.chargedOnArrival(i) {
			m.decisions[i].Granted = 0 // not refunded
		}
	}
	back := newRefundable(limiter, m.matched.Takes, m.decisions)
	back.refund(ctx)
	for i := range m.decisions { // headers contain the quota after the refund
		d := &m.decisions[i]
		d.Remaining = min(d.Limit, d.Remaining+d.Granted)
	}
}

// recycle returns the match to the pool.
func (m *matchedRequest) recycle() {
	m.matched.Clear()
	m.request.http, m.request.who, m.delayed.request = nil, nil, nil
	m.of.matches.Put(m)
}

func isAnyDelayed(l *sluice.Limiter, takes []sluice.Take) bool {
	for i := range takes {
		if isDelayed(l, &takes[i]) {
			return true
		}
	}
	return false
}

// isDelayed reports whether a take has a delay queue.
func isDelayed(l *sluice.Limiter, t *sluice.Take) bool {
	if t.Rule.Shadow || t.Cost <= 0 {
		return false
	}
	limit := t.EffectiveLimit()
	switch limit.Algorithm {
	case sluice.LeakyQueue:
	case sluice.TokenBucket, sluice.LeakyBucket:
		if t.MaxDelay <= 0 {
			return false
		}
	default:
		return false
	}
	return t.Cost <= limit.Max() && !private.IsSuspended(l, t.Rule.Name)
}

// hasConcurrencyLimit reports whether a take has a concurrency limit.
func hasConcurrencyLimit(takes []sluice.Take) bool {
	for i := range takes {
		if takes[i].EffectiveLimit().Algorithm == sluice.Concurrency {
			return true
		}
	}
	return false
}
