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

// A difference is an intended difference. It converts the reference's response into exactly the response that Sluice
// must send, so that it excuses nothing else.
type difference struct {
	why   string
	apply func(want *rls.RateLimitResponse, env settings)
}

// differences are all permitted differences of responses. In addition, the generator avoids these requests:
//
//   - descriptors that the reference counts together because their joined text is the same (generator.distinct)
//   - overrides with a unit whose window started together with another unit's (overrideUnits)
//   - overrides with the unit UNKNOWN, which crash the reference
//   - overrides with the local cache, where the reference rejects a high limit because a low one is exhausted
//   - wildcards inside a value: the version of the reference that can be built here supports them only at the end,
//     later versions anywhere
var differences = []difference{
	{
		why: "The reference that can be built here is of January 2026. Since then a quota rule over its limit returns " +
			"OVER_LIMIT with the end of the window, and the request is over the limit if all its quota rules are.",
		apply: laterQuota,
	},
	{
		why:   "Later versions of the reference no longer include quotas in the metadata.",
		apply: laterMetadata,
	},
}

// expected returns the answer that Sluice must give if the reference gave this one.
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

// laterQuota identifies quota rules by their names, which start with "quota", or by the setting, and those over their
// limit by the missing end of the window.
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
