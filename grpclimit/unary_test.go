package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/grpclimit"
	"github.com/sluiceproject/sluice/memstore"
)

// unary returns a server option that limits unary calls.
func unary(l *sluice.Limiter, key grpclimit.KeyFunc, opts ...grpclimit.Option) grpc.ServerOption {
	return grpc.UnaryInterceptor(grpclimit.UnaryServerInterceptor(l, key, opts...))
}

func wantMD(t testing.TB, what string, md metadata.MD, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		want := []string{pairs[i+1]}
		if pairs[i+1] == "" {
			want = nil
		}
		if got := md.Get(pairs[i]); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s %s = %q, want %q", what, pairs[i], got, want)
		}
	}
}

// checkAllowedAndDenied makes three calls under a limit of two per hour, over IPv4 loopback or in memory.
func checkAllowedAndDenied(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	for i, left := range []string{"1", "0"} {
		r := echo(t, conn)
		if r.err != nil || r.text != "hello" {
			t.Fatalf("call %d: %q, %v; want the echo", i, r.text, r.err)
		}
		wantMD(t, "header", r.header, "x-ratelimit-limit", "2", "x-ratelimit-remaining", left, "x-ratelimit-degraded", "")
		if len(r.header.Get("x-ratelimit-reset")) != 1 {
			t.Errorf("call %d: header %v has no x-ratelimit-reset", i, r.header)
		}
		wantMD(t, "trailer", r.trailer, "x-ratelimit-limit", "", "grpc-retry-pushback-ms", "")
	}
	r := echo(t, conn)
	if r.code() != codes.ResourceExhausted {
		t.Fatalf("third call: %v, want RESOURCE_EXHAUSTED", r.err)
	}
	retry, quota := explained(t, r.err)
	if d := retry.GetRetryDelay().AsDuration(); d <= 29*time.Minute || d > 30*time.Minute {
		t.Errorf("RetryInfo = %v, want just under 30 minutes", d)
	}
	if v := quota.GetViolations(); len(v) != 1 || v[0].GetSubject() != "api" || v[0].GetDescription() == "" {
		t.Errorf("QuotaFailure = %v, want one of the rule api", quota)
	}
	wantMD(t, "trailer", r.trailer, "x-ratelimit-limit", "2", "x-ratelimit-remaining", "0")
	if len(r.trailer.Get("grpc-retry-pushback-ms")) != 1 {
		t.Errorf("trailer %v has no pushback", r.trailer)
	}
}

func TestUnaryInMemory(t *testing.T) {
	l := limiter(t, "api", sluice.PerHour(2))
	checkAllowedAndDenied(t, connect(t, &service{}, unary(l, grpclimit.ByPeer())))
	if left := remaining(t, l, "bufconn/bufconn"); left != 0 {
		t.Errorf("remaining = %d, want 0", left)
	}
}

func TestUnaryOverTCP(t *testing.T) {
	l := limiter(t, "api", sluice.PerHour(2))
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(serve(t, lis, &service{}, unary(l, grpclimit.ByPeer())))
	// Each call uses a new connection, and so another port.
	dial := func() *grpc.ClientConn {
		conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	checkAllowedAndDenied(t, dial())
	if r := echo(t, dial()); r.code() != codes.ResourceExhausted {
		t.Errorf("another connection: %v, want RESOURCE_EXHAUSTED", r.err)
	}
	if left := remaining(t, l, "127.0.0.1"); left != 0 {
		t.Errorf("remaining = %d, want 0", left)
	}
}

func TestDenial(t *testing.T) {
	const month = 30 * 24 * time.Hour
	tests := []struct {
		name     string
		decision sluice.Decision
		message  string
		retry    time.Duration // negative: no RetryInfo
		pushback string
	}{
		{"exact", sluice.Decision{RetryAfter: 2380001 * time.Microsecond}, `limit "api" reached: retry after 2.381s`, 2380001 * time.Microsecond, "2381"},
		{"whole", sluice.Decision{RetryAfter: 3 * time.Second}, `limit "api" reached: retry after 3s`, 3 * time.Second, "3000"},
		{"short", sluice.Decision{RetryAfter: time.Microsecond}, `limit "api" reached: retry after 1ms`, time.Microsecond, "1"},
		{"zero", sluice.Decision{}, `limit "api" reached: retry after 0s`, 0, "1"},
		{"never", sluice.Decision{ExceedsLimit: true, Limit: 7}, `limit "api": cost 1 exceeds the limit of 7`, -1, "-1"},
		{"never with a time", sluice.Decision{ExceedsLimit: true, RetryAfter: time.Second}, `limit "api": cost 1 exceeds the limit of 0`, -1, "-1"},
		{"long", sluice.Decision{RetryAfter: 2147483647 * time.Millisecond}, `limit "api" reached: retry after 596h31m23.647s`, 2147483647 * time.Millisecond, "2147483647"},
		{"too long", sluice.Decision{RetryAfter: month}, `limit "api" reached: retry after 720h0m0s`, month, "-1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := limiterOf(t, answering(tt.decision), sluice.Rule{Name: "api", Limit: sluice.PerHour(2)})
			r := echo(t, connect(t, &service{}, unary(l, grpclimit.Global())))
			if st := status.Convert(r.err); st.Code() != codes.ResourceExhausted || st.Message() != tt.message {
				t.Errorf("status = %v, want RESOURCE_EXHAUSTED %s", st, tt.message)
			}
			retry, quota := explained(t, r.err)
			switch {
			case (retry == nil) != (tt.retry < 0):
				t.Errorf("RetryInfo = %v, want %v", retry, tt.retry)
			case retry != nil && retry.GetRetryDelay().AsDuration() != tt.retry:
				t.Errorf("RetryInfo = %v, want %v", retry.GetRetryDelay().AsDuration(), tt.retry)
			}
			if v := quota.GetViolations(); len(v) != 1 || v[0].GetSubject() != "api" || v[0].GetQuotaValue() != tt.decision.Limit {
				t.Errorf("violations = %v, want one of the rule api", v)
			}
			wantMD(t, "trailer", r.trailer, "grpc-retry-pushback-ms", tt.pushback)
		})
	}
}

