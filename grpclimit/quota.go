package grpclimit

import (
	"strconv"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/sluiceproject/sluice"
)

const (
	limitKey     = "x-ratelimit-limit"
	remainingKey = "x-ratelimit-remaining"
	resetKey     = "x-ratelimit-reset"
	degradedKey  = "x-ratelimit-degraded"
)

// quotaOf returns the quota metadata of an allowed call, or nil if none is sent.
func (g *enforcer) quotaOf(c *charge) metadata.MD {
	if g.noQuota || c.free || c.rule.Shadow {
		return nil
	}
	md := make(metadata.MD, 4)
	addQuota(md, &c.Decision)
	return md
}

func addQuota(md metadata.MD, d *sluice.Decision) {
	values := make([]string, 0, 4) // one allocation for all values
	add := func(key, value string) {
		values = append(values, value)
		md[key] = values[len(values)-1 : len(values) : len(values)]
	}
	add(limitKey, strconv.FormatInt(d.Limit, 10))
	if d.Source.Degraded() {
		add(degradedKey, d.Source.String())
	}
	if d.Source == sluice.SourceFailOpen || d.Source == sluice.SourceFailClosed {
		return // nothing was counted
	}
	add(remainingKey, strconv.FormatInt(d.Remaining, 10))
	if !d.ExceedsLimit { // otherwise no retry can succeed
		add(resetKey, strconv.FormatInt(reset(d), 10))
	}
}

// reset returns the x-ratelimit-reset in seconds. On a denial it is the time to retry: clients sleep until the reset, and a
// bucket allows calls long before it is full.
func reset(d *sluice.Decision) int64 {
	if d.Allowed {
		return roundUp(d.ResetAfter, time.Second)
	}
	return max(1, roundUp(d.RetryAfter, time.Second))
}
