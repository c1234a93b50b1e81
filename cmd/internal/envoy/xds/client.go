// Package xds receives rules from a control plane by xDS, as Envoy Gateway sends them to Envoy's rate limit service:
// resources of type ratelimit.config.ratelimit.v3.RateLimitConfig over an aggregated stream (state of the world).
package xds

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	conf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/panics"
	"github.com/sluiceproject/sluice/rules"
)

// TypeURL is the type of the resources.
const TypeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// Config configures a client. Server, Use and Failed are required.
type Config struct {
	Server       string
	NodeID       string
	NodeMetadata map[string]string
	Headers      map[string]string // sent with the stream
	TLS          *tls.Config       // nil: without TLS
	MaxMessage   int               // maximum size of a message in bytes; 0: the default of gRPC
	Merge        bool              // a domain may be split over several resources

	ConnectRetry time.Duration // maximum time between attempts to connect
	// A stream that ends is reopened after BackoffMin. The backoff doubles each time up to BackoffMax. Jitter is its maximum
	// relative deviation.
	BackoffMin, BackoffMax time.Duration
	Jitter                 float64

	// Use is called with each new rule set. If it returns an error, the client sends a NACK to the control plane.
	Use func(*rules.Set) error
	// Failed is called with the error of rejected rules, Lost with that of a stream that ended.
	Failed, Lost func(error)
}

// pingAfter is the time without traffic after which a connection is pinged. By default, gRPC servers allow at most one ping
// in 5 minutes.
const pingAfter = 5*time.Minute + 10*time.Second

// Run receives rules until ctx is done. It returns an error only if the configuration is invalid.
func Run(ctx context.Context, c Config) error {
	conn, err := grpc.NewClient(c.Server, c.dialOptions()...)
	if err != nil {
		return fmt.Errorf("xds: %w", err)
	}
	defer conn.Close()
	client := &client{cfg: c, stub: discovery.NewAggregatedDiscoveryServiceClient(conn)}
	pause := c.BackoffMin
	for {
		got, err := client.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if c.Lost != nil {
			c.Lost(fmt.Errorf("xds: %w", err))
		}
		if got {
			pause = c.BackoffMin
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(c.jittered(pause)):
		}
		pause = min(2*pause, max(c.BackoffMin, c.BackoffMax))
	}
}

func (c *Config) jittered(d time.Duration) time.Duration {
	return max(0, time.Duration(float64(d)*(1+c.Jitter*(2*rand.Float64()-1))))
}

func (c *Config) dialOptions() []grpc.DialOption {
	credential := insecure.NewCredentials()
	if c.TLS != nil {
		credential = credentials.NewTLS(c.TLS)
	}
	most := max(c.ConnectRetry, time.Millisecond)
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(credential),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: min(time.Second, most), Multiplier: 1.6, Jitter: 0.2, MaxDelay: most},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: 20 * time.Second}),
	}
	if c.MaxMessage > 0 {
		options = append(options, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(c.MaxMessage)))
	}
	return options
}

type client struct {
	cfg     Config
	stub    discovery.AggregatedDiscoveryServiceClient
	version string // last accepted version

	rejected string        // last rejected version, with its error
	pause    time.Duration // before the next NACK
}

// follow opens a stream and handles its responses until it ends. got reports whether there was a response.
func (c *client) follow(ctx context.Context) (got bool, err error) {
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ctx, metadata.New(c.cfg.Headers)))
	defer cancel()
	stream, err := c.stub.StreamAggregatedResources(ctx, grpc.WaitForReady(true))
	if err != nil {
		return false, err
	}
	node := c.node()
	// The last accepted version is not sent, because a restarted control plane may use the same version for other rules.
	if err := stream.Send(&discovery.DiscoveryRequest{Node: node, TypeUrl: TypeURL}); err != nil {
		_, err = stream.Recv() // returns the cause
		return false, err
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return got, err
		}
		got = true
		if response.GetTypeUrl() != TypeURL {
			continue // not requested
		}
		answer := &discovery.DiscoveryRequest{Node: node, TypeUrl: TypeURL, ResponseNonce: response.GetNonce()}
		if err := c.take(response); err != nil {
			err = brief{err}
			if !c.reject(ctx, response.GetVersionInfo(), err) {
				return got, ctx.Err()
			}
			answer.ErrorDetail = &status.Status{Code: int32(codes.InvalidArgument), Message: err.Error()}
		} else {
			c.version, c.rejected = response.GetVersionInfo(), ""
		}
		answer.VersionInfo = c.version
		if err := stream.Send(answer); err != nil {
			return got, err
		}
	}
}

