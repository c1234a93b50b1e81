package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/grpclimit"
)

// streaming returns a server option that limits streams.
func streaming(l *sluice.Limiter, key grpclimit.KeyFunc, opts ...grpclimit.Option) grpc.ServerOption {
	return grpc.StreamInterceptor(grpclimit.StreamServerInterceptor(l, key, opts...))
}

// exchange is the result of a stream.
type exchange struct {
	texts           []string // the replies
	header, trailer metadata.MD
	err             error // nil if the status is OK
}

// chat sends the messages one by one, each after the reply to the previous one.
func chat(t testing.TB, conn *grpc.ClientConn, method string, texts ...string) (e exchange) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: method != listMethod}, method)
	if err != nil {
		t.Fatal(err)
	}
	receive := func() error {
		var out wrapperspb.StringValue
		err := stream.RecvMsg(&out)
		if err == nil {
			e.texts = append(e.texts, out.GetValue())
		}
		return err
	}
	for _, text := range texts {
		if err = stream.SendMsg(wrapperspb.String(text)); err == nil || errors.Is(err, io.EOF) {
			err = receive()
		}
		if err != nil {
			break
		}
	}
	if err == nil {
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		err = receive()
	}
	e.header, _ = stream.Header()
	e.trailer = stream.Trailer()
	if !errors.Is(err, io.EOF) {
		e.err = err
	}
	return e
}

func TestStreamPerCall(t *testing.T) {
	l := limiter(t, "streams", sluice.PerHour(2))
	conn := connect(t, &service{}, streaming(l, grpclimit.ByMethod()))
	for _, left := range []string{"1", "0"} {
		e := chat(t, conn, chatMethod, "a", "b", "c", "d")
		if e.err != nil || len(e.texts) != 4 {
			t.Fatalf("stream: %q, %v; want a reply to every message", e.texts, e.err)
		}
		wantMD(t, "header", e.header, "x-ratelimit-limit", "2", "x-ratelimit-remaining", left)
		wantMD(t, "trailer", e.trailer, "x-ratelimit-limit", "")
	}
	e := chat(t, conn, chatMethod, "a")
	if status.Code(e.err) != codes.ResourceExhausted || len(e.texts) != 0 {
		t.Fatalf("third stream: %q, %v; want RESOURCE_EXHAUSTED", e.texts, e.err)
	}
	retry, quota := explained(t, e.err)
	if retry.GetRetryDelay().AsDuration() <= 0 || len(quota.GetViolations()) != 1 {
		t.Errorf("details = %v, %v; want both", retry, quota)
	}
	wantMD(t, "trailer", e.trailer, "x-ratelimit-limit", "2", "x-ratelimit-remaining", "0")
	if len(e.trailer.Get("grpc-retry-pushback-ms")) != 1 {
		t.Errorf("trailer %v has no pushback", e.trailer)
	}
	if e := chat(t, conn, listMethod, "a"); e.err != nil {
		t.Errorf("another method: %v", e.err)
	}
}

func TestStreamPerMessage(t *testing.T) {
	l := limiter(t, "messages", sluice.PerHour(6))
	conn := connect(t, &service{}, streaming(l, grpclimit.Global(), grpclimit.PerMessage()))
	// The call and three messages.
	if e := chat(t, conn, chatMethod, "a", "b", "c"); e.err != nil || len(e.texts) != 3 {
		t.Fatalf("stream: %q, %v; want three replies", e.texts, e.err)
	}
	if left := remaining(t, l, ""); left != 2 {
		t.Fatalf("remaining = %d, want 2", left)
	}
	// The call and one message are allowed; the second message is denied.
	e := chat(t, conn, chatMethod, "a", "b", "c")
	if status.Code(e.err) != codes.ResourceExhausted || len(e.texts) != 1 {
		t.Fatalf("stream: %q, %v; want one reply and RESOURCE_EXHAUSTED", e.texts, e.err)
	}
	if retry, quota := explained(t, e.err); retry == nil || len(quota.GetViolations()) != 1 {
		t.Errorf("details = %v, %v; want both", retry, quota)
	}
	wantMD(t, "header", e.header, "x-ratelimit-remaining", "1")
	wantMD(t, "trailer", e.trailer, "x-ratelimit-remaining", "0")
	if len(e.trailer.Get("grpc-retry-pushback-ms")) != 1 {
		t.Errorf("trailer %v has no pushback", e.trailer)
	}
}

