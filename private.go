package sluice

import (
	"context"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/internal/step"
)

func init() {
	private.RuleOf = func(rule any) *group.Rule { return rule.(*Rule).inIntegers() }
	private.Silenced = func(rule any) any { return rule.(*Rule).silenced() }
	private.ParamsOf = func(limit any) *step.Params { return limit.(*Limit).params }
	private.MakePart = func(limit, whole any) { limit.(*Limit).whole = whole.(*Limit).params.Numbers() }
	private.SupportsLease = func(limit any) bool { return limit.(*Limit).supportsLease() }
	private.SupportsEventual = func(limit any) bool { return limit.(*Limit).supportsEventual() }
	private.CheckBucket = func(bucket any) error { return bucket.(*Bucket).validate() }
	private.CheckListOptions = func(query any) error { return query.(*ListOptions).setDefaults() }
	private.DecideQuiet = func(ctx context.Context, limiter, takes, out any) (bool, error) {
		return limiter.(*Limiter).decideQuiet(ctx, *takes.(*[]Take), *out.(*[]Decision))
	}
	private.ReportDecisions = func(ctx context.Context, limiter, takes, out any) {
		limiter.(*Limiter).reportDecisions(ctx, *takes.(*[]Take), *out.(*[]Decision))
	}
	private.HoldPermits = func(limiter, takes, out any) any {
		return limiter.(*Limiter).holdPermits(*takes.(*[]Take), *out.(*[]Decision))
	}
	private.SettleOnce = func(ctx context.Context, limiter any, id string, remember time.Duration, takes any) (bool, int64, error) {
		return limiter.(*Limiter).settleOnce(ctx, id, remember, takes.([]Take))
	}
	private.IsSuspended = func(limiter any, rule string) bool { return limiter.(*Limiter).isSuspended(rule) }
	private.HasLimitFor = func(limiter any) bool { return limiter.(*Limiter).opts.limitFor != nil }
	private.IsRemote = func(limiter any) bool { return limiter.(*Limiter).engine.IsRemote() }
}
