package authn

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
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

// Attempts limits wrong credentials per client address. Beyond the limit, no credentials from the address are checked until the
// limit allows it again, not even right ones: otherwise the response would show an attacker that a guess was right.
//
// Every check is charged before it begins and refunded unless it finds a guess, so concurrent guesses cannot exceed the limit.
// If checks in progress use all of the remaining quota, further checks wait for them, so an address with many users and only
// right credentials is never denied.
//
// An account that logged in from an address in the last minutes (digestTTL) has its own bucket there, which is used when that of
// the address is empty. So an attacker behind the same address (NAT) locks out only accounts that are new there, and those that
// it guesses at. Nothing counts per account alone: guesses from other addresses lock no account out.
type Attempts struct {
	limiter *sluice.Limiter
	seed    [sha256.Size]byte
	known   digestCache // recently used accounts by address

	mu       sync.Mutex // guards checking
	checking map[string]*checks
}

// checks are the checks in progress of a bucket; at least one.
type checks struct {
	n       int
	waiting []chan int64 // each receives a receipt, or is closed if all checks found guesses
}

// checkWait is the maximum time that a check waits for others.
const checkWait = passwordWait

// NewAttempts returns the limit on wrong credentials. The limiter must not be used for anything else.
func NewAttempts(l *sluice.Limiter) *Attempts {
	a := &Attempts{limiter: l, checking: make(map[string]*checks)}
	_, _ = rand.Read(a.seed[:]) // never fails
	return a
}

// max returns the maximum burst of wrong credentials from an address.
func (a *Attempts) max() int64 { return a.limiter.Rules()[0].Limit.Max() }

// attempt is a charged check.
type attempt struct {
	attempts *Attempts
	from     string
	bucket   string
	receipt  int64
	guess    bool // do not refund
}

// begin charges a check of credentials. If the limit denies it, the attempt is nil, and the duration is the time to retry after.
// The error is [ErrBusy] or that of ctx.
func (a *Attempts) begin(ctx context.Context, from, account string) (*attempt, time.Duration, error) {
	t, wait, err := a.take(ctx, from, from)
	if t == nil && err == nil && account != "" {
		if sum := a.sum(from, account); a.known.has(sum, time.Now()) {
			return a.take(ctx, from, from+string(sum[:]))
		}
	}
	return t, wait, err
}

func (a *Attempts) sum(from, account string) [sha256.Size]byte {
	return sha256.Sum256(append(append(append(a.seed[:len(a.seed):len(a.seed)], from...), 0), account...))
}

func (a *Attempts) take(ctx context.Context, from, bucket string) (*attempt, time.Duration, error) {
	a.mu.Lock()
	c := a.checking[bucket]
	if c == nil || len(c.waiting) == 0 {
		d, err := a.limiter.Allow(context.WithoutCancel(ctx), bucket)
		if err == nil && d.Allowed {
			if c == nil {
				c = new(checks)
				a.checking[bucket] = c
			}
			c.n++
			a.mu.Unlock()
			return &attempt{attempts: a, from: from, bucket: bucket, receipt: d.Receipt}, 0, nil
		}
		if err != nil || c == nil {
			a.mu.Unlock()
			return nil, max(d.RetryAfter, time.Second), nil
		}
	}
	turn := make(chan int64, 1)
	c.waiting = append(c.waiting, turn)
	a.mu.Unlock()
	return a.await(ctx, from, bucket, turn)
}

// await waits until a check in progress is refunded and takes over its charge.
func (a *Attempts) await(ctx context.Context, from, bucket string, turn chan int64) (*attempt, time.Duration, error) {
	timer := time.NewTimer(checkWait)
	defer timer.Stop()
	t := &attempt{attempts: a, from: from, bucket: bucket}
	ok := false
	select {
	case t.receipt, ok = <-turn:
	case <-timer.C:
		bounds.CredentialChecks.Reached()
		return nil, 0, a.leave(t, turn, ErrBusy)
	case <-ctx.Done():
		return nil, 0, a.leave(t, turn, ctx.Err())
	}
	if ok {
		return t, 0, nil
	}
	d, _ := a.limiter.Peek(context.WithoutCancel(ctx), bucket)
	return nil, max(d.RetryAfter, time.Second), nil
}

// leave stops waiting. A charge that was received in the meantime is passed on.
func (a *Attempts) leave(t *attempt, turn chan int64, reason error) error {
	a.mu.Lock()
	c := a.checking[t.bucket]
	if c != nil {
		if i := slices.Index(c.waiting, turn); i >= 0 {
			c.waiting = slices.Delete(c.waiting, i, i+1)
			a.mu.Unlock()
			return reason
		}
	}
	a.mu.Unlock()
	var ok bool
	if t.receipt, ok = <-turn; ok {
		t.end()
	}
	return reason
}

// right records that an account has logged in.
func (t *attempt) right(account string) {
	if account != "" {
		t.attempts.known.add(t.attempts.sum(t.from, account), time.Now())
	}
}

// end ends a check. If it is refunded, the next waiting check can begin.
func (t *attempt) end() {
	a := t.attempts
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.checking[t.bucket]
	if !t.guess && len(c.waiting) > 0 {
		c.waiting[0] <- t.receipt
		c.waiting = slices.Delete(c.waiting, 0, 1)
		return
	}
	if !t.guess {
		_ = a.limiter.Settle(context.Background(), []sluice.Take{{Rule: a.limiter.Rules()[0], Key: t.bucket, Cost: -1, Receipt: t.receipt}})
	}
	if c.n--; c.n == 0 {
		delete(a.checking, t.bucket)
		for _, turn := range c.waiting {
			close(turn)
		}
	}
}

// accountOf returns the account that credentials of a method claim: the user name, or the key or token itself. It is empty if
// they cannot be read.
func accountOf(m *MethodInfo, h http.Header) string {
	for i := range m.Places {
		p := &m.Places[i]
		if !p.in(h) {
			continue
		}
		text, err := p.read(h)
		if err != nil {
			return ""
		}
		if *p == basicPlace {
			decoded, _ := base64.StdEncoding.DecodeString(text)
			text, _, _ = strings.Cut(string(decoded), ":")
		}
		return text
	}
	return ""
}

// connection returns the address of a connection, /64 for IPv6.
func connection(r *http.Request) string {
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "the socket"
	}
	return string(keyenc.AppendAddr(nil, addr.Addr(), 64))
}
