package rlstest

import (
	"context"
	"errors"
	"strings"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// StrangeValues are unusual texts that clients can send in a header, all different as bytes. Many of them are equal
// after a careless conversion.
var StrangeValues = []string{
	"\xff", "\xfe", "\uFFFD", "\xff\xff", "\xc3", "\xc3\x28", "\xed\xa0\x80", "\xf0\x90\x80", // not UTF-8, except for U+FFFD
	`\xff`, `"\xff"`, "%FF", "_", "?", // escaped forms of others
	"\x00", "\x00\x00", "a\x00b", "a", "ab", // truncated at NUL, or without it
	"", " ", "a\nb", "a\r\nb", "a:1|c\nx", "a b", "a_b", "\x1b[31m", "\x7f", "a\u202eb", "e\u0301", "\u00e9",
	strings.Repeat("\xff", 2000), strings.Repeat("\xff", 1999) + "\xfe",
}

// RawAnswer returns the server's response to a request with one descriptor of one entry, in the format of [Tell], or
// its error. Unlike generated code it sends any bytes as key and value.
func RawAnswer(ctx context.Context, conn *grpc.ClientConn, domain, key, value string) string {
	field := func(b []byte, number protowire.Number, text string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), text)
	}
	entry := field(field(nil, 1, key), 2, value)
	request := field(field(nil, 1, domain), 2, string(field(nil, 1, string(entry))))
	var reply []byte
	if err := conn.Invoke(ctx, pb.RateLimitService_ShouldRateLimit_FullMethodName, &request, &reply, grpc.ForceCodecV2(rawCodec{})); err != nil {
		return err.Error()
	}
	var resp pb.RateLimitResponse
	if err := proto.Unmarshal(reply, &resp); err != nil {
		return err.Error()
	}
	return Tell(&resp)
}

// rawCodec sends and receives the bytes of messages.
type rawCodec struct{}

var _ encoding.CodecV2 = rawCodec{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, errors.New("rlstest: the message is not a *[]byte")
	}
	return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return errors.New("rlstest: the message is not a *[]byte")
	}
	*b = data.Materialize()
	return nil
}
