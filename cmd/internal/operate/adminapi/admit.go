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

// admit returns an error if the request is not authorized.
func (a *api) admit(r *http.Request) error {
	if !a.hostKnown(r) {
		return problemf(http.StatusForbidden, "the Host header is not allowed: use an IP address or localhost, or add the name to admin.allowed_hosts")
	}
	if changes(r) && !isAPIClient(r) {
		return problemf(http.StatusForbidden, "the request could come from a web page: set Content-Type: application/json or the header X-Sluice-Admin: 1")
	}
	if a.Token == nil || a.MetricsPublic && r.URL.Path == "/metrics" {
		return nil
	}
	return a.authorize(r)
}

// hostKnown reports whether the Host header is an IP address, localhost or one of Hosts. It prevents DNS rebinding: a web
// page whose name resolves to the address of this listener could read responses, but its requests carry its own name.
func (a *api) hostKnown(r *http.Request) bool {
	if _, unix := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr); unix {
		return true // browsers cannot connect to Unix sockets
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

// isAPIClient reports whether a web page of another origin cannot have sent the request. Without CORS permission browsers
// let such a page neither set X-Sluice-Admin nor send a JSON body, and they send the page's origin.
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

// authorize returns an error unless the request carries the token.
func (a *api) authorize(r *http.Request) error {
	if no := a.guard.Authorize(r); no != nil {
		return &apiError{Status: no.Status, Detail: no.Detail, limit: no.Limit, retryAfter: no.RetryAfter}
	}
	return nil
}

// Guard authorizes requests by token. An address that sends too many wrong tokens is rejected for a while, to prevent
// guessing. The token is compared even then, so that the response time reveals nothing.
type Guard struct {
	Token    *Token
	Attempts *sluice.Limiter // limit of wrong tokens per address
	Setting  string          // configuration key of the token file

	attempting sync.Mutex // held from the charge of an attempt until it is settled
}

// Refusal is the error response to an unauthorized request.
type Refusal struct {
	Status     int    // 401 or 429
	Detail     string // cause of the error and how to fix it
	Limit      int64  // for 429: wrong tokens allowed at once
	RetryAfter time.Duration
}

// Authorize returns nil if the request carries the token, otherwise the error response.
func (g *Guard) Authorize(r *http.Request) *Refusal {
	shown, given := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	right := g.Token.is(shown)
	if !given {
		return &Refusal{Status: http.StatusUnauthorized, Detail: "token missing: send Authorization: Bearer TOKEN with the token in the file " + g.Setting}
	}
	from := attemptKey(r)
	// Each attempt is charged before the response, so that concurrent attempts cannot exceed the limit, and refunded if the
	// token was right. Attempts run one at a time, so that concurrent right tokens cannot exhaust the limit for each other.
	ctx := context.WithoutCancel(r.Context())
	g.attempting.Lock()
	defer g.attempting.Unlock()
	d, err := g.Attempts.Allow(ctx, from)
	switch {
	case err != nil || !d.Allowed:
		bounds.WrongAttempts.Reached()
		return &Refusal{
			Status: http.StatusTooManyRequests, Detail: "too many wrong tokens from " + from,
			Limit: g.Attempts.Rules()[0].Limit.Max(), RetryAfter: d.RetryAfter,
		}
	case !right:
		return &Refusal{Status: http.StatusUnauthorized, Detail: "wrong token: send the token in the file " + g.Setting}
	}
	_ = g.Attempts.Settle(ctx, []sluice.Take{{Rule: g.Attempts.Rules()[0], Key: from, Cost: -1, Receipt: d.Receipt}})
	return nil
}

// attemptKey returns the key of Attempts: the client IP, for IPv6 the /64 prefix that one subscriber has.
func attemptKey(r *http.Request) string {
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "the Unix socket"
	}
	return string(keyenc.AppendAddr(nil, addr.Addr(), 64))
}

// principal returns the name of the client in the audit log.
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

// from returns the address of the client.
func from(r *http.Request) string {
	if r.RemoteAddr == "" || r.RemoteAddr == "@" {
		return "unix socket"
	}
	return r.RemoteAddr
}
