package rls_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
)

// serviceFunc is a function as a service.
type serviceFunc func(context.Context, *rls.Request, *rls.Response) error

func (f serviceFunc) ShouldRateLimit(ctx context.Context, req *rls.Request, resp *rls.Response) error {
	return f(ctx, req, resp)
}

// dial starts a server with the service and returns a client.
func dial(t testing.TB, s rls.Service, bounds rls.Bounds, opts ...grpc.ServerOption) *grpc.ClientConn {
	t.Helper()
	return dialRegistered(t, func(r grpc.ServiceRegistrar) { rls.Register(r, s, bounds) }, opts...)
}

func dialRegistered(t testing.TB, register func(grpc.ServiceRegistrar), opts ...grpc.ServerOption) *grpc.ClientConn {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(append(opts, rls.ServerOption())...)
	register(server)
	healthpb.RegisterHealthServer(server, health.NewServer())
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return conn
}

// request returns a request with one descriptor.
func request(domain, k, value string) *pb.RateLimitRequest {
	return &pb.RateLimitRequest{Domain: domain, Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: k, Value: value}}},
	}}
}

// A client of generated code calls the service repeatedly, on reused memory.
func TestServiceEndToEnd(t *testing.T) {
	echo := func(_ context.Context, req *rls.Request, resp *rls.Response) error {
		if req.Domain == "fails" {
			return status.Error(codes.Unavailable, "store unavailable")
		}
		resp.Overall = rls.CodeOK
		for _, d := range req.Descriptors {
			resp.Statuses = append(resp.Statuses, rls.Status{
				Code: rls.CodeOverLimit, HasLimit: true, Remaining: 7, HasReset: true, Reset: 300,
				Limit: rls.Limit{Requests: 10, Unit: rls.Week, Name: strings.Clone(d.Entries[0].Value)},
			})
		}
		resp.Headers = append(resp.Headers, rls.Header{Name: "x", Value: "y"})
		return nil
	}
	conn := dial(t, serviceFunc(echo), rls.Bounds{})
	client := pb.NewRateLimitServiceClient(conn)
	for _, value := range []string{"a", strings.Repeat("long", 200), ""} {
		got, err := client.ShouldRateLimit(t.Context(), request("d", "k", value))
		if err != nil {
			t.Fatal(err)
		}
		want := (&rls.Response{
			Overall: rls.CodeOK,
			Statuses: []rls.Status{{
				Code: rls.CodeOverLimit, HasLimit: true, Remaining: 7, HasReset: true, Reset: 300,
				Limit: rls.Limit{Requests: 10, Unit: rls.Week, Name: value},
			}},
			Headers: []rls.Header{{Name: "x", Value: "y"}},
		}).Proto()
		if !proto.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if _, err := client.ShouldRateLimit(t.Context(), request("fails", "k", value)); status.Code(err) != codes.Unavailable {
			t.Errorf("got %v, want Unavailable", err)
		}
	}
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("calls of other services fail: %v", err)
	}
}

// The observer gets the result of each request, including those rejected before the service is called.
func TestObserver(t *testing.T) {
	decide := func(_ context.Context, req *rls.Request, resp *rls.Response) error {
		resp.Overall = rls.CodeOverLimit
		switch req.Domain {
		case "ok":
			resp.Overall = rls.CodeOK
		case "fails":
			return status.Error(codes.Unavailable, "store unavailable")
		}
		return nil
	}
	told := make(chan string, 1)
	start := time.Now()
	observe := func(overall rls.Code, err error, began time.Time) {
		if began.Before(start) || began.After(time.Now()) {
			t.Errorf("it began at %v", began)
		}
		told <- fmt.Sprint(overall, " ", status.Code(err))
	}
	client := pb.NewRateLimitServiceClient(dialRegistered(t, func(r grpc.ServiceRegistrar) {
		rls.Register(r, serviceFunc(decide), rls.Bounds{Message: 40}, observe)
	}))
	for _, tt := range []struct{ domain, want string }{
		{"ok", "OK OK"}, {"over", "OVER_LIMIT OK"}, {"fails", "UNKNOWN Unavailable"}, {strings.Repeat("long", 9), "UNKNOWN ResourceExhausted"},
	} {
		_, _ = client.ShouldRateLimit(t.Context(), request(tt.domain, "k", "v"))
		if got := <-told; got != tt.want {
			t.Errorf("%s: observed %s, want %s", tt.domain, got, tt.want)
		}
	}
}

