package upstream_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
)

// echo replies to each message with its text, and fails on the message "fail".
func echo(_ any, s grpc.ServerStream) error {
	md, _ := metadata.FromIncomingContext(s.Context())
	_ = s.SetHeader(metadata.Pairs("x-heard", strings.Join(md.Get("x-said"), ",")))
	s.SetTrailer(metadata.Pairs("x-after", "done"))
	for {
		var m wrapperspb.StringValue
		if err := s.RecvMsg(&m); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if m.Value == "fail" {
			return status.Error(codes.ResourceExhausted, "enough of that")
		}
		if err := s.SendMsg(&m); err != nil {
			return err
		}
	}
}

var echoService = grpc.ServiceDesc{
	ServiceName: "test.Echo", HandlerType: (*any)(nil),
	Streams: []grpc.StreamDesc{{StreamName: "Talk", Handler: echo, ServerStreams: true, ClientStreams: true}},
}

// gRPC is forwarded: bidirectional streams, metadata, and the status in the trailers.
func TestGRPC(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	s.RegisterService(&echoService, nil)
	go func() { _ = s.Serve(l) }()
	defer s.Stop()
	gw, g := gateway(t, upstream.Config{Servers: []string{"h2c://" + l.Addr().String()}})
	conn, err := grpc.NewClient("passthrough:"+gw.Listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	talk := func(ctx context.Context) grpc.ClientStream {
		stream, err := conn.NewStream(metadata.AppendToOutgoingContext(ctx, "x-said", "hello"), &echoService.Streams[0], "/test.Echo/Talk")
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	say := func(stream grpc.ClientStream, text string) (string, error) {
		if err := stream.SendMsg(wrapperspb.String(text)); err != nil {
			return "", err
		}
		var m wrapperspb.StringValue
		err := stream.RecvMsg(&m)
		return m.Value, err
	}
	stream := talk(t.Context())
	for _, text := range []string{"one", "two", strings.Repeat("x", 100_000)} {
		if got, err := say(stream, text); err != nil || got != text { // each reply arrives before the next message is sent
			t.Errorf("%.20q %v", got, err)
		}
	}
	if md, _ := stream.Header(); strings.Join(md.Get("x-heard"), "") != "hello" {
		t.Errorf("%v", md)
	}
	_ = stream.CloseSend()
	if err := stream.RecvMsg(new(wrapperspb.StringValue)); err != io.EOF || strings.Join(stream.Trailer().Get("x-after"), "") != "done" {
		t.Errorf("%v %v", err, stream.Trailer())
	}

	stream = talk(t.Context())
	if _, err := say(stream, "fail"); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "enough of that") {
		t.Errorf("%v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	stream = talk(ctx)
	if _, err := say(stream, "x"); err != nil {
		t.Error(err)
	}
	cancel()
	if err := stream.RecvMsg(new(wrapperspb.StringValue)); status.Code(err) != codes.Canceled {
		t.Errorf("%v", err)
	}
	if s := g.Status()[0]; s.Failures != 0 || s.Requests != 3 {
		t.Errorf("%+v", s)
	}
}
