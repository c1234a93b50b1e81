package rls_test

import (
	"context"
	"net"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sluiceproject/sluice/internal/rls"
)

// serviceFunc is a service.
type serviceFunc func(context.Context, *rls.Request, *rls.Response) error

func (f serviceFunc) ShouldRateLimit(ctx context.Context, req *rls.Request, resp *rls.Response) error {
	return f(ctx, req, resp)
}

// dial starts a server with the service, and connects to it.
func dial(t testing.TB, s rls.Service, bounds rls.Bounds, opts ...grpc.ServerOption) *grpc.ClientConn {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(append(opts, rls.ServerOption())...)
	rls.Register(server, s, bounds)
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

// request is a request with one descriptor.
func request(domain, k, value string) *pb.RateLimitRequest {
	return &pb.RateLimitRequest{Domain: domain, Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: k, Value: value}}},
	}}
}

// A client made of generated code gets through to the service and back, again and again on the same memory.
func TestServiceEndToEnd(t *testing.T) {
	echo := func(_ context.Context, req *rls.Request, resp *rls.Response) error {
		if req.Domain == "fails" {
			return status.Error(codes.Unavailable, "the store is away")
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
		t.Errorf("the messages of other services do not get through: %v", err)
	}
}
