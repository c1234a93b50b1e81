package grpclimit_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/grpclimit"
	"github.com/sluiceproject/sluice/memstore"
)

// byLength returns the length of a request as its cost, and 1 without a request.
func byLength(_ context.Context, _ string, req any) int64 {
	if req == nil {
		return 1
	}
	return int64(len(req.(*wrapperspb.StringValue).GetValue()))
}

func TestCost(t *testing.T) {
	l := limiter(t, "api", sluice.PerHour(5))
	conn := connect(t, &service{}, unary(l, grpclimit.Global(), grpclimit.Cost(byLength)))
	var got []codes.Code
	for _, text := range []string{"abc", "", "abc", "ab", "", "abcdef"} {
		got = append(got, call(t.Context(), conn, echoMethod, text).code())
	}
	wantCodes(t, got, codes.OK, codes.OK, codes.ResourceExhausted, codes.OK, codes.OK, codes.ResourceExhausted)
	r := call(t.Context(), conn, echoMethod, "abcdef")
	if retry, _ := explained(t, r.err); retry != nil {
		t.Errorf("a cost of 6 of 5: RetryInfo = %v, want none", retry)
	}
	wantMD(t, "trailer", r.trailer, "grpc-retry-pushback-ms", "-1")
	if r := call(t.Context(), conn, echoMethod, ""); len(r.header.Get("x-ratelimit-limit")) != 0 {
		t.Errorf("a call of cost 0 has the header %v, want no quota", r.header)
	}
}

// A negative cost must not reach the store, where it would be a refund.
func TestNegativeCost(t *testing.T) {
	for _, rules := range [][]sluice.Rule{
		{{Name: "one", Limit: sluice.PerHour(5)}},
		{{Name: "one", Limit: sluice.PerHour(5)}, {Name: "two", Limit: sluice.PerHour(5)}},
	} {
		l := limiterOf(t, answering(sluice.Decision{Allowed: true}), rules...)
		cost := grpclimit.Cost(func(context.Context, string, any) int64 { return -1 })
		if r := echo(t, connect(t, &service{}, unary(l, grpclimit.Global(), cost))); r.code() != codes.Internal {
			t.Errorf("%d rules: %v, want INTERNAL", len(rules), r.err)
		}
	}
}

func TestSkip(t *testing.T) {
	l := limiter(t, "api", sluice.PerHour(1))
	skip := grpclimit.Skip(func(m string) bool { return strings.HasSuffix(m, "/Ping") })
	noKey := func(_ context.Context, m string) (string, error) {
		if m == pingMethod {
			return "", errors.New("KeyFunc called for a skipped call")
		}
		return "", nil
	}
	conn := connect(t, &service{}, unary(l, noKey, skip))
	var got []codes.Code
	for _, m := range []string{pingMethod, pingMethod, echoMethod, echoMethod, pingMethod} {
		got = append(got, call(t.Context(), conn, m, "").code())
	}
	wantCodes(t, got, codes.OK, codes.OK, codes.OK, codes.ResourceExhausted, codes.OK)
}

func TestWithoutQuotaMetadata(t *testing.T) {
	l := limiter(t, "api", sluice.PerHour(1))
	conn := connect(t, &service{}, unary(l, grpclimit.Global(), grpclimit.WithoutQuotaMetadata()))
	allowed, denied := echo(t, conn), echo(t, conn)
	if allowed.err != nil || denied.code() != codes.ResourceExhausted {
		t.Fatalf("calls: %v, %v; want one allowed and one denied", allowed.err, denied.err)
	}
	for _, md := range []metadata.MD{allowed.header, allowed.trailer, denied.header, denied.trailer} {
		for name := range md {
			if strings.HasPrefix(name, "x-ratelimit") {
				t.Errorf("there is metadata %v", md)
			}
		}
	}
	if len(denied.trailer.Get("grpc-retry-pushback-ms")) != 1 {
		t.Errorf("trailer = %v, want the pushback", denied.trailer)
	}
}

// Only failures are charged: successful calls are refunded.
func TestChargeIf(t *testing.T) {
	svc := &service{echo: func(_ context.Context, text string) (string, error) {
		switch text {
		case "wrong":
			return "", status.Error(codes.Unauthenticated, text)
		case "slow":
			return "", context.DeadlineExceeded
		}
		return text, nil
	}}
	failures := grpclimit.ChargeIf(func(c codes.Code) bool { return c != codes.OK && c != codes.DeadlineExceeded })
	small := sluice.Must(sluice.PerHour(2).Build())
	byPlan := func(context.Context, string) *sluice.Limit { return small }
	one := sluice.Rule{Name: "one", Limit: sluice.PerHour(2)}
	big := sluice.Rule{Name: "one", Limit: sluice.PerHour(1000)}
	tests := []struct {
		name    string
		limiter *sluice.Limiter
		opts    []grpclimit.Option
	}{
		{"one rule", limiterOf(t, memstore.New(), one), nil},
		{"two rules", limiterOf(t, memstore.New(), one, sluice.Rule{Name: "two", Limit: sluice.PerHour(9)}), nil},
		{"the limiter's own limit", limiter(t, "one", big.Limit, sluice.WithLimitFor(byPlan)), nil},
		{"LimitFor", limiterOf(t, memstore.New(), big), []grpclimit.Option{
			grpclimit.LimitFor(func(ctx context.Context, _, key string) *sluice.Limit { return byPlan(ctx, key) }),
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			conn := connect(t, svc, unary(tt.limiter, grpclimit.Global(), append(tt.opts, failures)...))
			var got []codes.Code
			for _, text := range []string{"right", "right", "slow", "slow", "right", "wrong", "right", "slow", "wrong", "right"} {
				got = append(got, call(t.Context(), conn, echoMethod, text).code())
			}
			wantCodes(t, got, codes.OK, codes.OK, codes.DeadlineExceeded, codes.DeadlineExceeded, codes.OK,
				codes.Unauthenticated, codes.OK, codes.DeadlineExceeded, codes.Unauthenticated, codes.ResourceExhausted)
		})
	}
}

