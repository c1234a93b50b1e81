package grpclimit_test

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/grpclimit"
	"github.com/sluiceproject/sluice/memstore"
)

// transport is a server transport stream that counts the metadata that an interceptor sets.
type transport struct{ header, trailer int }

func (*transport) Method() string                 { return echoMethod }
func (s *transport) SetHeader(metadata.MD) error  { s.header++; return nil }
func (s *transport) SendHeader(metadata.MD) error { return nil }
func (s *transport) SetTrailer(metadata.MD) error { s.trailer++; return nil }

func handled(context.Context, any) (any, error) { return nil, nil }

func plenty(name string, n int64) sluice.Rule {
	return sluice.Rule{Name: name, Limit: sluice.PerSecond(n)}
}

func callContext(s *transport) context.Context {
	ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 1}})
	return grpc.NewContextWithServerTransportStream(ctx, s)
}

// BenchmarkUnary is the interceptor alone, without a network.
func BenchmarkUnary(b *testing.B) {
	const most = 10_000_000 // never reached
	tests := []struct {
		name  string
		rules []sluice.Rule
		want  codes.Code
		opts  []grpclimit.Option
	}{
		{"allowed", []sluice.Rule{plenty("a", most)}, codes.OK, nil},
		{"allowed without quota", []sluice.Rule{plenty("a", most)}, codes.OK, []grpclimit.Option{grpclimit.WithoutQuotaMetadata()}},
		{"allowed by three", []sluice.Rule{plenty("a", most), plenty("b", most), plenty("c", most)}, codes.OK, []grpclimit.Option{grpclimit.WithoutQuotaMetadata()}},
		{"denied", []sluice.Rule{{Name: "a", Limit: sluice.PerHour(0).WithAlgorithm(sluice.FixedWindow)}}, codes.ResourceExhausted, nil},
	}
	for _, tt := range tests {
		b.Run(tt.name, func(b *testing.B) {
			s := &transport{}
			ctx := callContext(s)
			interceptor := grpclimit.UnaryServerInterceptor(limiterOf(b, memstore.New(), tt.rules...), grpclimit.ByPeer(), tt.opts...)
			info := &grpc.UnaryServerInfo{FullMethod: echoMethod}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := interceptor(ctx, nil, info, handled); status.Code(err) != tt.want {
					b.Fatalf("call: %v, want %v", err, tt.want)
				}
			}
			if told := s.header+s.trailer > 0; told != (tt.opts == nil) {
				b.Fatalf("quota sent: %v", told)
			}
		})
	}
}
