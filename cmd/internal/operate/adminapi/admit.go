package adminapi

import (
	"context"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/keyenc"
)

// admit tells why a request may not be made, or nil.
func (a *api) admit(r *http.Request) error {
	if !a.hostKnown(r) {
		return problemf(http.StatusForbidden, "the Host header names nothing of ours: use an address or localhost, or add the name to admin.hosts")
	}
	if changes(r) && !isAPIClient(r) {
		return problemf(http.StatusForbidden, "a web page could have sent this: set Content-Type: application/json, or the header X-Sluice-Admin: 1")
	}
	if a.Token == nil || a.MetricsPublic && r.URL.Path == "/metrics" {
		return nil
	}
	return a.authorize(r)
}

// hostKnown tells whether the Host header is one that our users would send. A web page can have its own name mean this
// listener's address (DNS rebinding), and is then free to read answers; but its name stands in the header.
func (a *api) hostKnown(r *http.Request) bool {
	if _, unix := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr); unix {
		return true // which no browser speaks to
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return strings.EqualFold(host, "localhost") ||
		slices.ContainsFunc(a.Hosts, func(name string) bool { return strings.EqualFold(name, host) })
}

func changes(r *http.Request) bool { return r.Method != http.MethodGet && r.Method != http.MethodHead }

// isAPIClient tells whether a request can only have been made by a program of ours: web pages may neither set such headers
// nor send such a body to other sites, unless we agreed to, and browsers say where a request is from.
func isAPIClient(r *http.Request) bool {
	if http.NewCrossOriginProtection().Check(r) != nil {
		return false
	}
	if r.Header.Get("X-Sluice-Admin") == "1" {
		return true
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}

// authorize wants the token.
func (a *api) authorize(r *http.Request) error {
	if no := a.guard.Authorize(r); no != nil {
		return &apiError{Status: no.Status, Detail: no.Detail, limit: no.Limit, retryAfter: no.RetryAfter}
	}
	return nil
}

// Guard asks callers for a token. An address that shows wrong ones is not listened to for a while, lest they be guessed; the
// token is looked at all the same, so that the time tells nothing.
type Guard struct {
	Token    *Token
	Attempts *sluice.Limiter // how often an address may show a wrong token
	Setting  string          // names the token's file

	attempting sync.Mutex // held from the charge of an attempt to its end
}

// Refusal is why a request is not authorized.
type Refusal struct {
	Status     int    // 401 or 429
	Detail     string // what to do
	Limit      int64  // of a 429: how many wrong tokens may come at once
	RetryAfter time.Duration
}

// Authorize returns why a request is refused, or nil if it shows the token.
func (g *Guard) Authorize(r *http.Request) *Refusal {
	shown, given := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	right := g.Token.is(shown)
	if !given {
		return &Refusal{Status: http.StatusUnauthorized, Detail: "say who you are: Authorization: Bearer TOKEN, with what is in the file " + g.Setting}
	}
	from := attemptKey(r)
	// Each attempt is charged before it is answered, so that many at once are not more, and refunded if it was right. One
	// at a time, so that those who are right never find the limit used up by each other.
	ctx := context.WithoutCancel(r.Context())
	g.attempting.Lock()
	defer g.attempting.Unlock()
	d, err := g.Attempts.Allow(ctx, from)
	switch {
	case err != nil || !d.Allowed:
		bounds.WrongAttempts.Reached()
		return &Refusal{
			Status: http.StatusTooManyRequests, Detail: "too many wrong tokens came from " + from,
			Limit: g.Attempts.Rules()[0].Limit.Max(), RetryAfter: d.RetryAfter,
		}
	case !right:
		return &Refusal{Status: http.StatusUnauthorized, Detail: "the token is wrong: send what is in the file " + g.Setting}
	}
	_ = g.Attempts.Settle(ctx, []sluice.Take{{Rule: g.Attempts.Rules()[0], Key: from, Cost: -1, Receipt: d.Receipt}})
	return nil
}

// attemptKey is who shows a token: an address, as one subscriber has it.
func attemptKey(r *http.Request) string {
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "the socket"
	}
	return string(keyenc.AppendAddr(nil, addr.Addr(), 64))
}

// principal is what the audit calls the caller.
func (a *api) principal(r *http.Request) string {
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		c := r.TLS.VerifiedChains[0][0]
		switch {
		case len(c.URIs) > 0:
			return "certificate " + c.URIs[0].String()
		case len(c.DNSNames) > 0:
			return "certificate " + c.DNSNames[0]
		}
		return "certificate " + c.Subject.CommonName
	}
	if a.Token != nil {
		return "token"
	}
	return from(r)
}

// from is where a request came from.
func from(r *http.Request) string {
	if r.RemoteAddr == "" || r.RemoteAddr == "@" {
		return "unix socket"
	}
	return r.RemoteAddr
}
