package sluice

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
)

// Take is an attempt to charge a cost to a key under a rule.
type Take struct {
	Rule     *Rule
	Limit    *Limit // limit for this call only, created by Limit.Build; nil means Rule.Limit
	Key      string // the limited key: a user, an address, a tenant. Remote stores keep it in plain text: hash secrets
	HashTag  string // shared by the keys of one call, such as a tenant: in a Redis Cluster they share a hash slot
	Cost     int64  // 0 peeks: decides as for a cost of 1 and charges nothing; negative refunds the take of Receipt
	MinGrant int64  // minimum for a partial grant; 0 grants all or nothing
	// MaxDelay accepts a grant up to this much later; the decision's Delay is the time to wait. Buckets only. A
	// LeakyQueue grants any place it has, and MaxDelay bounds the wait.
	MaxDelay time.Duration
	// Receipt is Decision.Receipt of an earlier take. Cost < 0 refunds that take, at most its unexpired part. Cost > 0
	// settles it: the cost is added regardless of the limit. For a concurrency limit, Cost > 0 renews the permit and
	// the decision carries its new receipt; an expired permit is acquired again if there is room.
	Receipt int64
	// DryRun, with a Cost of 0, leaves the store unchanged. Other peeks convert a bucket that was stored under other
	// numbers of the rule, so that the RetryAfter they return holds. Use DryRun to peek with numbers that may differ
	// from the stored ones.
	DryRun bool
	// Settles announces that the take will be settled: the store keeps a mark for it. Without the mark, a bucket can
	// refund only the part that the take itself proves has not expired. With Receipt, Settles repeats that the take of
	// Receipt had it set. Such a take is settled even if Cost is 0, so that the store can delete the mark.
	Settles       bool
	Charged       int64  // with Receipt: cost charged for the take of Receipt; 0 if unknown
	ChargedOf     int64  // with Receipt: Decision.Limit of the take of Receipt; 0 if the limit is the same
	IdempotencyID uint64 // idempotency ID: takes with the same ID within 1 min are charged once; 0 means none

	local bool // with Receipt: that take was decided by local fallback; see Settlement
}

// Source is the origin of a decision. While a store is unavailable each rule's [FailMode] decides: FailLocal, the
// default, counts in this process, FailOpen allows, FailClosed denies.
type Source uint8

const (
	SourceStore      Source = iota // the store decided
	SourceDenyCache                // the deny cache, from a recent denial of the store
	SourceLease                    // a lease from the store
	SourceEventual                 // a local estimate
	SourceFailLocal                // store unavailable; counted in this process
	SourceFailOpen                 // store unavailable; allowed
	SourceFailClosed               // store unavailable; denied

	SourceSuspended // the rule is suspended; see Limiter.Suspend
)

var sourceNames = [...]string{"store", "deny_cache", "lease", "eventual", "local", "open", "closed", "suspended"}

func (s Source) String() string {
	if int(s) < len(sourceNames) {
		return sourceNames[s]
	}
	return fmt.Sprintf("source(%d)", uint8(s))
}

// Degraded reports whether the store did not make the decision: a fail mode did, or the rule is suspended.
func (s Source) Degraded() bool { return s >= SourceFailLocal }

// Decision is the result of one [Take]. Methods that apply several rules, such as [Limiter.Allow], return the most
// restrictive decision; see [MostRestrictive].
type Decision struct {
	Allowed      bool
	ExceedsLimit bool          // the cost exceeds the limit and can never be allowed
	Blocked      bool          // denied because the key is blocked, whatever its usage; see Limiter.Block
	ShadowDenied bool          // the rule is in shadow mode and would have denied; Allowed is true
	Source       Source        // origin of the decision
	Limit        int64         // maximum cost that can be allowed at once, SoftExcess of a soft limit included
	Granted      int64         // charged cost; negative for a refund
	Delay        time.Duration // if allowed: time to wait before proceeding
	Remaining    int64         // maximum cost that would be allowed now without MaxDelay
	Receipt      int64         // identifies the take for a settlement or refund
	RetryAfter   time.Duration // if denied: time until the same take would be allowed, perhaps with a Delay, if no others came
	ResetAfter   time.Duration // time until the bucket is fully reset; with Limit.Initial, until it is full
	Rule         *Rule         // rule of the decision; set by a Limiter, not by stores
}

// Store keeps buckets and applies takes to them. It must be safe for concurrent use.
//
// Apply sets out[i] for takes[i]; out is at least as long as takes. If a take of a rule that is not in shadow mode is
// denied, only takes of ChargeDenied rules are charged; otherwise all allowed takes are. A peek is not charged and
// denies no other take. After an error no decision is valid, and some takes may have been applied.
type Store interface {
	Apply(ctx context.Context, takes []Take, out []Decision) error
}

var (
	// ErrClosed is returned by closed stores.
	ErrClosed = errors.New("sluice: store is closed")
	// ErrUnavailable is wrapped by errors of stores whose servers do not reply in time.
	ErrUnavailable = group.ErrUnavailable
	// ErrInvalid is wrapped by errors about invalid calls. They never fail open.
	ErrInvalid = group.ErrInvalid
	// ErrExceedsLimit is wrapped when a cost exceeds its limit, so that it can never be allowed.
	ErrExceedsLimit = errors.New("sluice: cost exceeds limit")
	// ErrStoreFull is wrapped when a store has no room for a block. Decisions never fail for lack of room.
	ErrStoreFull = errors.New("sluice: store is full")
)

// MaxCost is the maximum cost of one take: 2^50.
const MaxCost = 1 << 50

// EffectiveLimit returns t.Limit or, if it is nil, the limit of t.Rule. If both are nil it returns a zero Limit.
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

// isShadow reports whether the decision is about a rule in shadow mode.
func (d *Decision) isShadow() bool { return d.Rule != nil && d.Rule.Shadow }