// Concurrent requests of many sizes get their own responses: no two calls use the same memory.
func TestManyAtOnce(t *testing.T) {
	echo := func(_ context.Context, req *rls.Request, resp *rls.Response) error {
		resp.Overall = rls.CodeOK
		for _, d := range req.Descriptors {
			resp.Statuses = append(resp.Statuses, rls.Status{HasLimit: true, Limit: rls.Limit{Name: d.Entries[0].Value}})
		}
		return nil
	}
	client := pb.NewRateLimitServiceClient(dial(t, serviceFunc(echo), rls.Bounds{}))
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := range 50 {
				req := &pb.RateLimitRequest{Domain: "d"}
				for j := range 1 + (worker*7+i)%32 { // up to 24 KB, sent in several frames
					value := strings.Repeat(fmt.Sprintf("%d/%d/%d ", worker, i, j), 1+i)
					req.Descriptors = append(req.Descriptors, request("", "k", value).GetDescriptors()...)
				}
				resp, err := client.ShouldRateLimit(t.Context(), req)
				if err != nil {
					t.Error(err)
					return
				}
				for j, s := range resp.GetStatuses() {
					want := req.GetDescriptors()[j].GetEntries()[0].GetValue()
					if got := s.GetCurrentLimit().GetName(); got != want {
						t.Errorf("got %q, want %q", got, want)
						return
					}
				}
			}
		})
	}
	all.Wait()
}

// An invalid request returns InvalidArgument, and the service is not called.
func TestWrongRequests(t *testing.T) {
	asked := func(context.Context, *rls.Request, *rls.Response) error {
		t.Error("the service is called")
		return nil
	}
	conn := dial(t, serviceFunc(asked), rls.Bounds{Descriptors: 1, Message: 64 << 10}, grpc.MaxRecvMsgSize(128<<10))
	client := pb.NewRateLimitServiceClient(conn)
	two := request("d", "k", "v")
	two.Descriptors = append(two.Descriptors, two.Descriptors...)
	_, err := client.ShouldRateLimit(t.Context(), two)
	if want := "rate limit request: more than 1 descriptors"; status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	_, err = client.ShouldRateLimit(t.Context(), request("d", "k", strings.Repeat("x", 64<<10)))
	if want := "raise listeners.grpc.max_message_size"; status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want ResourceExhausted and %s", err, want)
	}
	err = conn.Invoke(t.Context(), "/"+rls.ServiceName+"/ShouldRateLimit", wrapperspb.Bytes([]byte{0xff}), &pb.RateLimitResponse{})
	if want := "the domain is not UTF-8"; status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Interceptors see the messages and can reject them.
func TestInterceptor(t *testing.T) {
	intercept := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if req.(*rls.Request).Domain == "refused" || info.FullMethod != pb.RateLimitService_ShouldRateLimit_FullMethodName {
			return nil, status.Error(codes.PermissionDenied, "no")
		}
		return next(ctx, req)
	}
	ok := func(_ context.Context, _ *rls.Request, resp *rls.Response) error {
		resp.Overall = rls.CodeOK
		return nil
	}
	client := pb.NewRateLimitServiceClient(dial(t, serviceFunc(ok), rls.Bounds{}, grpc.UnaryInterceptor(intercept)))
	if resp, err := client.ShouldRateLimit(t.Context(), request("d", "k", "v")); err != nil || resp.GetOverallCode() != pb.RateLimitResponse_OK {
		t.Errorf("got %v, %v", resp, err)
	}
	if _, err := client.ShouldRateLimit(t.Context(), request("refused", "k", "v")); status.Code(err) != codes.PermissionDenied {
		t.Errorf("got %v, want PermissionDenied", err)
	}
}
