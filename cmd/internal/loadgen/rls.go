package loadgen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// RLS configures a target that uses Envoy's rate limit protocol.
type RLS struct {
	URL         *url.URL // host and port
	TLS         *tls.Config
	Connections int // number of connections, shared by the callers
	Domain      string
	Descriptors [][]Entry
	Hits        uint32 // hits_addend; 0 leaves it out, which means 1
}

// An Entry is an entry of a descriptor.
type Entry struct{ Key, Value Pattern }

const rlsMethod = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

type rlsTarget struct {
	RLS
	conns []*grpc.ClientConn
	next  int
}

// NewRLS returns a target that uses Envoy's protocol, after all connections are established.
func NewRLS(ctx context.Context, cfg RLS) (Target, error) {
	t := &rlsTarget{RLS: cfg}
	if err := reach(ctx, cfg.URL.Host); err != nil {
		return nil, err
	}
	creds := insecure.NewCredentials()
	if cfg.TLS != nil {
		creds = credentials.NewTLS(cfg.TLS)
	}
	for range max(1, cfg.Connections) {
		c, err := grpc.NewClient("passthrough:"+cfg.URL.Host,
			grpc.WithTransportCredentials(creds), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(asIs{})),
			grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 5 * time.Second}))
		if err != nil {
			_ = t.Close()
			return nil, err
		}
		t.conns = append(t.conns, c)
		c.Connect()
	}
	for _, c := range t.conns {
		if err := connected(ctx, c); err != nil {
			_ = t.Close()
			return nil, err
		}
	}
	return t, nil
}

func connected(ctx context.Context, c *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		switch s := c.GetState(); {
		case s == connectivity.Ready:
			return nil
		case !c.WaitForStateChange(ctx, s):
			return fmt.Errorf("%s accepts connections but does not use gRPC: check the address; rls:// is without TLS, rlss:// with TLS", c.CanonicalTarget())
		}
	}
}

func (t *rlsTarget) Close() error {
	var all []error
	for _, c := range t.conns {
		all = append(all, c.Close())
	}
	return errors.Join(all...)
}

func (t *rlsTarget) Dial(context.Context) (Caller, error) {
	c := &rlsCaller{of: t, conn: t.conns[t.next%len(t.conns)]}
	t.next++
	return c, nil
}

type rlsCaller struct {
	of                 *rlsTarget
	conn               *grpc.ClientConn
	request, reply     []byte
	text, entry, group []byte
}

func (c *rlsCaller) Close() error { return nil }

func (c *rlsCaller) Ask(ctx context.Context, keys []int64, answered func(Answer)) error {
	for _, key := range keys {
		c.encode(key)
		if err := c.conn.Invoke(ctx, rlsMethod, &c.request, &c.reply); err != nil {
			c.request = nil // gRPC may not have sent it yet
			if status.Code(err) == codes.DeadlineExceeded {
				return errLate
			}
			return fmt.Errorf("%s: %s", status.Code(err), status.Convert(err).Message())
		}
		a, err := rlsAnswer(c.reply)
		if err != nil {
			return err
		}
		answered(a)
	}
	return nil
}

// encode encodes a RateLimitRequest for a key into c.request.
func (c *rlsCaller) encode(key int64) {
	c.request = append(appendTag(c.request[:0], 1, len(c.of.Domain)), c.of.Domain...)
	for _, d := range c.of.Descriptors {
		c.group = c.group[:0]
		for _, e := range d {
			c.text = e.Key.Append(c.text[:0], key)
			c.entry = append(appendTag(c.entry[:0], 1, len(c.text)), c.text...)
			c.text = e.Value.Append(c.text[:0], key)
			c.entry = append(appendTag(c.entry, 2, len(c.text)), c.text...)
			c.group = append(appendTag(c.group, 1, len(c.entry)), c.entry...)
		}
		c.request = append(appendTag(c.request, 2, len(c.group)), c.group...)
	}
	if c.of.Hits > 0 {
		c.request = protowire.AppendVarint(protowire.AppendTag(c.request, 3, protowire.VarintType), uint64(c.of.Hits))
	}
}

func appendTag(b []byte, n protowire.Number, size int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.BytesType), uint64(size))
}

// rlsAnswer decodes the overall code of a RateLimitResponse.
func rlsAnswer(b []byte) (Answer, error) {
	code := uint64(0)
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return Answer{}, protowire.ParseError(n)
		}
		b = b[n:]
		if number == 1 && kind == protowire.VarintType {
			code, n = protowire.ConsumeVarint(b)
		} else {
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return Answer{}, protowire.ParseError(n)
		}
		b = b[n:]
	}
	switch code {
	case 1:
		return Answer{Allowed, "OK"}, nil
	case 2:
		return Answer{Denied, "OVER_LIMIT"}, nil
	}
	return Answer{Failed, "UNKNOWN"}, nil
}

// asIs is a codec for encoded messages.
type asIs struct{}

func (asIs) Name() string { return "proto" }

func (asIs) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (asIs) Unmarshal(data mem.BufferSlice, v any) error {
	b := v.(*[]byte)
	*b = (*b)[:0]
	for _, part := range data {
		*b = append(*b, part.ReadOnlyData()...)
	}
	return nil
}
