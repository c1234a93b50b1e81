package main

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// A wire is the encoding of requests to a server and of its responses. Requests are encoded beforehand and responses
// are parsed in place, so that the client uses little CPU time, and the same for all servers.
type wire struct {
	method string
	encode func(keys []string) []byte
	// read returns, for each key of the request, whether it is over its limit and what remains.
	read  func(reply []byte) ([]verdictOf, error)
	floor bool // its response is constant
}

type verdictOf struct {
	over      bool
	remaining int64
}

// check returns a function that checks a response for this many keys.
func (w wire) check(keys int, over bool) func(reply []byte) error {
	if w.floor {
		over = false
	}
	return func(reply []byte) error {
		verdicts, err := w.read(reply)
		if err != nil {
			return err
		}
		if len(verdicts) != keys {
			return failf("%d decisions for %d keys", len(verdicts), keys)
		}
		for _, v := range verdicts {
			if v.over != over {
				return failf("over the limit: %t, want %t", v.over, over)
			}
		}
		return nil
	}
}

func (w wire) remaining(reply []byte) (all []int64, err error) {
	verdicts, err := w.read(reply)
	for _, v := range verdicts {
		all = append(all, v.remaining)
	}
	return all, err
}

// rlsWire is envoy.service.ratelimit.v3. Keys are values of the descriptor entry "user"; the hot key has its own rule.
var rlsWire = wire{
	method: "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
	encode: func(keys []string) []byte {
		request := appendText(nil, 1, serviceDomain)
		for _, key := range keys {
			name := "user"
			if key == hotKey {
				name = hotKey
			}
			entry := appendText(appendText(nil, 1, name), 2, key)
			request = appendNested(request, 2, appendNested(nil, 1, entry))
		}
		return request
	},
	read: func(reply []byte) (all []verdictOf, err error) {
		err = eachField(reply, func(n protowire.Number, _ uint64, status []byte) error {
			if n != 2 {
				return nil
			}
			v := verdictOf{}
			err := eachField(status, func(n protowire.Number, value uint64, _ []byte) error {
				switch n {
				case 1:
					v.over = value == 2
				case 3:
					v.remaining = int64(value)
				}
				return nil
			})
			all = append(all, v)
			return err
		})
		return all, err
	},
}

const serviceDomain = "bench"

// gubernatorWire is pb.gubernator.V1, where requests contain their limits.
var gubernatorWire = wire{
	method: "/pb.gubernator.V1/GetRateLimits",
	encode: func(keys []string) (request []byte) {
		for _, key := range keys {
			limit := uint64(userLimit)
			if key == hotKey {
				limit = hotLimit
			}
			take := appendText(appendText(nil, 1, "user"), 2, key)
			take = appendNumber(take, 3, 1)
			take = appendNumber(take, 4, limit)
			take = appendNumber(take, 5, 365*24*3600*1000)
			request = appendNested(request, 1, take)
		}
		return request
	},
	read: func(reply []byte) (all []verdictOf, err error) {
		err = eachField(reply, func(n protowire.Number, _ uint64, answer []byte) error {
			if n != 1 {
				return nil
			}
			v := verdictOf{}
			err := eachField(answer, func(n protowire.Number, value uint64, fault []byte) error {
				switch n {
				case 1:
					v.over = value == 1
				case 3:
					v.remaining = int64(value)
				case 5: // errors are inside successful responses
					return failf("%s", fault)
				}
				return nil
			})
			all = append(all, v)
			return err
		})
		return all, err
	},
}

func appendText(b []byte, n protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
}

func appendNested(b []byte, n protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), message)
}

func appendNumber(b []byte, n protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
}

var errWire = errors.New("the response is not a valid message")

// eachField calls visit for each field of a message, with its number or with its bytes.
func eachField(message []byte, visit func(n protowire.Number, value uint64, nested []byte) error) error {
	for len(message) > 0 {
		n, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return errWire
		}
		message = message[size:]
		var value uint64
		var bytes []byte
		switch kind {
		case protowire.VarintType:
			value, size = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			bytes, size = protowire.ConsumeBytes(message)
		default:
			size = protowire.ConsumeFieldValue(n, kind, message)
		}
		if size < 0 {
			return errWire
		}
		if err := visit(n, value, bytes); err != nil {
			return err
		}
		message = message[size:]
	}
	return nil
}

// rawCodec passes messages through unchanged.
type rawCodec struct{}

var _ encoding.CodecV2 = rawCodec{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("cannot encode a %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("cannot decode a %T", v)
	}
	*b = (*b)[:0]
	for _, part := range data {
		*b = append(*b, part.ReadOnlyData()...)
	}
	return nil
}
