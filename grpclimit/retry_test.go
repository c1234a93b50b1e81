package grpclimit_test

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/grpclimit"
)

// eager is a client that retries denials after 1 ms, unless the pushback has another time.
var eager = []grpc.DialOption{grpc.WithDefaultServiceConfig(`{"methodConfig": [{
	"name": [{}],
	"retryPolicy": {
		"maxAttempts": 5, "initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1,
		"retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"]
	}
}]}`)}

// attempts counts the calls that reach a server.
func attempts(n *atomic.Int64) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		n.Add(1)
		return handler(ctx, req)
	}
}

// An eager client retries exactly at the time of the pushback, rounded up to a millisecond, and succeeds.
func TestRetryAfterPushback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		l := limiter(t, "api", sluice.Every(90*time.Second))
		conn := connectWith(t, &service{}, eager,
			grpc.ChainUnaryInterceptor(attempts(&n), grpclimit.UnaryServerInterceptor(l, grpclimit.Global())))
		if r := echo(t, conn); r.err != nil {
			t.Fatal(r.err)
		}
		start := time.Now()
		r := echo(t, conn)
		if took := time.Since(start); r.err != nil || took != 90*time.Second {
			t.Errorf("after %v: %v; want to be allowed after 90s", took, r.err)
		}
		if n.Load() != 3 {
			t.Errorf("%d attempts, want 3: one allowed, one denied, one allowed", n.Load())
		}
	})
}

// Without pushback, which a tap handle cannot send, the same client retries again and again. This proves that the pushback
// causes the result of the previous test.
func TestRetryWithoutPushback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		events := sluice.Events{OnDecision: func(context.Context, sluice.Take, sluice.Decision) { n.Add(1) }}
		l := limiter(t, "api", sluice.Every(90*time.Second), sluice.WithEvents(events))
		conn := connectWith(t, &service{}, eager, tapped(l, grpclimit.Global()))
		if r := echo(t, conn); r.err != nil {
			t.Fatal(r.err)
		}
		r, calls := echo(t, conn), int64(1)
		for ; r.err == io.EOF && calls < 5; calls++ { // grpc-go's client sometimes returns EOF if the last response arrives while it sends
			r = echo(t, conn)
		}
		if r.code() != codes.ResourceExhausted {
			t.Errorf("call: %v, want RESOURCE_EXHAUSTED", r.err)
		}
		if n.Load() != 1+5*calls {
			t.Errorf("%d attempts, want 1 allowed and 5 denied for each of %d calls", n.Load(), calls)
		}
	})
}

// A call whose cost exceeds the limit is not retried.
func TestNoRetryOfNever(t *testing.T) {
	var n atomic.Int64
	l := limiter(t, "api", sluice.PerHour(3))
	conn := connectWith(t, &service{}, eager,
		grpc.ChainUnaryInterceptor(attempts(&n), grpclimit.UnaryServerInterceptor(l, grpclimit.Global(), grpclimit.Cost(byLength))))
	if r := call(t.Context(), conn, echoMethod, "four"); r.code() != codes.ResourceExhausted {
		t.Errorf("call: %v, want RESOURCE_EXHAUSTED", r.err)
	}
	if n.Load() != 1 {
		t.Errorf("%d attempts, want 1", n.Load())
	}
}

// The quota of allowed calls does not prevent clients from retrying errors of the handler.
func TestRetryOfHandlerErrors(t *testing.T) {
	var n atomic.Int64
	fails := func() error {
		if n.Add(1) < 3 {
			return status.Error(codes.Unavailable, "not yet")
		}
		return nil
	}
	svc := &service{
		echo: func(_ context.Context, text string) (string, error) { return text, fails() },
		chat: func(grpc.ServerStream) error { return fails() },
	}
	l := limiter(t, "api", sluice.PerHour(100))
	conn := connectWith(t, svc, eager, unary(l, grpclimit.Global()), streaming(l, grpclimit.Global()))
	r := echo(t, conn)
	if r.err != nil || n.Load() != 3 {
		t.Errorf("unary: %v after %d attempts; want success at the third", r.err, n.Load())
	}
	wantMD(t, "header", r.header, "x-ratelimit-remaining", "97")
	n.Store(0)
	if e := chat(t, conn, chatMethod); e.err != nil || n.Load() != 3 {
		t.Errorf("stream: %v after %d attempts; want success at the third", e.err, n.Load())
	}
}
