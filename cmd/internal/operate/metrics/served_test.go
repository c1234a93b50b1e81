package metrics_test

import (
	"context"
	"net"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/cmd/internal/operate/metrics"
	"github.com/sluiceproject/sluice/memstore"
)

const served = "domain: d\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 1000000000}}, {key: spent, rate_limit: {unit: year, requests_per_unit: 1}}]\n"

// service decides in the memory store and counts decisions in m if it is not nil.
func service(b *testing.B, m *metrics.Metrics, l *live) (*rls.Decider, []rls.Observer) {
	b.Helper()
	var options []sluice.Option
	var observe []rls.Observer
	if m != nil {
		options = append(options, sluice.WithEvents(m.Events()))
		requests := m.Requests("rls", "OK", "OVER_LIMIT")
		observe = append(observe, func(overall rls.Code, _ error, began time.Time) { requests.Done(overall.String(), began) })
	}
	limiter, err := sluice.NewWithRules(memstore.New(), nil, options...)
	if err != nil {
		b.Fatal(err)
	}
	return rls.NewDecider(limiter, l.Load, rls.Options{}), observe
}

func asked(k string) *pb.RateLimitRequest {
	return &pb.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: k, Value: "some-user"}}},
	}}
}

// BenchmarkOverhead measures the cost of metrics per decision, from received to sent bytes, and per request of a client on
// the same host.
func BenchmarkOverhead(b *testing.B) {
	for _, k := range []string{"k", "spent"} {
		for _, with := range []string{"without", "with"} {
			l := rulesOf(b, served)
			var m *metrics.Metrics
			if with == "with" {
				m = metrics.New(metrics.Config{Rules: l.Load})
			}
			d, observe := service(b, m, l)
			b.Run("decision/"+k+"/"+with, func(b *testing.B) { benchmarkDecision(b, d, observe, k) })
			b.Run("request/"+k+"/"+with, func(b *testing.B) { benchmarkRequest(b, d, observe, k) })
		}
	}
}

func benchmarkDecision(b *testing.B, d *rls.Decider, observe []rls.Observer, k string) {
	wire, err := proto.Marshal(asked(k))
	if err != nil {
		b.Fatal(err)
	}
	var in rls.Request
	var out rls.Response
	buffer := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		var began time.Time
		if len(observe) > 0 {
			began = time.Now()
		}
		out.Reset()
		if err := in.Decode(wire, rls.Bounds{}); err != nil {
			b.Fatal(err)
		}
		if err := d.ShouldRateLimit(context.Background(), &in, &out); err != nil {
			b.Fatal(err)
		}
		if buffer, err = out.Append(buffer[:0]); err != nil {
			b.Fatal(err)
		}
		for _, o := range observe {
			o(out.Overall, nil, began)
		}
	}
}

func benchmarkRequest(b *testing.B, d *rls.Decider, observe []rls.Observer, k string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := grpc.NewServer(rls.ServerOption())
	rls.Register(server, d, rls.Bounds{}, observe...)
	go func() { _ = server.Serve(listener) }()
	b.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	client, req := pb.NewRateLimitServiceClient(conn), asked(k)
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