// A server stream receives one message: with the call that makes two.
func TestServerStreamPerMessage(t *testing.T) {
	l := limiter(t, "messages", sluice.PerHour(6))
	conn := connect(t, &service{}, streaming(l, grpclimit.Global(), grpclimit.PerMessage()))
	if e := chat(t, conn, listMethod, "a"); e.err != nil {
		t.Fatal(e.err)
	}
	if left := remaining(t, l, ""); left != 4 {
		t.Errorf("remaining = %d, want 4", left)
	}
}

// Only messages are charged if a call has cost 0.
func TestStreamMessageCost(t *testing.T) {
	l := limiter(t, "bytes", sluice.PerHour(10))
	cost := grpclimit.Cost(func(ctx context.Context, m string, req any) int64 {
		if req == nil {
			return 0
		}
		return byLength(ctx, m, req)
	})
	conn := connect(t, &service{}, streaming(l, grpclimit.Global(), grpclimit.PerMessage(), cost))
	if e := chat(t, conn, chatMethod, "abc", "abcd", "", "abc"); e.err != nil || len(e.texts) != 4 {
		t.Fatalf("stream: %q, %v; want four replies", e.texts, e.err)
	}
	if e := chat(t, conn, chatMethod, "", "a"); status.Code(e.err) != codes.ResourceExhausted || len(e.texts) != 1 {
		t.Errorf("stream: %q, %v; want one reply and RESOURCE_EXHAUSTED", e.texts, e.err)
	}
}

// A handler that ignores the denial can neither continue nor hide it from the client.
func TestStreamEndsWhateverHandlerDoes(t *testing.T) {
	results := make(chan error, 3)
	stubborn := &service{chat: func(ss grpc.ServerStream) error {
		var in wrapperspb.StringValue
		if err := ss.RecvMsg(&in); err != nil {
			return err
		}
		if err := ss.SendMsg(&in); err != nil {
			return err
		}
		results <- ss.RecvMsg(&in)
		results <- ss.SendMsg(&in)
		results <- ss.RecvMsg(&in)
		return nil
	}}
	l := limiter(t, "messages", sluice.PerHour(2))
	e := chat(t, connect(t, stubborn, streaming(l, grpclimit.Global(), grpclimit.PerMessage())), chatMethod, "a", "b", "c")
	if status.Code(e.err) != codes.ResourceExhausted || len(e.texts) != 1 {
		t.Fatalf("stream: %q, %v; want one reply and RESOURCE_EXHAUSTED", e.texts, e.err)
	}
	for range 3 {
		if err := <-results; status.Code(err) != codes.ResourceExhausted {
			t.Errorf("the handler saw %v, want RESOURCE_EXHAUSTED", err)
		}
	}
}

func TestStreamChargeIf(t *testing.T) {
	svc := &service{chat: func(ss grpc.ServerStream) error {
		var in wrapperspb.StringValue
		if err := ss.RecvMsg(&in); err != nil {
			return err
		}
		if in.GetValue() == "bad" {
			return status.Error(codes.InvalidArgument, "bad")
		}
		return ss.SendMsg(&in)
	}}
	l := limiter(t, "streams", sluice.PerHour(2))
	conn := connect(t, svc, streaming(l, grpclimit.Global(), grpclimit.ChargeIf(func(c codes.Code) bool { return c == codes.OK })))
	var got []codes.Code
	for _, text := range []string{"bad", "bad", "bad", "good", "bad", "good", "good"} {
		got = append(got, status.Code(chat(t, conn, chatMethod, text).err))
	}
	wantCodes(t, got, codes.InvalidArgument, codes.InvalidArgument, codes.InvalidArgument, codes.OK, codes.InvalidArgument,
		codes.OK, codes.ResourceExhausted)
}

func TestStreamSkip(t *testing.T) {
	l := limiter(t, "streams", sluice.PerHour(1))
	conn := connect(t, &service{}, streaming(l, grpclimit.Global(), grpclimit.Skip(func(m string) bool { return m == listMethod })))
	for range 3 {
		if e := chat(t, conn, listMethod, "a"); e.err != nil || len(e.header.Get("x-ratelimit-limit")) != 0 {
			t.Errorf("skipped stream: %v, %v", e.header, e.err)
		}
	}
	if left := remaining(t, l, ""); left != 1 {
		t.Errorf("remaining = %d, want 1", left)
	}
}

func TestStreamKeyFails(t *testing.T) {
	l := limiter(t, "streams", sluice.PerHour(1))
	key := func(context.Context, string) (string, error) { return "", errors.New("10.1.2.3") }
	e := chat(t, connect(t, &service{}, streaming(l, key)), chatMethod, "a")
	if st := status.Convert(e.err); st.Code() != codes.Internal || st.Message() != "the rate limit could not be checked" {
		t.Errorf("status = %v, want INTERNAL", st)
	}
}
