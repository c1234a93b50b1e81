// Package private is the door between package sluice and the packages of this repository that know more of its types than
// users need: what numbers a limit has, and the shortcuts that stores offer.
//
// Package sluice sets the functions when it is initialised. What they are given is a pointer to one of its types.
package private

import (
	"context"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

var (
	// RuleOf is a *sluice.Rule as the layers below the limiter know it, or nil if NewRule has not made it.
	RuleOf func(rule any) *group.Rule
	// Silenced is a *sluice.Rule in shadow: it denies no request, and has the same counts.
	Silenced func(rule any) any
	// ParamsOf are the numbers of a *sluice.Limit, or nil before Build.
	ParamsOf func(limit any) *step.Params
	// MakePart has a *sluice.Limit be a part of another that was built, when it is built itself: what is stored of a bucket
	// means the same under both, so that a change from one part to another keeps the time until it is full.
	MakePart func(limit, whole any)
	// SupportsLease and SupportsEventual tell whether rules with a *sluice.Limit may have that accuracy.
	SupportsLease, SupportsEventual func(limit any) bool
	// CheckBucket tells what is wrong with a *sluice.Bucket.
	CheckBucket func(bucket any) error
	// CheckListOptions fills in what is not set in a *sluice.ListOptions, and tells what is wrong.
	CheckListOptions func(query any) error
	// CheckResetOptions tells what is wrong with a *sluice.ResetOptions.
	CheckResetOptions func(options any) error
)

// MaxSettleMemory bounds how long a store remembers the id of a settlement; see SettleOnce.
const MaxSettleMemory = 2 * time.Hour

// What edges of this repository do with a *sluice.Limiter and users need not. Takes and out are *[]sluice.Take and
// *[]sluice.Decision.
var (
	// DecideQuiet is Limiter.Decide without a report to its Events, for edges that ask again until they are allowed.
	DecideQuiet func(ctx context.Context, limiter, takes, out any) (bool, error)
	// ReportDecisions tells the limiter's Events of decisions.
	ReportDecisions func(ctx context.Context, limiter, takes, out any)
	// HoldPermits returns a *sluice.Permit for what the decisions granted of Concurrency limits, a nil one if that is
	// nothing.
	HoldPermits func(limiter, takes, out any) any
	// SettleOnce is Limiter.Settle of a []sluice.Take, unless an id is one that was settled. It reports whether it was not,
	// and how much was forgiven. The store remembers the id for as long as it is told, at most MaxSettleMemory.
	SettleOnce func(ctx context.Context, limiter any, id string, remember time.Duration, takes any) (settled bool, forgiven int64, err error)
	// Refund gives back what earlier takes charged that no receipt names: the takes have negative costs, and Granted of the
	// decisions says how much of that was counted and is given back. A store that cannot answer is an error.
	Refund func(ctx context.Context, limiter, takes, out any) error
	// IsSuspended reports whether a rule is suspended, by its name or that of one of its limits.
	IsSuspended func(limiter any, rule string) bool
	// HasLimitFor reports whether the limiter was made with WithLimitFor.
	HasLimitFor func(limiter any) bool
	// IsRemote reports whether the limiter's store is a sluice.RemoteStore.
	IsRemote func(limiter any) bool
)

// CounterKind is the way a *sluice.Limit counts: limits of one kind share their counts when the numbers change. It is ""
// for a limit that was not made by Build.
func CounterKind(limit any) string {
	p := ParamsOf(limit)
	if p == nil {
		return ""
	}
	return p.Name()
}

// Fast is a shortcut that a store in this process offers.
type Fast interface {
	// TakeFast applies one take that asks for nothing but its cost. An answer without At is none: ask Apply.
	TakeFast(ctx context.Context, r *group.Rule, p *step.Params, key string, cost int64) (FastAnswer, error)
}

// FastAnswer is a decision of the common kind: all of the cost, now or not. It has four fields because structs of more do
// not travel in registers.
type FastAnswer struct {
	At         int64 // 0: not decided
	Remaining  int64
	RetryAfter time.Duration // 0: allowed
	ResetAfter time.Duration
}

// Engine is how a store that asks servers is asked in integers.
type Engine interface {
	// ApplyOps keeps neither ops nor out.
	ApplyOps(ctx context.Context, ops []group.Op, out []group.Answer) error
	// ShardOf is the number of the server that the op's key lives on.
	ShardOf(op *group.Op) int
}

var (
	fastOf   []func(store any) Fast
	engineOf []func(store any) Engine
)

// RegisterFast is called by stores when they are initialised, with what finds the shortcut of one of theirs. For another's
// store that returns nil.
func RegisterFast(find func(store any) Fast) { fastOf = append(fastOf, find) }

// RegisterEngine is RegisterFast for engines.
func RegisterEngine(find func(store any) Engine) { engineOf = append(engineOf, find) }

// EngineOf is how the store is asked in integers, or nil.
func EngineOf(store any) Engine {
	for _, find := range engineOf {
		if e := find(store); e != nil {
			return e
		}
	}
	return nil
}

// FastOf is the store's shortcut, or nil.
func FastOf(store any) Fast {
	for _, find := range fastOf {
		if f := find(store); f != nil {
			return f
		}
	}
	return nil
}
