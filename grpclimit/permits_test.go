package grpclimit_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/grpclimit"
)

// A permit is held until the handler returns: a nested call is denied, and a later call is allowed, however the previous one
// has ended.
func TestInFlight(t *testing.T) {
	l := limiter(t, "calls", sluice.Concurrent(1))
	var conn *grpc.ClientConn
	inside := func() {
		err := conn.Invoke(context.Background(), pingMethod, wrapperspb.String(""), &wrapperspb.StringValue{})
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("nested call: %v", err)
		}
		for _, d := range status.Convert(err).Details() {
			if retry, ok := d.(interface{ GetRetryDelay() *durationpb.Duration }); ok && retry.GetRetryDelay().AsDuration() != time.Second {
				t.Errorf("retry after %v, want 1s", retry.GetRetryDelay().AsDuration())
			}
		}
	}
	calls := 0
	svc := &service{
		echo: func(context.Context, string) (string, error) {
			if calls++; calls == 1 {
				inside()
				return "", status.Error(codes.Internal, "out of order")
			}
			return "well", nil
		},
		chat: func(grpc.ServerStream) error {
			inside()
			return nil
		},
	}
	key := func(context.Context, string) (string, error) { return "k", nil }
	cost := grpclimit.Cost(func(context.Context, string, any) int64 { return 7 })
	conn = connect(t, svc,
		grpc.UnaryInterceptor(grpclimit.UnaryServerInterceptor(l, key, cost)), streaming(l, key, cost))
	for i, want := range []codes.Code{codes.Internal, codes.OK} {
		if err := conn.Invoke(t.Context(), pingMethod, wrapperspb.String(""), &wrapperspb.StringValue{}); status.Code(err) != want {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if e := chat(t, conn, chatMethod); e.err != nil {
		t.Error(e.err)
	}
	if d, err := l.Peek(t.Context(), "k"); err != nil || d.Remaining != 1 {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestInFlightRefuses(t *testing.T) {
	l := limiter(t, "calls", sluice.Concurrent(1))
	key := func(context.Context, string) (string, error) { return "k", nil }
	for name, make := range map[string]func(){
		"tap":         func() { grpclimit.TapHandle(l, key) },
		"per message": func() { grpclimit.StreamServerInterceptor(l, key, grpclimit.PerMessage()) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			make()
		}()
	}
}
