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

// pushbackKey is the trailer with the time to retry in milliseconds, for clients with a retry policy (gRFC A6).
const pushbackKey = "grpc-retry-pushback-ms"

// callError is the status and trailer of a call that does not reach its handler.
type callError struct {
	status  *status.Status
	trailer metadata.MD
}

// failed returns the error of a call without a decision: its context is done, or the call to the limiter was invalid. The
// client gets no internal details.
func failed(ctx context.Context) *callError {
	if err := ctx.Err(); err != nil {
		return &callError{status: status.FromContextError(err)}
	}
	return &callError{status: status.New(codes.Internal, "the rate limit could not be checked")}
}

// refuse returns the error of a denied call.
func (g *enforcer) refuse(c *charge, cost int64) *callError {
	name := strings.ToValidUTF8(c.rule.Name, "\uFFFD")
	var st *status.Status
	switch {
	case c.Source == sluice.SourceFailClosed:
		st = status.Newf(codes.Unavailable, "limit %q cannot be checked at the moment: retry after %v", name, rounded(c.RetryAfter))
	case c.ExceedsLimit:
		st = status.Newf(codes.ResourceExhausted, "limit %q: cost %d exceeds the limit of %d", name, cost, c.Limit)
	case c.Blocked:
		st = status.Newf(codes.ResourceExhausted, "limit %q: the client is blocked: retry after %v", name, rounded(c.RetryAfter))
	default:
		st = status.Newf(codes.ResourceExhausted, "limit %q reached: retry after %v", name, rounded(c.RetryAfter))
	}
	if detailed, err := st.WithDetails(details(c)...); err == nil {
		st = detailed
	}
	var trailer metadata.MD
	if !g.tap { // a tap handle cannot send a trailer
		trailer = metadata.MD{pushbackKey: {pushback(&c.Decision)}}
		if !g.noQuota {
			addQuota(trailer, &c.Decision)
		}
	}
	return &callError{st, trailer}
}

// details returns the details of the status: RetryInfo and QuotaFailure of google.rpc.
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
			continue // unknown whether it is violated
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
		return fmt.Sprintf("the cost exceeds the limit of %d", d.Limit)
	}
	return fmt.Sprintf("%d of %d remaining, retry after %v", d.Remaining, d.Limit, rounded(d.RetryAfter))
}

// rounded returns d rounded up to the next millisecond, for messages.
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

// pushback returns the value of the pushback trailer. It is at least 1, because clients retry at once at 0. It is -1, do not
// retry, for times that exceed the trailer's 32 bits, because a client must not retry too early.
func pushback(d *sluice.Decision) string {
	ms := max(1, roundUp(d.RetryAfter, time.Millisecond))
	if d.ExceedsLimit || ms > math.MaxInt32 {
		return "-1"
	}
	return strconv.FormatInt(ms, 10)
}