// Control planes resend rejected rules as soon as they receive the NACK. A pause before the NACK prevents a loop. It also
// delays the next valid rules.
const (
	refusedPause     = 100 * time.Millisecond
	maxRejectedPause = 3 * time.Second
)

// reject reports rejected rules once and pauses if the same rules were rejected before. It reports whether
// to continue, which is false when ctx is done.
func (c *client) reject(ctx context.Context, version string, err error) bool {
	// Includes the error, because a restarted control plane may reuse a version.
	what := version + " " + err.Error()
	if what != c.rejected {
		c.rejected, c.pause = what, refusedPause
		c.cfg.Failed(err)
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(c.pause):
	}
	c.pause = min(2*c.pause, maxRejectedPause)
	return true
}

// shape contains the fields of a message that are messages.
type shape map[protowire.Number]shape

var resourceShape = func() shape {
	descriptor := shape{3: {5: {}}} // policies, and the limits that they replace
	descriptor[4] = descriptor
	return shape{3: descriptor}
}()

// maxMessages is the maximum number of descriptors and policies of all resources together. An empty one takes 2 bytes, and
// 100 times as much when it is decoded.
const maxMessages = 200_000

// bounded returns an error if an encoded message contains too many messages or is nested too deep. Invalid encodings are left
// to the decoder.
func bounded(b []byte, s shape, depth int, count *int) error {
	if depth > maxDepth+2 {
		return fmt.Errorf("descriptors are nested more than %d deep: use fewer levels", maxDepth)
	}
	for len(b) > 0 {
		number, kind, size := protowire.ConsumeField(b)
		if size < 0 {
			return nil
		}
		if inner, ok := s[number]; ok && kind == protowire.BytesType {
			if *count++; *count > maxMessages {
				return fmt.Errorf("more than %d descriptors and limits: use fewer", maxMessages)
			}
			_, _, tag := protowire.ConsumeTag(b)
			value, _ := protowire.ConsumeBytes(b[tag:])
			if err := bounded(value, inner, depth+1, count); err != nil {
				return err
			}
		}
		b = b[size:]
	}
	return nil
}

// brief truncates the text of an error, because the errors of many rules may exceed the size of a log line or of a message to
// the control plane.
type brief struct{ error }

// maxText is the maximum length of the text in bytes.
const maxText = 4 << 10

func (b brief) Error() string {
	text := b.error.Error()
	if len(text) <= maxText {
		return text
	}
	return fmt.Sprintf("%s… and %d bytes more", strings.ToValidUTF8(text[:maxText], ""), len(text)-maxText)
}

func (b brief) Unwrap() error { return b.error }

// take applies the rules of a response.
func (c *client) take(response *discovery.DiscoveryResponse) (err error) {
	defer panics.Recover(func(e *panics.Error) { err = fmt.Errorf("version %s: %w", response.GetVersionInfo(), e) })
	resources := make([]*conf.RateLimitConfig, 0, len(response.GetResources()))
	count := 0
	for i, any := range response.GetResources() {
		if err := bounded(any.GetValue(), resourceShape, 0, &count); err != nil {
			bounds.ControlPlane.Reached()
			return fmt.Errorf("resource %d: %w", i+1, err)
		}
		r := &conf.RateLimitConfig{}
		if err := any.UnmarshalTo(r); err != nil {
			return fmt.Errorf("resource %d is not a RateLimitConfig: %w", i+1, err)
		}
		resources = append(resources, r)
	}
	set, err := Convert(resources, c.cfg.Merge)
	if err != nil {
		return err
	}
	return c.cfg.Use(set)
}

func (c *client) node() *core.Node {
	fields := make(map[string]*structpb.Value, len(c.cfg.NodeMetadata))
	for name, value := range c.cfg.NodeMetadata {
		fields[name] = structpb.NewStringValue(value)
	}
	return &core.Node{Id: c.cfg.NodeID, Metadata: &structpb.Struct{Fields: fields}}
}
