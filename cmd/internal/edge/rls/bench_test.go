package rls_test

import (
	"context"
	"net"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rulefile"
)

// empty is a service of generated code that does nothing.
type empty struct {
	pb.UnimplementedRateLimitServiceServer
}

func (empty) ShouldRateLimit(context.Context, *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	return &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK}, nil
}

// BenchmarkServer compares a whole call, client included, with one to a server of generated code that does nothing.
func BenchmarkServer(b *testing.B) {
	b.Run("empty", func(b *testing.B) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		server := grpc.NewServer()
		pb.RegisterRateLimitServiceServer(server, empty{})
		go func() { _ = server.Serve(listener) }()
		b.Cleanup(server.Stop)
		conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { conn.Close() })
		benchmark(b, conn)
	})
	b.Run("sluice", func(b *testing.B) {
		d := decider(b, memstore.New(), rls.Options{}, rulefile.Options{},
			rulesIn(b, "  - {key: a, rate_limit: {unit: second, requests_per_unit: 10000000}}\n"))
		benchmark(b, dial(b, d, rls.Bounds{}))
	})
}

func benchmark(b *testing.B, conn *grpc.ClientConn) {
	client := pb.NewRateLimitServiceClient(conn)
	req := request("d", "a", "some-user")
	if resp, err := client.ShouldRateLimit(b.Context(), req); err != nil || resp.GetOverallCode() != pb.RateLimitResponse_OK {
		b.Fatal(resp, err)
	}
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if _, err := client.ShouldRateLimit(context.Background(), req); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