func TestFailModes(t *testing.T) {
	tests := []struct {
		mode      sluice.FailMode
		code      codes.Code
		degraded  string
		remaining string
	}{
		{sluice.FailLocal, codes.OK, "local", "1"},
		{sluice.FailOpen, codes.OK, "open", ""},
		{sluice.FailClosed, codes.Unavailable, "closed", ""},
	}
	for _, tt := range tests {
		t.Run(tt.degraded, func(t *testing.T) {
			l := limiterOf(t, broken, sluice.Rule{Name: "api", Limit: sluice.PerHour(2), OnFailure: tt.mode})
			r := echo(t, connect(t, &service{}, unary(l, grpclimit.Global())))
			if r.code() != tt.code {
				t.Fatalf("call: %v, want %v", r.err, tt.code)
			}
			md := r.header
			if tt.code != codes.OK {
				md = r.trailer
				retry, quota := explained(t, r.err)
				if retry.GetRetryDelay().AsDuration() != time.Second || quota != nil {
					t.Errorf("details = %v, %v; want to retry after 1s, and no quota", retry, quota)
				}
				wantMD(t, "trailer", md, "grpc-retry-pushback-ms", "1000")
				if strings.Contains(r.err.Error(), "6379") {
					t.Errorf("the error contains details of the store: %v", r.err)
				}
			}
			wantMD(t, "metadata", md, "x-ratelimit-limit", "2", "x-ratelimit-degraded", tt.degraded, "x-ratelimit-remaining", tt.remaining)
		})
	}
}

// A rule that fails closed and a rule that denies: the one with the longer RetryAfter determines the status.
func TestFailClosedBesideDenial(t *testing.T) {
	closed := sluice.Rule{Name: "closed", Limit: sluice.PerHour(2), OnFailure: sluice.FailClosed}
	l := limiterOf(t, broken, closed, sluice.Rule{Name: "local", Limit: sluice.PerHour(1)})
	conn := connect(t, &service{}, unary(l, grpclimit.Global()))
	for range 2 { // a call that one rule denies is not charged by the other
		if r := echo(t, conn); r.code() != codes.Unavailable {
			t.Fatalf("%v, want UNAVAILABLE", r.err)
		}
	}
	l = limiterOf(t, broken, closed, sluice.Rule{Name: "local", Limit: sluice.PerHour(0).WithAlgorithm(sluice.FixedWindow)})
	conn = connect(t, &service{}, unary(l, grpclimit.Global()))
	r := echo(t, conn)
	if r.code() != codes.ResourceExhausted {
		t.Fatalf("%v, want RESOURCE_EXHAUSTED", r.err)
	}
	if _, quota := explained(t, r.err); len(quota.GetViolations()) != 1 || quota.GetViolations()[0].GetSubject() != "local" {
		t.Errorf("violations = %v, want local alone", quota)
	}
}

func TestErrors(t *testing.T) {
	secret := fmt.Errorf("%w: at 10.1.2.3", sluice.ErrInvalid)
	invalid := storeFunc(func([]sluice.Take, []sluice.Decision) error { return secret })
	keyFails := func(err error) grpclimit.KeyFunc {
		return func(context.Context, string) (string, error) { return "", err }
	}
	tests := []struct {
		name  string
		store sluice.Store
		key   grpclimit.KeyFunc
		code  codes.Code
		text  string
	}{
		{"invalid", invalid, grpclimit.Global(), codes.Internal, "the rate limit could not be checked"},
		{"key", memstore.New(), keyFails(secret), codes.Internal, "the rate limit could not be checked"},
		{"key with a status", memstore.New(), keyFails(status.Error(codes.Unauthenticated, "who?")), codes.Unauthenticated, "who?"},
		{"key with an empty status", memstore.New(), keyFails(okError{}), codes.Internal, "the rate limit could not be checked"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := limiterOf(t, tt.store, sluice.Rule{Name: "api", Limit: sluice.PerHour(2), OnFailure: sluice.FailOpen})
			st := status.Convert(echo(t, connect(t, &service{}, unary(l, tt.key))).err)
			if st.Code() != tt.code || st.Message() != tt.text {
				t.Errorf("status = %v, want %v %s", st, tt.code, tt.text)
			}
		})
	}
}

