package sluice

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
)

// Take is one attempt to spend something.
type Take struct {
	Rule     *Rule
	Limit    *Limit // for this call only, from Limit.Build; nil means Rule.Limit
	Key      string // what is limited: a user, an address, a tenant. Stores in other processes keep it in clear: hash secrets
	HashTag  string // what the keys of one call share, such as a tenant: shared stores keep them together
	Cost     int64  // 0 peeks: the decision is that of a take of 1, and nothing is charged; negative gives back what the take of Receipt took
	MinGrant int64  // accept a partial grant of at least this
	// MaxDelay accepts a place this much later; the decision's Delay says how long to wait. Buckets only. A LeakyQueue
	// offers any place it has, and MaxDelay bounds the wait.
	MaxDelay time.Duration
	// Receipt is Decision.Receipt of an earlier take. With a negative Cost that take is given back, at most what of it has not
	// worn off. With a positive Cost it is settled: charged on top whatever the limit says, as if at that time. A permit of
	// a Concurrency limit is renewed by a positive Cost, and has the decision's Receipt for its name from then on; one that
	// is gone is taken anew if there is room.
	Receipt int64
	// DryRun, with a Cost of 0, leaves the store as it is. Other peeks convert what was counted under other numbers of the
	// rule, so that their RetryAfter is kept: use DryRun to look at a key with numbers that may not be those it has.
	DryRun bool
	// Settles says that the take will be settled: the store keeps a mark for it, without which a bucket can give back only
	// what the take itself proves has not worn off. With Receipt it says that the take of Receipt was made so. The settlement of such
	// a take is made also if Cost is 0, so that the mark can go.
	Settles       bool
	Charged       int64  // with Receipt: what the take of Receipt was charged; 0 if that is not known
	ChargedOf     int64  // with Receipt: Decision.Limit of the take of Receipt; 0 if the limit is still that
	IdempotencyID uint64 // non-zero: charged once however often it arrives within a minute

	local bool // with Receipt: it was decided in this process while the store was unavailable; see Settlement
}

// Source is where a decision came from. While a store is unavailable each rule's [FailMode] decides: FailLocal, the
// default, counts in this process, FailOpen allows, FailClosed denies.
type Source uint8

const (
	SourceStore      Source = iota // the store decided
	SourceDenyCache                // a remembered denial
	SourceLease                    // a lease from the store
	SourceEventual                 // what this process believes of the key, from its own count and what others reported
	SourceFailLocal                // the store could not answer; counted in this process
	SourceFailOpen                 // the store could not answer; allowed
	SourceFailClosed               // the store could not answer; denied

	SourceSuspended // an operator has switched the rule off; see Limiter.Suspend
)

var sourceNames = [...]string{"store", "cache", "lease", "eventual", "local", "open", "closed", "suspended"}

func (s Source) String() string {
	if int(s) < len(sourceNames) {
		return sourceNames[s]
	}
	return fmt.Sprintf("source(%d)", uint8(s))
}

// Degraded tells that the store did not decide: a fail mode did, or the rule is switched off.
func (s Source) Degraded() bool { return s >= SourceFailLocal }

// Decision answers one [Take], or all takes of [Limiter.Allow] and its like: then it is that of the rule that is most
// restrictive, see [MostRestrictive].
type Decision struct {
	Allowed      bool
	ExceedsLimit bool          // this cost can never fit, as distinct from not now
	Blocked      bool          // denied because the key is blocked, whatever is left of its limit; see Limiter.Block
	ShadowDenied bool          // the rule would have denied it, but only reports: Allowed is true
	Source       Source        // where the answer came from
	Limit        int64         // the largest cost that can ever be allowed at once, a soft limit's SoftExcess included
	Granted      int64         // what was spent; negative: what was given back
	Delay        time.Duration // when allowed: wait this long first
	Remaining    int64         // the largest cost that a take without MaxDelay could spend now
	Receipt      int64         // names this take when it is settled or given back
	RetryAfter   time.Duration // when denied: the same take would be allowed this much later if no other came, perhaps with a Delay
	ResetAfter   time.Duration // the key is as if never used this much later; with Limit.Initial its bucket is full then
	Rule         *Rule         // whose decision it is, the one that denied if one did; set by a Limiter, not by stores
}

// Store keeps the counts and applies takes to them. Stores are safe for concurrent use.
//
// Apply fills out[i] for takes[i]; out is at least as long as takes. If a take whose rule is not shadow is denied,
// only takes of ChargeDenied rules are charged; otherwise all that are allowed are charged. A peek neither charges nor
// denies others. On error no decision is valid and some takes may have been applied.
type Store interface {
	Apply(ctx context.Context, takes []Take, out []Decision) error
}

var (
	// ErrClosed is returned by stores that have been closed.
	ErrClosed = errors.New("sluice: store is closed")
	// ErrUnavailable is wrapped by stores when the server behind them cannot answer.
	ErrUnavailable = group.ErrUnavailable
	// ErrInvalid is wrapped by errors about calls that make no sense. They never fail open.
	ErrInvalid = group.ErrInvalid
	// ErrExceedsLimit is wrapped when a cost can never fit its limit, however long one waits.
	ErrExceedsLimit = errors.New("sluice: cost can never fit the limit")
	// ErrStoreFull is wrapped when a store has no room for a block. Decisions never fail for lack of room.
	ErrStoreFull = errors.New("sluice: store is full")
)

// MaxCost bounds the cost of one take: 2^50.
const MaxCost = 1 << 50

// EffectiveLimit is the limit that applies to the take; a zero Limit if it has neither a limit nor a rule.
func (t *Take) EffectiveLimit() *Limit { return effectiveLimit(t.Limit, t.Rule) }

func effectiveLimit(own *Limit, rule *Rule) *Limit {
	switch {
	case own != nil:
		return own
	case rule != nil:
		return &rule.Limit
	}
	return new(Limit)
}

// MostRestrictive returns the index of the denial with the largest RetryAfter or, if all are allowed, of the decision with the
// lowest Remaining/Limit. Decisions of rules in shadow mode, which never deny, count only if there are no others. It returns -1
// for an empty slice.
func MostRestrictive(decisions []Decision) int {
	best := -1
	for i := range decisions {
		if best < 0 || tighter(&decisions[i], &decisions[best]) {
			best = i
		}
	}
	return best
}

// tighter reports whether a is more restrictive than b.
func tighter(a, b *Decision) bool {
	if shadow := a.isShadow(); shadow != b.isShadow() {
		return !shadow
	}
	if a.Allowed != b.Allowed {
		return !a.Allowed
	}
	if !a.Allowed {
		if a.ExceedsLimit != b.ExceedsLimit {
			return a.ExceedsLimit
		}
		return a.RetryAfter > b.RetryAfter
	}
	// a.Remaining/a.Limit < b.Remaining/b.Limit
	return float64(a.Remaining)*float64(b.Limit) < float64(b.Remaining)*float64(a.Limit)
}

// isShadow reports whether the decision is that of a rule in shadow mode.
func (d *Decision) isShadow() bool { return d.Rule != nil && d.Rule.Shadow }
