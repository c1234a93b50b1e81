package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

const (
	echoMethod = "/test.Echo/Echo"
	pingMethod = "/test.Echo/Ping"
	chatMethod = "/test.Echo/Chat"
	listMethod = "/test.Echo/List"
)

// service is the test service. The zero service echoes.
type service struct {
	echo func(ctx context.Context, text string) (string, error)
	chat func(stream grpc.ServerStream) error
}

func (s *service) unary(ctx context.Context, text string) (string, error) {
	if s.echo != nil {
		return s.echo(ctx, text)
	}
	return text, nil
}

// stream replies to each message until the client closes the stream.
func (s *service) stream(ss grpc.ServerStream) error {
	if s.chat != nil {
		return s.chat(ss)
	}
	for {
		var in wrapperspb.StringValue
		switch err := ss.RecvMsg(&in); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := ss.SendMsg(&in); err != nil {
			return err
		}
	}
}

func unaryMethod(name string) grpc.MethodDesc {
	return grpc.MethodDesc{
		MethodName: name,
		Handler: func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			in := new(wrapperspb.StringValue)
			if err := dec(in); err != nil {
				return nil, err
			}
			handler := func(ctx context.Context, req any) (any, error) {
				text, err := srv.(*service).unary(ctx, req.(*wrapperspb.StringValue).GetValue())
				if err != nil {
					return nil, err
				}
				return wrapperspb.String(text), nil
			}
			if interceptor == nil {
				return handler(ctx, in)
			}
			info := &grpc.UnaryServerInfo{Server: srv, FullMethod: "/test.Echo/" + name}
			return interceptor(ctx, in, info, handler)
		},
	}
}

func streamMethod(name string, fromClient bool) grpc.StreamDesc {
	return grpc.StreamDesc{
		StreamName: name, ServerStreams: true, ClientStreams: fromClient,
		Handler: func(srv any, ss grpc.ServerStream) error { return srv.(*service).stream(ss) },
	}
}

var desc = grpc.ServiceDesc{
	ServiceName: "test.Echo",
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{unaryMethod("Echo"), unaryMethod("Ping")},
	Streams:     []grpc.StreamDesc{streamMethod("Chat", true), streamMethod("List", false)},
}

// serve runs the service on a listener. The returned function stops it and waits until it has ended.
func serve(t testing.TB, lis net.Listener, svc *service, opts ...grpc.ServerOption) (stop func()) {
	t.Helper()
	server := grpc.NewServer(opts...)
	server.RegisterService(&desc, svc)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := server.Serve(lis); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return func() {
		server.Stop()
		wg.Wait()
	}
}

// connect runs the service in memory and returns a connection to it.
func connect(t testing.TB, svc *service, opts ...grpc.ServerOption) *grpc.ClientConn {
	t.Helper()
	return connectWith(t, svc, nil, opts...)
}

func connectWith(t testing.TB, svc *service, dial []grpc.DialOption, opts ...grpc.ServerOption) *grpc.ClientConn {
	t.Helper()
	lis := bufconn.Listen(1 << 16)
	stop := serve(t, lis, svc, opts...)
	dial = append(dial,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	conn, err := grpc.NewClient("passthrough:///memory", dial...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		stop()
	})
	return conn
}

// reply is the result of a unary call.
type reply struct {
	text            string
	header, trailer metadata.MD
	err             error
}

func (r reply) code() codes.Code { return status.Code(r.err) }

func call(ctx context.Context, conn *grpc.ClientConn, method, text string) (r reply) {
	var out wrapperspb.StringValue
	r.err = conn.Invoke(ctx, method, wrapperspb.String(text), &out, grpc.Header(&r.header), grpc.Trailer(&r.trailer))
	r.text = out.GetValue()
	return r
}

func echo(t testing.TB, conn *grpc.ClientConn) reply {
	t.Helper()
	return call(t.Context(), conn, echoMethod, "hello")
}

// explained returns the details of a status.
func explained(t testing.TB, err error) (retry *errdetails.RetryInfo, quota *errdetails.QuotaFailure) {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			retry = d
		case *errdetails.QuotaFailure:
			quota = d
		default:
			t.Errorf("unexpected detail %T: %v", d, d)
		}
	}
	return retry, quota
}

func wantCodes(t testing.TB, got []codes.Code, want ...codes.Code) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("codes = %v, want %v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("codes = %v, want %v", got, want)
		}
	}
}

func limiter(t testing.TB, name string, limit sluice.Limit, opts ...sluice.Option) *sluice.Limiter {
	t.Helper()
	l, err := sluice.New(memstore.New(), name, limit, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func limiterOf(t testing.TB, store sluice.Store, rules ...sluice.Rule) *sluice.Limiter {
	t.Helper()
	made := make([]*sluice.Rule, len(rules))
	for i, r := range rules {
		made[i] = sluice.Must(sluice.NewRule(r))
	}
	l, err := sluice.NewWithRules(store, made)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// remaining returns the remaining quota of a key under the most restrictive rule.
func remaining(t testing.TB, l *sluice.Limiter, key string) int64 {
	t.Helper()
	d, err := l.Peek(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

// storeFunc is a store whose decisions a function makes.
type storeFunc func(takes []sluice.Take, out []sluice.Decision) error

func (f storeFunc) Apply(_ context.Context, takes []sluice.Take, out []sluice.Decision) error {
	return f(takes, out)
}

// answering returns a store that always makes the same decision.
func answering(d sluice.Decision) sluice.Store {
	return storeFunc(func(_ []sluice.Take, out []sluice.Decision) error {
		for i := range out {
			out[i] = d
		}
		return nil
	})
}

// broken is an unavailable store.
var broken = storeFunc(func([]sluice.Take, []sluice.Decision) error {
	return errors.New("dial tcp 10.1.2.3:6379: connection refused")
})
