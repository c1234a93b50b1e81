package interop

import (
	"math"
	"strings"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	kinds "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// A difference is one that is meant. It turns the reference's response into exactly what Sluice has to answer, so that
// it excuses nothing else.
type difference struct {
	why   string
	apply func(want *rls.RateLimitResponse, env settings)
}

// differences are all that responses may differ in. What the generator keeps out of requests beside them:
//
//   - descriptors that the reference counts together because their joined text is the same (generator.distinct);
//   - overrides in a unit whose window began together with another unit's (overrideUnits);
//   - overrides whose unit is UNKNOWN, which end the reference's process;
//   - overrides where the local cache is on: there the reference refuses a high limit because a low one is spent;
//   - wildcards within a value: the reference that can be built here knows them at the end only, its later versions
//     anywhere.
var differences = []difference{
	{
		why: "The reference that can be built here is of January 2026. Since then a quota rule that is over answers " +
			"OVER_LIMIT and says when the window ends, and the request is refused when all its quota rules are over.",
		apply: laterQuota,
	},
	{
		why:   "Later versions of the reference no longer tell about quotas in the metadata.",
		apply: laterMetadata,
	},
}

// expected is what Sluice has to answer where the reference gave this answer.
func expected(a answer, env settings) answer {
	if a.err != nil {
		return a
	}
	want := proto.CloneOf(a.res)
	for _, d := range differences {
		d.apply(want, env)
	}
	return answer{res: want}
}

// laterQuota tells quota rules by their names, which begin with "quota", or by the setting, and those that are over by
// the end of the window, which only they do not say.
func laterQuota(want *rls.RateLimitResponse, env settings) {
	quotas, passed := 0, 0
	overall := rls.RateLimitResponse_OK
	for _, s := range want.Statuses {
		quota := strings.HasPrefix(s.GetCurrentLimit().GetName(), "quota")
		if env["QUOTA_MODE"] == "true" {
			quota = s.LimitRemaining != math.MaxUint32 || s.CurrentLimit != nil // not unlimited
		}
		if quota && s.CurrentLimit != nil && s.DurationUntilReset == nil {
			s.Code = rls.RateLimitResponse_OVER_LIMIT
			s.DurationUntilReset = untilReset(s.CurrentLimit.Unit)
		}
		switch {
		case quota:
			quotas++
			if s.Code == rls.RateLimitResponse_OK {
				passed++
			}
		case s.Code == rls.RateLimitResponse_OVER_LIMIT:
			overall = rls.RateLimitResponse_OVER_LIMIT
		}
	}
	if quotas == 0 {
		return // nothing to excuse
	}
	if passed == 0 {
		overall = rls.RateLimitResponse_OVER_LIMIT
	}
	want.OverallCode = overall
}

func untilReset(unit rls.RateLimitResponse_RateLimit_Unit) *durationpb.Duration {
	length := unitSeconds[kinds.RateLimitUnit(unit)]
	return &durationpb.Duration{Seconds: length - time.Now().Unix()%length}
}

func laterMetadata(want *rls.RateLimitResponse, _ settings) {
	fields := want.GetDynamicMetadata().GetFields()
	delete(fields, "quotaModeEnabled")
	delete(fields, "quotaModeViolations")
}
