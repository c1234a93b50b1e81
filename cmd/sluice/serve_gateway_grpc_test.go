package main

import (
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// echoService returns each message, and ends with a status if a message asks for it.
var echoService = grpc.ServiceDesc{
	ServiceName: "test.Echo", HandlerType: (*any)(nil),
	Streams: []grpc.StreamDesc{
		{StreamName: "Talk", Handler: echoStream, ServerStreams: true, ClientStreams: true},
		{StreamName: "Limited", Handler: echoStream, ServerStreams: true, ClientStreams: true},
	},
}

func echoStream(_ any, s grpc.ServerStream) error {
	md, _ := metadata.FromIncomingContext(s.Context())
	_ = s.SetHeader(metadata.Pairs("x-heard", strings.Join(md.Get("x-said"), ","), "x-for", strings.Join(md.Get("x-forwarded-for"), ",")))
	s.SetTrailer(metadata.Pairs("x-after", "done", "x-after-bin", "\x00\xff"))
	for {
		var m wrapperspb.StringValue
		if err := s.RecvMsg(&m); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if code, ok := strings.CutPrefix(m.Value, "fail "); ok {
			n, _ := strconv.Atoi(code)
			return status.Error(codes.Code(n), "as you say: 100 %")
		}
		if err := s.SendMsg(&m); err != nil {
			return err
		}
	}
}

// echoServer starts the service and the standard health service, and returns the address.
func echoServer(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	s.RegisterService(&echoService, nil)
	healthpb.RegisterHealthServer(s, health.NewServer())
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

// dials are the dial options for the gateway's addresses, with and without TLS.
func (f *front) dials(t *testing.T) map[string]*grpc.ClientConn {
	t.Helper()
	trust, err := credentials.NewClientTLSFromFile(f.ca, "")
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*grpc.ClientConn{
		"in clear": connect(t, "passthrough:"+f.plain, grpc.WithTransportCredentials(insecure.NewCredentials())),
		"by TLS":   connect(t, "passthrough:"+f.tls, grpc.WithTransportCredentials(trust)),
	}
}

// talk opens a stream with the given key.
func talk(t *testing.T, conn *grpc.ClientConn, method, key string) grpc.ClientStream {
	t.Helper()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-said", "hello", "x-api-key", key, "x-forwarded-for", "192.0.2.1")
	stream, err := conn.NewStream(ctx, &echoService.Streams[0], method)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func sayOnce(stream grpc.ClientStream, text string) (string, error) {
	if err := stream.SendMsg(wrapperspb.String(text)); err != nil && err != io.EOF {
		return "", err
	}
	var m wrapperspb.StringValue
	err := stream.RecvMsg(&m)
	return m.Value, err
}

// The gateway passes unary and bidirectional calls, metadata, trailers, and every status.
func grpcClient(t *testing.T, f *front) {
	for name, conn := range f.dials(t) {
		resp, err := healthpb.NewHealthClient(conn).Check(t.Context(), new(healthpb.HealthCheckRequest))
		if err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%s: %v, %v", name, resp, err)
		}
		if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "x"}); status.Code(err) != codes.NotFound {
			t.Errorf("%s: %v", name, err)
		}
		stream := talk(t, conn, "/test.Echo/Talk", "talk")
		for _, text := range []string{"one", "", strings.Repeat("x", 1_000_000), "two"} { // each response is read before the next message is sent
			if got, err := sayOnce(stream, text); err != nil || got != text {
				t.Fatalf("%s: %.20q %v", name, got, err)
			}
		}
		if md, _ := stream.Header(); strings.Join(md.Get("x-heard"), "") != "hello" || strings.Join(md.Get("x-for"), "") != "127.0.0.1" {
			t.Errorf("%s: %v", name, md)
		}
		_ = stream.CloseSend()
		if err := stream.RecvMsg(new(wrapperspb.StringValue)); err != io.EOF ||
			strings.Join(stream.Trailer().Get("x-after"), "") != "done" || strings.Join(stream.Trailer().Get("x-after-bin"), "") != "\x00\xff" {
			t.Errorf("%s: %v %v", name, err, stream.Trailer())
		}
		for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
			stream := talk(t, conn, "/test.Echo/Talk", "talk")
			if _, err := sayOnce(stream, "fail "+strconv.Itoa(int(code))); status.Code(err) != code || status.Convert(err).Message() != "as you say: 100 %" {
				t.Errorf("%s: status %v: %v", name, code, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		left, err := conn.NewStream(ctx, &echoService.Streams[0], "/test.Echo/Talk")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sayOnce(left, "x"); err != nil {
			t.Error(err)
		}
		cancel()
		if err := left.RecvMsg(new(wrapperspb.StringValue)); status.Code(err) != codes.Canceled {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Denials and rejections of the gateway are gRPC statuses: a client over a limit gets the status and the time until a retry.
func grpcRefused(t *testing.T, f *front) {
	for name, conn := range f.dials(t) {
		stream := talk(t, conn, "/test.Echo/Limited", "limited "+name)
		if got, err := sayOnce(stream, "one"); err != nil || got != "one" {
			t.Fatalf("%s: %q %v", name, got, err)
		}
		_ = stream.CloseSend()
		stream = talk(t, conn, "/test.Echo/Limited", "limited "+name)
		_, err := sayOnce(stream, "two")
		if status.Code(err) != codes.ResourceExhausted || !strings.HasPrefix(status.Convert(err).Message(), "Rate limit calls exceeded; retry in ") {
			t.Errorf("%s: %v", name, err)
		}
		trailer := stream.Trailer()
		ms, err := strconv.Atoi(strings.Join(trailer.Get("grpc-retry-pushback-ms"), ","))
		if err != nil || ms < 1_000_000 || ms > 3_600_000 {
			t.Errorf("%s: retry after %v ms", name, trailer.Get("grpc-retry-pushback-ms"))
		}
		if strings.Join(trailer.Get("x-ratelimit-remaining"), "") != "0" {
			t.Errorf("%s: the trailer is %v", name, trailer)
		}
		for method, want := range map[string]codes.Code{
			"/test.Nobody/Call":  codes.Unavailable,   // its server is unavailable
			"/test.Echo/a%2fb":   codes.Internal,      // an invalid path
			"/test.Echo/Nothing": codes.Unimplemented, // the status of the service
		} {
			if _, err := sayOnce(talk(t, conn, method, "refused"), "x"); status.Code(err) != want || status.Convert(err).Message() == "" {
				t.Errorf("%s: %s: %v, want %v", name, method, err, want)
			}
		}
	}
}
