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

// Identity is what is known of whom a request is from beside the request itself.
type Identity struct {
	Claims     map[string]string // of a token that was verified
	Attributes map[string]string // that only the program knows
}

// NewRulesRequest shows an HTTP request to a set's rules.
func NewRulesRequest(r *http.Request, set *rules.Set) rules.Request {
	return &ruleRequest{http: r, ip: ClientIP(set)}
}

// ruleRequest is an HTTP request as rules look at it.
type ruleRequest struct {
	http *http.Request
	who  *Identity // nil: the request's context knows
	ip   *clientip.Finder
}

var _ rules.Request = (*ruleRequest)(nil)

// ClientIP finds the clients of requests as the rules configure it. Whatever is wrong with the configuration has been
// reported by rules.New.
func ClientIP(set *rules.Set) *clientip.Finder {
	c := &set.Config().ClientIP
	return clientip.New(clientip.Config{Header: c.Header, Hops: c.ProxyHops, Proxies: c.TrustedProxies})
}

// Addr is the client's address.
func (q *ruleRequest) Addr() netip.Addr { return q.ip.Addr(q.http) }

// Attribute returns what rules ask for.
func (q *ruleRequest) Attribute(f *rules.Field) (string, rules.Presence) {
	r := q.http
	switch f.Kind {
	case rules.FieldMethod:
		return cmp.Or(r.Method, http.MethodGet), rules.Present // empty in requests that are to be sent
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

// requestPath is the path as ServeMux and handlers see it, in the spelling in which it was sent if that is known.
//
// The URL keeps a path decoded in Path and, where the default spelling of that is not what was sent, in RawPath as it
// was. SentPath gives RawPath as long as it still means Path, and otherwise spells Path anew. So an escaped slash is
// still seen as escaped, and when other middleware has changed Path and forgotten RawPath, the path that counts is the
// one that is served. RequestURI has neither property: it may be of the absolute form, and nobody changes it.
func requestPath(r *http.Request) string {
	path := match.SentPath(r.URL)
	switch {
	case path == "": // "GET http://example.com HTTP/1.1", and CONNECT: ServeMux serves the root
		return "/"
	case strings.IndexByte(path, ';') >= 0:
		// Rules cut parameters off: /users/;1/posts counts as /users/posts, and /a;b.json as /a. The handler gets the
		// path as it was sent, and one for /users/{id}/posts or *.json would be reached past its limit. An escaped
		// semicolon is refused by rules, and so should this one be.
		return strings.ReplaceAll(path, ";", "%3B")
	}
	return path
}

func headerValue(r *http.Request, f *rules.Field) (string, rules.Presence) {
	if f.Name == "Host" { // net/http takes it out of the header, and refuses a second one
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

// ContextWithClaims tells rules the claims of a request with the context. They replace those that the context had.
func ContextWithClaims(ctx context.Context, claims map[string]string) context.Context {
	return context.WithValue(ctx, claimsKey{}, claims)
}

// ContextWithAttributes tells rules attributes of a request with the context. They are added to those that the context
// has; of two values for one name the later counts.
func ContextWithAttributes(ctx context.Context, values map[string]string) context.Context {
	if before := attributesOf(ctx); len(before) > 0 {
		both := maps.Clone(before)
		maps.Copy(both, values)
		values = both
	}
	return context.WithValue(ctx, attributesKey{}, values)
}

// matchedRequest is a request beside its rules, and what was decided. Matches are reused: the keys of takes are in a buffer of
// Matched, and nothing of a match may be used after it was recycled.
type matchedRequest struct {
	of        *ruleSet
	request   ruleRequest
	matched   rules.MatchResult
	decisions []sluice.Decision
	quota.List
	delayed       delayedRequest
	mayBeRefunded func(i int) bool // mayRefund
}

// prepare makes room for the decisions and lists the policies that the takes are about. It marks the takes that are
// settled when the request is done, if any are.
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

// mayRefund reports whether a take may be given back when the request is done.
func (m *matchedRequest) mayRefund(i int) bool {
	rule := m.matched.Rules[i]
	return len(rule.ChargeStatus) > 0 || rule.ActualCost != nil
}

// charges remembers the takes that may have to be changed, with keys of its own; it is nil if there are none.
func (m *matchedRequest) charges(limiter *sluice.Limiter, set func() *rules.Set) *statusCharges {
	var c *statusCharges
	for i := range m.matched.Takes {
		rule := m.matched.Rules[i]
		slot := m.matched.Takes[i].EffectiveLimit().Algorithm == sluice.Concurrency // is given back when the request is done
		if slot || len(rule.ChargeStatus) == 0 && rule.ActualCost == nil {
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
		if rule.ActualCost != nil { // what is hidden is so whoever decided
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

// keepsOrder reports whether a take's rule queues requests and keeps the order of its keys.
func (m *matchedRequest) keepsOrder(i int) bool {
	rule := m.matched.Rules[i]
	return rule.OnLimit == rules.OnLimitQueue && rule.Queue.Ordered && !m.List.Rules[i].Shadow
}

// chargedOnArrival reports whether a queued request is charged by a take's rule when it comes, and not when it is
// delivered: the rule had room for it then, and charges denied requests too.
func (m *matchedRequest) chargedOnArrival(i int) bool {
	return m.matched.Takes[i].Rule.ChargeDenied && m.matched.Rules[i].OnLimit != rules.OnLimitQueue
}

// chargeOnce changes the takes of a queued request that is tried again. Rules that charged it when it came are only looked
// at, and one that queues it charges its delivery but no attempt that finds no room.
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

// QueueTarget says how a request that is over a limit is kept for later.
type QueueTarget struct {
	Rule       string             // the rule that keeps it
	Key        string             // whom it counts for under that rule
	Options    rules.QueueOptions // of that rule, with the defaults written out
	RetryAfter time.Duration      // when there may be room for it
	Denied     []string           // policies that denied it, as callers know them; none if it only waits behind others
	Charges    []rules.Charge     // of all rules that apply to it, for Try.Stored
}

// queueTarget says how a denied request is kept; nil if it is not.
func (m *matchedRequest) queueTarget() *QueueTarget {
	by := -1
	for i := range m.decisions {
		rule, d := m.matched.Rules[i], &m.decisions[i]
		if !d.Allowed && (rule.OnLimit != rules.OnLimitQueue || d.ExceedsLimit || d.Source == sluice.SourceFailClosed) {
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

// refundPlace gives back what a request was charged that has to stand in line.
func (m *matchedRequest) refundPlace(ctx context.Context, limiter *sluice.Limiter) {
	for i := range m.decisions {
		if m.chargedOnArrival(i) {
			m.decisions[i].Granted = 0 // it stays charged
		}
	}
	back := newRefundable(limiter, m.matched.Takes, m.decisions)
	back.refund(ctx)
	for i := range m.decisions { // headers are about what is left now
		d := &m.decisions[i]
		d.Remaining = min(d.Limit, d.Remaining+d.Granted)
	}
}

// recycle returns the match for another request to use.
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

// isDelayed reports whether a request has to stand in line for a take.
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

// hasConcurrencyLimit reports whether a limit on what is in flight is among those of the takes.
func hasConcurrencyLimit(takes []sluice.Take) bool {
	for i := range takes {
		if takes[i].EffectiveLimit().Algorithm == sluice.Concurrency {
			return true
		}
	}
	return false
}