// A call in flight is charged, so that concurrent calls do not exceed the limit.
func TestChargeIfChargesFirst(t *testing.T) {
	var conn *grpc.ClientConn
	inner := make(chan codes.Code, 1)
	svc := &service{echo: func(ctx context.Context, text string) (string, error) {
		if text == "outer" {
			inner <- call(ctx, conn, echoMethod, "inner").code()
		}
		return text, nil
	}}
	l := limiter(t, "api", sluice.PerHour(1))
	conn = connect(t, svc, unary(l, grpclimit.Global(), grpclimit.ChargeIf(func(codes.Code) bool { return false })))
	if r := call(t.Context(), conn, echoMethod, "outer"); r.err != nil {
		t.Fatal(r.err)
	}
	if code := <-inner; code != codes.ResourceExhausted {
		t.Errorf("a second call during the first: %v, want RESOURCE_EXHAUSTED", code)
	}
	if left := remaining(t, l, ""); left != 1 {
		t.Errorf("remaining = %d, want 1", left)
	}
}

// A charge that the store did not make must not be refunded there.
func TestChargeIfWhileStoreFails(t *testing.T) {
	var takes []sluice.Take
	store := storeFunc(func(t []sluice.Take, _ []sluice.Decision) error {
		takes = append(takes, t...)
		return errors.New("down")
	})
	never := grpclimit.ChargeIf(func(codes.Code) bool { return false })
	for _, rules := range [][]sluice.Rule{
		{{Name: "one", Limit: sluice.PerHour(5)}},
		{{Name: "one", Limit: sluice.PerHour(5)}, {Name: "two", Limit: sluice.PerHour(5), OnFailure: sluice.FailOpen}},
	} {
		takes = nil
		conn := connect(t, &service{}, unary(limiterOf(t, store, rules...), grpclimit.Global(), never))
		if r := echo(t, conn); r.err != nil {
			t.Fatal(r.err)
		}
		for _, take := range takes {
			if take.Cost < 0 {
				t.Errorf("%d rules: refunded: %+v", len(rules), take)
			}
		}
	}
}

func TestLimitFor(t *testing.T) {
	big := sluice.Must(sluice.PerHour(3).Build())
	l := limiter(t, "api", sluice.PerHour(1))
	conn := connect(t, &service{}, unary(l, grpclimit.ByMetadata("user"),
		grpclimit.LimitFor(func(_ context.Context, m, key string) *sluice.Limit {
			if m == echoMethod && key == "=gold" {
				return big
			}
			return nil
		})))
	for user, want := range map[string]int{"gold": 3, "iron": 1} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "user", user)
		passed := 0
		for range 5 {
			if r := call(ctx, conn, echoMethod, ""); r.err == nil {
				passed++
			}
		}
		if passed != want {
			t.Errorf("%s: %d calls allowed, want %d", user, passed, want)
		}
	}
}

func TestMistakesPanic(t *testing.T) {
	one := limiter(t, "api", sluice.PerHour(1))
	two := limiterOf(t, memstore.New(), sluice.Rule{Name: "a", Limit: sluice.PerHour(1)}, sluice.Rule{Name: "b", Limit: sluice.PerHour(1)})
	none := limiterOf(t, memstore.New())
	limitFor := grpclimit.LimitFor(func(context.Context, string, string) *sluice.Limit { return nil })
	chargeIf := grpclimit.ChargeIf(func(codes.Code) bool { return true })
	tests := []struct {
		name string
		make func()
		want string
	}{
		{"no limiter", func() { grpclimit.UnaryServerInterceptor(nil, grpclimit.Global()) }, "limiter is nil"},
		{"no rules", func() { grpclimit.StreamServerInterceptor(none, grpclimit.Global()) }, "limiter is nil or has no rules"},
		{"no key", func() { grpclimit.TapHandle(one, nil) }, "nil key"},
		{"LimitFor with two rules", func() { grpclimit.UnaryServerInterceptor(two, grpclimit.Global(), limitFor) }, "one rule"},
		{"tap with ChargeIf", func() { grpclimit.TapHandle(one, grpclimit.Global(), chargeIf) }, "how a call ends"},
		{"tap with PerMessage", func() { grpclimit.TapHandle(one, grpclimit.Global(), grpclimit.PerMessage()) }, "no messages"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, tt.want) {
					t.Errorf("panic = %q, want %q", text, tt.want)
				}
			}()
			tt.make()
		})
	}
}
