package grpclimit

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluiceproject/sluice"
)

// pushbackKey tells clients with a retry policy when to retry, in milliseconds: gRFC A6.
const pushbackKey = "grpc-retry-pushback-ms"

// callError is how a call ends that does not reach its handler.
type callError struct {
	status  *status.Status
	trailer metadata.MD
}

// failed is the refusal when there is no decision: the caller's context has ended, or the call made no sense to the
// limiter, of which the caller is not told more.
func failed(ctx context.Context) *callError {
	if err := ctx.Err(); err != nil {
		return &callError{status: status.FromContextError(err)}
	}
	return &callError{status: status.New(codes.Internal, "the call's limit could not be decided")}
}

// refuse says no in the words of a decision.
func (g *enforcer) refuse(c *charge, cost int64) *callError {
	name := strings.ToValidUTF8(c.rule.Name, "\uFFFD")
	var st *status.Status
	switch {
	case c.Source == sluice.SourceFailClosed:
		st = status.Newf(codes.Unavailable, "limit %q cannot be checked for now: retry after %v", name, rounded(c.RetryAfter))
	case c.ExceedsLimit:
		st = status.Newf(codes.ResourceExhausted, "limit %q: a cost of %d can never fit %d", name, cost, c.Limit)
	case c.Blocked:
		st = status.Newf(codes.ResourceExhausted, "limit %q: the caller is blocked: retry after %v", name, rounded(c.RetryAfter))
	default:
		st = status.Newf(codes.ResourceExhausted, "limit %q reached: retry after %v", name, rounded(c.RetryAfter))
	}
	if detailed, err := st.WithDetails(details(c)...); err == nil {
		st = detailed
	}
	var trailer metadata.MD
	if !g.tap { // which has no trailer
		trailer = metadata.MD{pushbackKey: {pushback(&c.Decision)}}
		if !g.noQuota {
			addQuota(trailer, &c.Decision)
		}
	}
	return &callError{st, trailer}
}

// details are the messages of google.rpc that clients parse.
func details(c *charge) (all []protoadapt.MessageV1) {
	if !c.ExceedsLimit {
		all = append(all, &errdetails.RetryInfo{RetryDelay: durationpb.New(c.RetryAfter)})
	}
	if c.Source == sluice.SourceFailClosed {
		return all
	}
	failure := &errdetails.QuotaFailure{}
	for i := range c.denied {
		v := &c.denied[i]
		if v.Source == sluice.SourceFailClosed {
			continue // not violated: nobody knows
		}
		failure.Violations = append(failure.Violations, &errdetails.QuotaFailure_Violation{
			Subject:     strings.ToValidUTF8(v.rule.Name, "\uFFFD"),
			Description: describe(&v.Decision),
			QuotaValue:  v.Limit,
		})
	}
	return append(all, failure)
}

func describe(d *sluice.Decision) string {
	if d.ExceedsLimit {
		return fmt.Sprintf("the cost can never fit %d", d.Limit)
	}
	return fmt.Sprintf("%d of %d remaining, retry after %v", d.Remaining, d.Limit, rounded(d.RetryAfter))
}

// rounded is a time as people read it: up to the next millisecond.
func rounded(d time.Duration) time.Duration {
	return time.Duration(roundUp(d, time.Millisecond)) * time.Millisecond
}

func roundUp(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}

// pushback is at least 1 for a denial, since 0 would have the client retry at once. The trailer holds 32 bits; of
// what does not fit, a client is better told not to retry than to retry too early.
func pushback(d *sluice.Decision) string {
	ms := max(1, roundUp(d.RetryAfter, time.Millisecond))
	if d.ExceedsLimit || ms > math.MaxInt32 {
		return "-1"
	}
	return strconv.FormatInt(ms, 10)
}