// okError is an error with the gRPC status OK.
type okError struct{}

func (okError) Error() string              { return "fine" }
func (okError) GRPCStatus() *status.Status { return status.New(codes.OK, "fine") }

// A call whose context is done gets the status of the context error, not an error of the store.
func TestContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	store := storeFunc(func([]sluice.Take, []sluice.Decision) error {
		cancel()
		return errors.New("10.1.2.3 says no")
	})
	l := limiterOf(t, store, sluice.Rule{Name: "api", Limit: sluice.PerHour(2)})
	_, err := grpclimit.UnaryServerInterceptor(l, grpclimit.Global())(ctx, nil, &grpc.UnaryServerInfo{}, nil)
	if st := status.Convert(err); st.Code() != codes.Canceled || st.Message() != context.Canceled.Error() {
		t.Errorf("status = %v, want CANCELLED", st)
	}
}

func TestSeveralRules(t *testing.T) {
	l := limiterOf(t, memstore.New(),
		sluice.Rule{Name: "hour", Limit: sluice.PerHour(3)},
		sluice.Rule{Name: "day", Limit: sluice.PerDay(3)},
		sluice.Rule{Name: "roomy", Limit: sluice.PerDay(1000)},
		sluice.Rule{Name: "trial", Limit: sluice.PerDay(1), Shadow: true})
	conn := connect(t, &service{}, unary(l, grpclimit.Global()))
	for i := range 3 {
		if r := echo(t, conn); r.err != nil {
			t.Fatalf("call %d: %v", i, r.err)
		}
	}
	r := echo(t, conn)
	if st := status.Convert(r.err); st.Code() != codes.ResourceExhausted || !strings.HasPrefix(st.Message(), `limit "day" reached`) {
		t.Fatalf("fourth call: %v, want the rule with the longest RetryAfter", st)
	}
	retry, quota := explained(t, r.err)
	if d := retry.GetRetryDelay().AsDuration(); d < 7*time.Hour {
		t.Errorf("RetryInfo = %v, want that of the day", d)
	}
	var names []string
	for _, v := range quota.GetViolations() {
		names = append(names, v.GetSubject())
	}
	if fmt.Sprint(names) != "[hour day]" {
		t.Errorf("violations = %v, want [hour day]", names)
	}
	out := make([]sluice.Decision, 1)
	if _, err := l.Decide(t.Context(), []sluice.Take{{Rule: l.Rules()[2]}}, out); err != nil || out[0].Remaining != 997 {
		t.Errorf("roomy has %d remaining, %v; want 997: a denied call is not charged", out[0].Remaining, err)
	}
}

// The key may be a secret and is not part of any response.
func TestKeyStaysPrivate(t *testing.T) {
	const secret = "token-4711"
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", secret)
	l := limiter(t, "api", sluice.PerHour(1))
	conn := connect(t, &service{}, unary(l, grpclimit.ByMetadata("authorization")))
	if r := call(ctx, conn, echoMethod, ""); r.err != nil {
		t.Fatal(r.err)
	}
	r := call(ctx, conn, echoMethod, "")
	if r.code() != codes.ResourceExhausted {
		t.Fatalf("call: %v, want RESOURCE_EXHAUSTED", r.err)
	}
	for _, text := range []string{status.Convert(r.err).Proto().String(), fmt.Sprint(r.header), fmt.Sprint(r.trailer)} {
		if strings.Contains(text, secret) {
			t.Errorf("the key is in %s", text)
		}
	}
	if r := echo(t, conn); r.err != nil {
		t.Errorf("a caller without the entry: %v, want a separate bucket", r.err)
	}
}

// Protocol buffers reject text that is not UTF-8; the details would be lost.
func TestOddRuleName(t *testing.T) {
	l := limiterOf(t, answering(sluice.Decision{RetryAfter: time.Second}), sluice.Rule{Name: "a\xffb", Limit: sluice.PerHour(1)})
	r := echo(t, connect(t, &service{}, unary(l, grpclimit.Global())))
	if _, quota := explained(t, r.err); len(quota.GetViolations()) != 1 || quota.GetViolations()[0].GetSubject() != "a\uFFFDb" {
		t.Errorf("violations = %v, want one of a\uFFFDb", quota)
	}
}
