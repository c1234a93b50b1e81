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

	// The generated code registers the protocol's files for server reflection.
	_ "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// ServiceName is the full gRPC name of the service.
const ServiceName = "envoy.service.ratelimit.v3.RateLimitService"

// Service decides requests. Errors should be gRPC statuses: others become Unknown. The request, the response and their
// content are valid until ShouldRateLimit returns. It must be safe for concurrent use.
type Service interface {
	ShouldRateLimit(ctx context.Context, req *Request, resp *Response) error
}

// ServerOption returns the option that a gRPC server must be created with for [Register]. Messages of other services, such
// as health, use gRPC's own codec.
func ServerOption() grpc.ServerOption {
	return grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(proto.Name)})
}

// Observer is called after each request with its overall code or error, and its start time.
type Observer func(overall Code, err error, began time.Time)

// Register registers the service with a gRPC server. Requests with too many descriptors are rejected with InvalidArgument,
// those that are too large with ResourceExhausted. At most one observer is used; it observes rejected requests too.
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

// call is the reusable state of one call. It is taken from the pool when a call begins and returned when it ends: after an
// error at once, and with a response when gRPC has written it and calls [call.Put].
type call struct {
	req     Request
	resp    Response
	bounds  Bounds
	fault   error      // error of decoding the request
	receive mem.Buffer // received bytes, into which the strings of the request point
	out     []byte
	overall Code // overall code of the response in out
}

// keptBytes is the maximum size of a buffer that is reused. smallBytes is the initial size, above the size from which gRPC
// returns buffers to their pool.
const (
	keptBytes  = 64 << 10
	smallBytes = 2 << 10
	// keptEntries is the maximum number of entries and of descriptors whose memory is reused.
	keptEntries = 1 << 10
)

var calls = sync.Pool{New: func() any { return &call{out: make([]byte, 0, smallBytes)} }}

// Get implements mem.BufferPool, so that gRPC returns the buffer of a response to its call. It is never called.
func (*call) Get(int) *[]byte { panic("rls: Get called on a call") }

// Put is called by gRPC when the response has been written.
func (c *call) Put(*[]byte) { c.recycle() }

// recycle returns the call to the pool. It frees memory that only unusually large requests need.
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

// free returns the received bytes to gRPC. The strings of the request are then invalid.
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

// observed wraps a handler to call observe. It reads the response before gRPC writes it, after which the call is reused.
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

// answer calls the service and encodes its response.
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

// codec decodes and encodes calls, and uses gRPC's codec for other messages.
type codec struct{ others encoding.CodecV2 }

func (c codec) Name() string { return c.others.Name() }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	call, ok := v.(*call)
	if !ok {
		return c.others.Marshal(v)
	}
	return mem.BufferSlice{mem.NewBuffer(&call.out, call)}, nil
}

// Unmarshal stores the error of an invalid request for the handler, because gRPC would report it as Internal.
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
