// Command grpc is a rate limited gRPC server, and a client that exceeds the limit.
package main

import (
	"context"
	"fmt"
	"log"
	"net"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/grpclimit"
	"github.com/sluiceproject/sluice/memstore"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	limiter, err := sluice.New(memstore.New(), "api", sluice.PerMinute(3))
	if err != nil {
		return err
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpclimit.UnaryServerInterceptor(limiter, grpclimit.ByPeer())),
		grpc.ChainStreamInterceptor(grpclimit.StreamServerInterceptor(limiter, grpclimit.ByPeer())),
	)
	healthpb.RegisterHealthServer(server, health.NewServer())
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()

	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	for range 4 {
		ask(ctx, healthpb.NewHealthClient(conn))
	}
	if err := conn.Close(); err != nil {
		return err
	}
	server.GracefulStop()
	return <-served
}

// ask makes one call and prints the remaining quota or the details of the denial.
func ask(ctx context.Context, client healthpb.HealthClient) {
	var header, trailer metadata.MD
	_, err := client.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
	if err == nil {
		fmt.Println("OK, remaining:", header.Get("x-ratelimit-remaining"))
		return
	}
	fmt.Println(err)
	for _, detail := range status.Convert(err).Details() {
		switch d := detail.(type) {
		case *errdetails.RetryInfo:
			fmt.Println("  retry after", d.GetRetryDelay().AsDuration())
		case *errdetails.QuotaFailure:
			for _, v := range d.GetViolations() {
				fmt.Printf("  rule %s: %s\n", v.GetSubject(), v.GetDescription())
			}
		}
	}
	fmt.Println("  pushback in ms:", trailer.Get("grpc-retry-pushback-ms"))
}
