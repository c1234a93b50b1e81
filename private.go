package sluice

import (
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
	private.CheckQuery = func(query any) error { return query.(*ListOptions).setDefaults() }
}
