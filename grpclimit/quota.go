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

// quotaOf is what an allowed caller is told, or nil.
func (g *enforcer) quotaOf(c *charge) metadata.MD {
	if g.noQuota || c.free || c.rule.Shadow {
		return nil
	}
	md := make(metadata.MD, 4)
	addQuota(md, &c.Decision)
	return md
}

func addQuota(md metadata.MD, d *sluice.Decision) {
	values := make([]string, 0, 4) // one array for all
	add := func(key, value string) {
		values = append(values, value)
		md[key] = values[len(values)-1 : len(values) : len(values)]
	}
	add(limitKey, strconv.FormatInt(d.Limit, 10))
	if d.Source.Degraded() {
		add(degradedKey, d.Source.String())
	}
	if d.Source == sluice.SourceFailOpen || d.Source == sluice.SourceFailClosed {
		return // nobody counted
	}
	add(remainingKey, strconv.FormatInt(d.Remaining, 10))
	if !d.ExceedsLimit { // else no time helps
		add(resetKey, strconv.FormatInt(reset(d), 10))
	}
}

// reset is in seconds. When denied it is the time to retry after: clients sleep until the reset, and a bucket has room
// again long before it is full.
func reset(d *sluice.Decision) int64 {
	if d.Allowed {
		return roundUp(d.ResetAfter, time.Second)
	}
	return max(1, roundUp(d.RetryAfter, time.Second))
}
