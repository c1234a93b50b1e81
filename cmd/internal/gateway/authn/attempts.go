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

// Attempts limits how often one address may show wrong credentials. Once it has shown too many, none of its credentials
// are looked at until the limit has room again: were the right ones taken, the answer would tell who goes on guessing that
// one was right.
//
// Every check is charged before it begins, and refunded unless it finds a guess, so that no more guesses are checked than
// the limit allows, however many come at once. Where checks in progress hold all that is left, others wait for them: an
// address whose many users all have right credentials never fails.
//
// An account that logged in from an address in the last minutes has a bucket of its own there, which is used once that of
// the address is empty. So an attacker behind the same address (NAT) locks out only accounts that are new there, and
// those that it guesses at. Nothing counts for an account alone: guesses from other addresses lock no account out.
type Attempts struct {
	limiter *sluice.Limiter
	seed    [sha256.Size]byte
	known   digestCache // accounts by address

	mu       sync.Mutex // guards checking
	checking map[string]*checks
}

// checks are those in progress that a bucket was charged for; at least one.
type checks struct {
	n       int
	waiting []chan int64 // each is sent a receipt, or closed if all checks found guesses
}

// checkWait is how long a check waits for others.
const checkWait = passwordWait

// NewAttempts limits by a limiter that counts for nothing else.
func NewAttempts(l *sluice.Limiter) *Attempts {
	a := &Attempts{limiter: l, checking: make(map[string]*checks)}
	_, _ = rand.Read(a.seed[:]) // never fails
	return a
}

// max is how many wrong credentials may come from an address at once.
func (a *Attempts) max() int64 { return a.limiter.Rules()[0].Limit.Max() }

// attempt is a check that was charged for.
type attempt struct {
	attempts *Attempts
	from     string
	bucket   string
	receipt  int64
	guess    bool // it is not refunded
}

// begin charges for a check of credentials. It returns nil if there is no room, and how long there will be none. The error
// is [ErrBusy] or the context's.
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

// await waits for a check that is refunded.
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

// leave waits no more. A turn that came meanwhile is passed on.
func (a *Attempts) leave(t *attempt, turn chan int64, why error) error {
	a.mu.Lock()
	c := a.checking[t.bucket]
	if c != nil {
		if i := slices.Index(c.waiting, turn); i >= 0 {
			c.waiting = slices.Delete(c.waiting, i, i+1)
			a.mu.Unlock()
			return why
		}
	}
	a.mu.Unlock()
	var ok bool
	if t.receipt, ok = <-turn; ok {
		t.end()
	}
	return why
}

// right notes that an account has logged in.
func (t *attempt) right(account string) {
	if account != "" {
		t.attempts.known.add(t.attempts.sum(t.from, account), time.Now())
	}
}

// end ends a check. If it is refunded, the next that waits may begin.
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

// accountOf returns what credentials of a method say about whose they are: the user, or the key or token itself. It is
// empty if they cannot be read.
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

// connection is the address of a connection, as one subscriber has it.
func connection(r *http.Request) string {
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "the socket"
	}
	return string(keyenc.AppendAddr(nil, addr.Addr(), 64))
}
