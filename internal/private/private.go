// Package private gives the packages of this repository access to unexported parts of package sluice: the numbers of
// limits, and the fast paths of stores.
//
// Package sluice sets the functions when it is initialised. Their arguments are pointers to its types.
package private

import (
	"context"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

var (
	// RuleOf returns a *sluice.Rule for the internal packages, or nil if it was not created by NewRule.
	RuleOf func(rule any) *group.Rule
	// Silenced returns a *sluice.Rule in shadow mode: it denies no request, and shares the buckets of rule.
	Silenced func(rule any) any
	// ParamsOf returns the numbers of a *sluice.Limit, or nil before Build.
	ParamsOf func(limit any) *step.Params
	// MakePart makes a *sluice.Limit, before Build, a part of another built limit: stored buckets have the same meaning
	// under both, so that a change from one part to another keeps the time until the bucket is full.
	MakePart func(limit, whole any)
	// SupportsLease and SupportsEventual report whether rules with a *sluice.Limit may have that accuracy.
	SupportsLease, SupportsEventual func(limit any) bool
	// CheckBucket returns an error if a *sluice.Bucket is invalid.
	CheckBucket func(bucket any) error
	// CheckListOptions sets the defaults of a *sluice.ListOptions and returns an error if it is invalid.
	CheckListOptions func(query any) error
	// CheckResetOptions returns an error if a *sluice.ResetOptions is invalid.
	CheckResetOptions func(options any) error
)

// MaxSettleMemory bounds how long a store keeps the ID of a settlement; see SettleOnce.
const MaxSettleMemory = 2 * time.Hour

// Functions on a *sluice.Limiter for middleware and services of this repository. takes and out are *[]sluice.Take and
// *[]sluice.Decision.
var (
	// DecideQuiet is Limiter.Decide without a report to its Events, for callers that retry until they are allowed.
	DecideQuiet func(ctx context.Context, limiter, takes, out any) (bool, error)
	// ReportDecisions reports decisions to the limiter's Events.
	ReportDecisions func(ctx context.Context, limiter, takes, out any)
	// HoldPermits returns a *sluice.Permit for the Concurrency limits among the granted decisions, or a nil one if
	// there are none.
	HoldPermits func(limiter, takes, out any) any
	// SettleOnce is Limiter.Settle of a []sluice.Take, unless the ID was already settled. It reports whether it
	// settled, and the forgiven cost. The store keeps the ID for remember, at most MaxSettleMemory.
	SettleOnce func(ctx context.Context, limiter any, id string, remember time.Duration, takes any) (settled bool, forgiven int64, err error)
	// Refund refunds charges of earlier takes without their receipts: the takes have negative costs, and Granted of the
	// decisions is the refunded amount, at most the current usage. It returns an error if the store is unavailable.
	Refund func(ctx context.Context, limiter, takes, out any) error
	// IsSuspended reports whether a rule is suspended, by its name or that of one of its limits.
	IsSuspended func(limiter any, rule string) bool
	// HasLimitFor reports whether the limiter was created with WithLimitFor.
	HasLimitFor func(limiter any) bool
	// IsRemote reports whether the limiter's store is a sluice.RemoteStore.
	IsRemote func(limiter any) bool
)

// CounterKind returns the kind of algorithm of a *sluice.Limit: limits of one kind keep their usage when the numbers
// change. It is "" for a limit that was not created by Build.
func CounterKind(limit any) string {
	p := ParamsOf(limit)
	if p == nil {
		return ""
	}
	return p.Name()
}

// Fast is the fast path of a store in this process.
type Fast interface {
	// TakeFast applies one take that has only a cost. If At of the result is 0, the take was not decided: call Apply.
	TakeFast(ctx context.Context, r *group.Rule, p *step.Params, key string, cost int64) (FastAnswer, error)
}

// FastAnswer is a decision about all of the cost, without a delay. It has four fields because larger structs are not
// passed in registers.
type FastAnswer struct {
	At         int64 // 0: not decided
	Remaining  int64
	RetryAfter time.Duration // 0: allowed
	ResetAfter time.Duration
}

// Engine is the interface of a remote store for ops.
type Engine interface {
	// ApplyOps does not retain ops or out.
	ApplyOps(ctx context.Context, ops []group.Op, out []group.Answer) error
	// ShardOf returns the index of the shard that stores the op's key.
	ShardOf(op *group.Op) int
}

var (
	fastOf   []func(store any) Fast
	engineOf []func(store any) Engine
)

// RegisterFast is called by store packages when they are initialised. find returns the fast path of a store of the
// package, or nil for other stores.
func RegisterFast(find func(store any) Fast) { fastOf = append(fastOf, find) }

// RegisterEngine is like RegisterFast for engines.
func RegisterEngine(find func(store any) Engine) { engineOf = append(engineOf, find) }

// EngineOf returns the store's engine, or nil.
func EngineOf(store any) Engine {
	for _, find := range engineOf {
		if e := find(store); e != nil {
			return e
		}
	}
	return nil
}

// FastOf returns the store's fast path, or nil.
func FastOf(store any) Fast {
	for _, find := range fastOf {
		if f := find(store); f != nil {
			return f
		}
	}
	return nil
}
