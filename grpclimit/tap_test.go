package grpclimit_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/grpclimit"
)

// tapped returns a server option that limits calls by a tap handle.
func tapped(l *sluice.Limiter, key grpclimit.KeyFunc, opts ...grpclimit.Option) grpc.ServerOption {
	return grpc.InTapHandle(grpclimit.TapHandle(l, key, opts...))
}

func TestTap(t *testing.T) {
	l := limiter(t, "taps", sluice.PerHour(2))
	var reached atomic.Int64
	count := grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		reached.Add(1)
		return h(ctx, req)
	})
	conn := connect(t, &service{}, tapped(l, grpclimit.Combine(grpclimit.ByMetadata("user"), grpclimit.ByPeer())), count)
	alice := metadata.AppendToOutgoingContext(t.Context(), "user", "alice")
	for range 2 {
		r := call(alice, conn, echoMethod, "hello")
		if r.err != nil || r.text != "hello" {
			t.Fatalf("call: %q, %v; want the echo", r.text, r.err)
		}
		wantMD(t, "header", r.header, "x-ratelimit-limit", "")
	}
	r := call(alice, conn, echoMethod, "hello")
	if r.code() != codes.ResourceExhausted || reached.Load() != 2 {
		t.Fatalf("third call: %v, and %d reached an interceptor; want RESOURCE_EXHAUSTED and 2", r.err, reached.Load())
	}
	retry, quota := explained(t, r.err)
	if retry.GetRetryDelay().AsDuration() <= 0 || len(quota.GetViolations()) != 1 || quota.GetViolations()[0].GetSubject() != "taps" {
		t.Errorf("details = %v, %v; want both", retry, quota)
	}
	wantMD(t, "trailer", r.trailer, "grpc-retry-pushback-ms", "", "x-ratelimit-limit", "")
	if left := remaining(t, l, "6:=alice15:bufconn/bufconn"); left != 0 {
		t.Errorf("remaining = %d, want 0: the key has metadata and peer", left)
	}
	if r := echo(t, conn); r.err != nil {
		t.Errorf("another caller: %v", r.err)
	}
}

func TestTapLimitsStreams(t *testing.T) {
	l := limiter(t, "taps", sluice.PerHour(1))
	conn := connect(t, &service{}, tapped(l, grpclimit.ByMethod(), grpclimit.Skip(func(m string) bool { return m == listMethod })))
	if e := chat(t, conn, chatMethod, "a", "b"); e.err != nil {
		t.Fatal(e.err)
	}
	if e := chat(t, conn, chatMethod, "a", "b"); status.Code(e.err) != codes.ResourceExhausted {
		t.Errorf("second stream: %v, want RESOURCE_EXHAUSTED", e.err)
	}
	for range 3 {
		if e := chat(t, conn, listMethod, "a"); e.err != nil {
			t.Errorf("skipped stream: %v", e.err)
		}
	}
}

func TestTapErrors(t *testing.T) {
	info := &tap.Info{FullMethodName: echoMethod, Header: metadata.Pairs("user", "alice")}
	key := func(context.Context, string) (string, error) { return "", errors.New("10.1.2.3") }
	_, err := grpclimit.TapHandle(limiter(t, "taps", sluice.PerHour(1)), key)(t.Context(), info)
	if st := status.Convert(err); st.Code() != codes.Internal || st.Message() != "the rate limit could not be checked" {
		t.Errorf("key fails: %v, want INTERNAL", st)
	}
	l := limiterOf(t, broken, sluice.Rule{Name: "taps", Limit: sluice.PerHour(1), OnFailure: sluice.FailClosed})
	_, err = grpclimit.TapHandle(l, grpclimit.ByMetadata("user"))(t.Context(), info)
	if retry, _ := explained(t, err); status.Code(err) != codes.Unavailable || retry.GetRetryDelay().AsDuration() != time.Second {
		t.Errorf("fail closed: %v, want UNAVAILABLE", err)
	}
}

// A tap handle cannot block: a call that would be delayed is denied and not charged.
func TestTapDoesNotQueue(t *testing.T) {
	l := limiter(t, "queue", sluice.Every(time.Hour).WithAlgorithm(sluice.LeakyQueue).WithBurst(5))
	handle := grpclimit.TapHandle(l, grpclimit.Global())
	info := &tap.Info{FullMethodName: echoMethod}
	if _, err := handle(t.Context(), info); err != nil {
		t.Fatal(err)
	}
	left := remaining(t, l, "")
	for range 20 {
		_, err := handle(t.Context(), info)
		if status.Code(err) != codes.ResourceExhausted {
			t.Fatalf("queued call: %v, want RESOURCE_EXHAUSTED", err)
		}
		retry, quota := explained(t, err)
		if d := retry.GetRetryDelay().AsDuration(); d <= 59*time.Minute || d > time.Hour || len(quota.GetViolations()) != 1 {
			t.Fatalf("details = %v, %v; want to retry in an hour", retry, quota)
		}
	}
	if got := remaining(t, l, ""); got != left {
		t.Errorf("remaining = %d, want %d: places were not refunded", got, left)
	}
}
