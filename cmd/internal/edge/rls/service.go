package rls

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	// The generated code puts the protocol's files where server reflection finds them.
	_ "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// ServiceName is the protocol's name of the service.
const ServiceName = "envoy.service.ratelimit.v3.RateLimitService"

// Service answers requests. An error is best made by grpc/status: others become Unknown. The request, the response and
// what they hold are good until ShouldRateLimit returns. It is called by many goroutines at once.
type Service interface {
	ShouldRateLimit(ctx context.Context, req *Request, resp *Response) error
}

// ServerOption is what a gRPC server that [Register] is used with has to be made with. Messages of other services, such
// as health, are left to gRPC's own codec.
func ServerOption() grpc.ServerOption {
	return grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(proto.Name)})
}

// Observer is told of each request how it was answered, or why it was not, and when it was taken up.
type Observer func(overall Code, err error, began time.Time)

// Register has the gRPC server answer by the service. Requests beyond the bounds are refused with InvalidArgument. At
// most one observer is told, also of those.
func Register(r grpc.ServiceRegistrar, s Service, bounds Bounds, observe ...Observer) {
	answer := handler(bounds.WithDefaults())
	if len(observe) > 0 {
		answer = observed(answer, observe[0])
	}
	r.RegisterService(&grpc.ServiceDesc{
		ServiceName: ServiceName,
		HandlerType: (*Service)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: answer}},
		Metadata:    "envoy/service/ratelimit/v3/rls.proto",
	}, s)
}

// call is the memory of one call. It is taken from the pool when a call begins. When it goes back depends on how the call
// ends: after an error at once, and with an answer when gRPC has written it, which it says by [call.Put].
type call struct {
	req     Request
	resp    Response
	bounds  Bounds
	fault   error      // of the received bytes
	receive mem.Buffer // which the request's strings are part of
	out     []byte
	overall Code // of what is in out
}

// keptBytes is the largest buffer that a call keeps for the next; smallBytes is what it begins with, and more than what
// gRPC would not pool.
const (
	keptBytes  = 64 << 10
	smallBytes = 2 << 10
	// keptEntries is how many entries, or descriptors, a call keeps room for.
	keptEntries = 1 << 10
)

var calls = sync.Pool{New: func() any { return &call{out: make([]byte, 0, smallBytes)} }}

// Get makes a call the pool that gRPC returns its bytes to. It is never asked for any.
func (*call) Get(int) *[]byte { panic("rls: a call is asked for a buffer") }

// Put is called when the answer has been written.
func (c *call) Put(*[]byte) { c.recycle() }

// recycle lets go of what the call refers to, and of memory that only a rare request needs.
func (c *call) recycle() {
	c.fault = nil
	if cap(c.out) > keptBytes {
		c.out = make([]byte, 0, smallBytes)
	}
	if cap(c.req.entries) > keptEntries || cap(c.req.Descriptors) > keptEntries {
		c.req, c.resp = Request{}, Response{}
	}
	calls.Put(c)
}

// free gives the received bytes back; the request's strings are gone with them.
func (c *call) free() {
	c.req.Reset()
	c.resp.Reset()
	if c.receive != nil {
		c.receive.Free()
		c.receive = nil
	}
}

func handler(bounds Bounds) grpc.MethodHandler {
	return func(s any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		c := calls.Get().(*call)
		c.bounds = bounds
		err := decode(c)
		if err == nil {
			err = c.fault
			if err != nil {
				err = status.Error(faultCode(err), err.Error())
			}
		}
		if err == nil {
			err = c.answer(ctx, s.(Service), interceptor)
		}
		c.free()
		if err != nil {
			c.recycle()
			return nil, err
		}
		return c, nil
	}
}

func faultCode(err error) codes.Code {
	if bound := (*BoundError)(nil); errors.As(err, &bound) {
		return bound.code
	}
	return codes.InvalidArgument
}

// observed tells of what a handler answers. It looks at the answer before gRPC writes it, since then it is another's.
func observed(answer grpc.MethodHandler, observe Observer) grpc.MethodHandler {
	return func(s any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		began := time.Now()
		out, err := answer(s, ctx, decode, interceptor)
		overall := CodeUnknown
		if c, ok := out.(*call); ok {
			overall = c.overall
		}
		observe(overall, err, began)
		return out, err
	}
}

// answer has the service decide, and writes what it says.
func (c *call) answer(ctx context.Context, s Service, interceptor grpc.UnaryServerInterceptor) (err error) {
	if interceptor == nil {
		err = s.ShouldRateLimit(ctx, &c.req, &c.resp)
	} else {
		info := &grpc.UnaryServerInfo{Server: s, FullMethod: "/" + ServiceName + "/ShouldRateLimit"}
		_, err = interceptor(ctx, &c.req, info, func(ctx context.Context, _ any) (any, error) {
			return &c.resp, s.ShouldRateLimit(ctx, &c.req, &c.resp)
		})
	}
	if err == nil {
		c.overall = c.resp.Overall
		c.out, err = c.resp.Append(c.out[:0])
	}
	return err
}

// codec reads and writes calls, and leaves other messages to gRPC's codec.
type codec struct{ others encoding.CodecV2 }

func (c codec) Name() string { return c.others.Name() }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	call, ok := v.(*call)
	if !ok {
		return c.others.Marshal(v)
	}
	return mem.BufferSlice{mem.NewBuffer(&call.out, call)}, nil
}

// Unmarshal keeps what is wrong with a request for the handler, because gRPC would call it an internal error.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	call, ok := v.(*call)
	if !ok {
		return c.others.Unmarshal(data, v)
	}
	if len(data) == 1 {
		call.receive = data[0]
		call.receive.Ref()
	} else {
		call.receive = data.MaterializeToBuffer(mem.DefaultBufferPool())
	}
	if err := call.req.Decode(call.receive.ReadOnlyData(), call.bounds); err != nil {
		call.fault = fmt.Errorf("rate limit request: %w", err)
	}
	return nil
}
