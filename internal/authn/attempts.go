package authn

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/key"
)

// Attempts limits how often one address may show wrong credentials. Once it has shown too many, none of its credentials
// are looked at until the limit has room again: were the right ones taken, the answer would tell who goes on guessing that
// one was right. Requests that are under way at once may pass the limit by as many as they are.
type Attempts struct{ limiter *sluice.Limiter }

// NewAttempts limits by a limiter that counts for nothing else.
func NewAttempts(l *sluice.Limiter) *Attempts { return &Attempts{l} }

// allowed tells whether credentials from an address are looked at, and if not, how long not.
func (a *Attempts) allowed(ctx context.Context, from string) (wait time.Duration, ok bool) {
	d, err := a.limiter.Peek(ctx, from)
	if err != nil {
		return time.Second, false
	}
	return d.RetryAfter, d.Allowed
}

// wrong counts wrong credentials, also if who sent them has left.
func (a *Attempts) wrong(ctx context.Context, from string) {
	_, _ = a.limiter.Allow(context.WithoutCancel(ctx), from)
}

// connection is the address of a connection, as one subscriber has it.
func connection(r *http.Request) string {
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "the socket"
	}
	return string(key.AppendAddr(nil, addr.Addr(), 64))
}
