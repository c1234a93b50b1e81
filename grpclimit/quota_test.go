package grpclimit_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/grpclimit"
	"github.com/sluiceproject/sluice/memstore"
)

func TestQuotaRoundsUp(t *testing.T) {
	for reset, want := range map[time.Duration]string{
		0: "0", time.Microsecond: "1", time.Second: "1", time.Second + time.Microsecond: "2", 90 * time.Second: "90",
	} {
		d := sluice.Decision{Allowed: true, Limit: 100, Remaining: 42, ResetAfter: reset}
		l := limiterOf(t, answering(d), sluice.Rule{Name: "api", Limit: sluice.PerHour(100)})
		r := echo(t, connect(t, &service{}, unary(l, grpclimit.Global())))
		wantMD(t, "header", r.header, "x-ratelimit-limit", "100", "x-ratelimit-remaining", "42", "x-ratelimit-reset", want)
	}
}

func TestQuotaOfDenial(t *testing.T) {
	tests := []struct {
		decision sluice.Decision
		want     string
	}{
		{sluice.Decision{RetryAfter: 2380 * time.Millisecond, ResetAfter: time.Hour}, "3"},
		{sluice.Decision{ResetAfter: time.Hour}, "1"},
		{sluice.Decision{ExceedsLimit: true, ResetAfter: time.Minute}, ""}, // no retry can succeed
	}
	for _, tt := range tests {
		l := limiterOf(t, answering(tt.decision), sluice.Rule{Name: "api", Limit: sluice.PerHour(100)})
		r := echo(t, connect(t, &service{}, unary(l, grpclimit.Global())))
		if got := strings.Join(r.trailer.Get("x-ratelimit-reset"), ","); got != tt.want {
			t.Errorf("%+v: x-ratelimit-reset is %q, want %q", tt.decision, got, tt.want)
		}
	}
}

// The quota is sent exactly once, in the header or the trailer depending on the handler.
func TestQuotaArrives(t *testing.T) {
	own := metadata.Pairs("own", "1")
	failed := status.Error(codes.NotFound, "nothing there")
	tests := []struct {
		name      string
		unary     func(ctx context.Context) error
		stream    func(ss grpc.ServerStream) error
		inTrailer bool
	}{
		{
			"reply", func(context.Context) error { return nil },
			func(ss grpc.ServerStream) error { return ss.SendMsg(wrapperspb.String("x")) }, false,
		},
		{
			"own header set", func(ctx context.Context) error { return grpc.SetHeader(ctx, own) },
			func(ss grpc.ServerStream) error { return ss.SetHeader(own) }, false,
		},
		{
			"own header sent", func(ctx context.Context) error { return grpc.SendHeader(ctx, own) },
			func(ss grpc.ServerStream) error { return grpc.SendHeader(ss.Context(), own) }, true,
		},
		{
			"own header sent, then an error",
			func(ctx context.Context) error { _ = grpc.SendHeader(ctx, own); return failed },
			func(ss grpc.ServerStream) error { _ = grpc.SendHeader(ss.Context(), own); return failed }, true,
		},
		{
			"error", func(context.Context) error { return failed },
			func(grpc.ServerStream) error { return failed }, true,
		},
		{
			"nothing", func(context.Context) error { return nil },
			func(grpc.ServerStream) error { return nil }, false,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := limiter(t, "api", sluice.PerHour(100))
			svc := &service{
				echo: func(ctx context.Context, _ string) (string, error) { return "", tt.unary(ctx) },
				chat: tt.stream,
			}
			conn := connect(t, svc, unary(l, grpclimit.Global()), streaming(l, grpclimit.Global()))
			check := func(kind string, header, trailer metadata.MD) {
				want, other := header, trailer
				if tt.inTrailer {
					want, other = trailer, header
				}
				wantMD(t, kind, want, "x-ratelimit-limit", "100")
				wantMD(t, kind, other, "x-ratelimit-limit", "")
			}
			r := echo(t, conn)
			check("unary", r.header, r.trailer)
			e := chat(t, conn, chatMethod)
			check("stream", e.header, e.trailer)
		})
	}
}

// A header that the handler sends through the stream contains the quota.
func TestQuotaInStreamHeader(t *testing.T) {
	svc := &service{chat: func(ss grpc.ServerStream) error { return ss.SendHeader(metadata.Pairs("own", "1")) }}
	e := chat(t, connect(t, svc, streaming(limiter(t, "api", sluice.PerHour(100)), grpclimit.Global())), chatMethod)
	wantMD(t, "header", e.header, "own", "1", "x-ratelimit-limit", "100")
	wantMD(t, "trailer", e.trailer, "x-ratelimit-limit", "")
}

// If an inner limiter denies, the client gets the quota of the inner one.
func TestQuotaOfInnerDenial(t *testing.T) {
	outer, inner := limiter(t, "outer", sluice.PerHour(100)), limiter(t, "inner", sluice.PerHour(1))
	conn := connect(t, &service{},
		grpc.ChainUnaryInterceptor(
			grpclimit.UnaryServerInterceptor(outer, grpclimit.Global()), grpclimit.UnaryServerInterceptor(inner, grpclimit.Global())),
		grpc.ChainStreamInterceptor(
			grpclimit.StreamServerInterceptor(outer, grpclimit.Global()), grpclimit.StreamServerInterceptor(inner, grpclimit.Global())))
	if r := echo(t, conn); r.err != nil {
		t.Fatal(r.err)
	}
	r := echo(t, conn)
	wantMD(t, "unary", r.trailer, "x-ratelimit-limit", "1")
	e := chat(t, conn, chatMethod, "a")
	wantMD(t, "stream", e.trailer, "x-ratelimit-limit", "1")
	if r.code() != codes.ResourceExhausted || status.Code(e.err) != codes.ResourceExhausted {
		t.Errorf("calls: %v, %v; want both denied", r.err, e.err)
	}
}

// The quota of a rule in shadow mode is not sent, alone and with other rules.
func TestQuotaOfShadowRule(t *testing.T) {
	trial := sluice.Rule{Name: "trial", Limit: sluice.PerHour(1), Shadow: true}
	alone := connect(t, &service{}, unary(limiterOf(t, memstore.New(), trial), grpclimit.Global()))
	beside := connect(t, &service{}, unary(limiterOf(t, memstore.New(), trial, sluice.Rule{Name: "roomy", Limit: sluice.PerHour(100)}), grpclimit.Global()))
	for i := range 3 {
		r := echo(t, alone)
		if r.err != nil {
			t.Fatal(r.err)
		}
		for _, name := range []string{"limit", "remaining", "reset"} {
			if got := r.header.Get("x-ratelimit-" + name); len(got) > 0 {
				t.Errorf("x-ratelimit-%s = %v, want none", name, got)
			}
		}
		if r = echo(t, beside); r.err != nil {
			t.Fatal(r.err)
		}
		wantMD(t, "header", r.header, "x-ratelimit-limit", "100", "x-ratelimit-remaining", strconv.Itoa(99-i))
	}
}
