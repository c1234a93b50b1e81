package grpclimit_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/grpclimit"
	"github.com/sluiceproject/sluice/memstore"
)

// healthClient runs the health service on a server with these options, in memory, and returns a client for it.
func healthClient(opts ...grpc.ServerOption) (client healthpb.HealthClient, stop func()) {
	lis := bufconn.Listen(1 << 16)
	server := grpc.NewServer(opts...)
	healthpb.RegisterHealthServer(server, health.NewServer())
	go func() {
		if err := server.Serve(lis); err != nil {
			log.Print(err)
		}
	}()
	conn, err := grpc.NewClient("passthrough:///memory",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		log.Fatal(err)
	}
	return healthpb.NewHealthClient(conn), func() {
		_ = conn.Close()
		server.Stop()
	}
}

func ExampleUnaryServerInterceptor() {
	limiter := sluice.Must(sluice.New(memstore.New(), "api", sluice.PerHour(2)))
	client, stop := healthClient(
		grpc.ChainUnaryInterceptor(grpclimit.UnaryServerInterceptor(limiter, grpclimit.ByPeer())))
	defer stop()

	for range 3 {
		var header metadata.MD
		_, err := client.Check(context.Background(), &healthpb.HealthCheckRequest{}, grpc.Header(&header))
		fmt.Println(status.Code(err), header.Get("x-ratelimit-remaining"))
		for _, detail := range status.Convert(err).Details() {
			if retry, ok := detail.(*errdetails.RetryInfo); ok {
				fmt.Println("retry in", retry.GetRetryDelay().AsDuration().Round(time.Minute))
			}
		}
	}
	// Output:
	// OK [1]
	// OK [0]
	// ResourceExhausted []
	// retry in 30m0s
}

func ExampleStreamServerInterceptor() {
	limiter := sluice.Must(sluice.New(memstore.New(), "watches", sluice.PerHour(1)))
	client, stop := healthClient(
		grpc.ChainStreamInterceptor(grpclimit.StreamServerInterceptor(limiter, grpclimit.ByPeer())))
	defer stop()

	for range 2 {
		ctx, cancel := context.WithCancel(context.Background())
		stream, err := client.Watch(ctx, &healthpb.HealthCheckRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		fmt.Println(status.Code(err))
		cancel()
	}
	// Output:
	// OK
	// ResourceExhausted
}

func ExampleTapHandle() {
	// A limit of the whole server, with the cheapest possible denials.
	limiter := sluice.Must(sluice.New(memstore.New(), "all", sluice.PerHour(1)))
	client, stop := healthClient(grpc.InTapHandle(grpclimit.TapHandle(limiter, grpclimit.Global())))
	defer stop()

	for range 2 {
		_, err := client.Check(context.Background(), &healthpb.HealthCheckRequest{})
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// ResourceExhausted
}

// Health checks of load balancers are not limited.
func ExampleSkip() {
	limiter := sluice.Must(sluice.New(memstore.New(), "api", sluice.PerHour(1)))
	client, stop := healthClient(grpc.ChainUnaryInterceptor(
		grpclimit.UnaryServerInterceptor(limiter, grpclimit.ByPeer(), grpclimit.Skip(func(fullMethod string) bool {
			return strings.HasPrefix(fullMethod, "/grpc.health.v1.Health/") ||
				strings.HasPrefix(fullMethod, "/grpc.reflection.")
		}))))
	defer stop()

	for range 3 {
		_, err := client.Check(context.Background(), &healthpb.HealthCheckRequest{})
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// OK
	// OK
}

// Ten failed logins per hour; successful ones are not charged.
func ExampleChargeIf() {
	limiter := sluice.Must(sluice.New(memstore.New(), "wrong-passwords", sluice.PerHour(10)))
	wrong := grpclimit.ChargeIf(func(code codes.Code) bool { return code == codes.Unauthenticated })
	grpc.NewServer(grpc.ChainUnaryInterceptor(
		grpclimit.UnaryServerInterceptor(limiter, grpclimit.ByMetadata("user"), wrong)))
}

// The cost depends on the length of the request.
func ExampleCost() {
	limiter := sluice.Must(sluice.New(memstore.New(), "bytes", sluice.PerMinute(100_000)))
	size := grpclimit.Cost(func(_ context.Context, _ string, req any) int64 {
		q, ok := req.(*healthpb.HealthCheckRequest)
		if !ok {
			return 1
		}
		return 1 + int64(len(q.GetService()))
	})
	grpc.NewServer(grpc.ChainUnaryInterceptor(
		grpclimit.UnaryServerInterceptor(limiter, grpclimit.ByPeer(), size)))
}

// A higher limit for the paid plan.
func ExampleLimitFor() {
	limiter := sluice.Must(sluice.New(memstore.New(), "api", sluice.PerMinute(10)))
	paid := sluice.Must(sluice.PerMinute(1000).Build())
	plan := grpclimit.LimitFor(func(ctx context.Context, _, _ string) *sluice.Limit {
		if v := metadata.ValueFromIncomingContext(ctx, "plan"); len(v) == 1 && v[0] == "paid" {
			return paid
		}
		return nil
	})
	grpc.NewServer(grpc.ChainUnaryInterceptor(
		grpclimit.UnaryServerInterceptor(limiter, grpclimit.ByMetadata("user"), plan)))
}

// 100 messages per second over all streams of a key.
func ExamplePerMessage() {
	limiter := sluice.Must(sluice.New(memstore.New(), "messages", sluice.PerSecond(100)))
	grpc.NewServer(grpc.ChainStreamInterceptor(
		grpclimit.StreamServerInterceptor(limiter, grpclimit.ByPeer(), grpclimit.PerMessage())))
}

func ExampleWithoutQuotaMetadata() {
	limiter := sluice.Must(sluice.New(memstore.New(), "api", sluice.PerHour(2)))
	client, stop := healthClient(grpc.ChainUnaryInterceptor(
		grpclimit.UnaryServerInterceptor(limiter, grpclimit.ByPeer(), grpclimit.WithoutQuotaMetadata())))
	defer stop()

	var header metadata.MD
	_, err := client.Check(context.Background(), &healthpb.HealthCheckRequest{}, grpc.Header(&header))
	fmt.Println(status.Code(err), header.Get("x-ratelimit-remaining"))
	// Output: OK []
}

// Each user has a bucket per method.
func ExampleCombine() {
	key := grpclimit.Combine(grpclimit.ByMetadata("user"), grpclimit.ByMethod())
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("user", "alice"))
	fmt.Println(key(ctx, "/shop.Cart/Add"))
	// Output: 6:=alice14:/shop.Cart/Add <nil>
}

// A key per service instead of per method.
func ExampleByFunc() {
	key := grpclimit.ByFunc(func(_ context.Context, fullMethod string) string {
		return fullMethod[:strings.LastIndexByte(fullMethod, '/')+1]
	})
	fmt.Println(key(context.Background(), "/shop.Cart/Add"))
	// Output: /shop.Cart/ <nil>
}

// A key that rejects calls without a tenant.
func ExampleKeyFunc() {
	var key grpclimit.KeyFunc = func(ctx context.Context, _ string) (string, error) {
		v := metadata.ValueFromIncomingContext(ctx, "tenant")
		if len(v) != 1 {
			return "", status.Error(codes.Unauthenticated, "missing metadata: tenant")
		}
		return v[0], nil
	}
	fmt.Println(key(context.Background(), "/shop.Cart/Add"))
	// Output: rpc error: code = Unauthenticated desc = missing metadata: tenant
}
