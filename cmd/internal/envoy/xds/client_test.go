package xds

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	xds "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	conf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/sluiceproject/sluice/rules"
)

// controlPlane is a control plane with the cache and server of go-control-plane, as in Envoy Gateway.
type controlPlane struct {
	t      *testing.T
	addr   string
	cache  cache.SnapshotCache
	server *grpc.Server

	asked chan *discovery.DiscoveryRequest // all requests of the client

	mu      sync.Mutex // guards headers
	headers metadata.MD
}

func newControlPlane(t *testing.T) *controlPlane {
	t.Helper()
	c := &controlPlane{
		t: t, cache: cache.NewSnapshotCache(false, cache.IDHash{}, nil), asked: make(chan *discovery.DiscoveryRequest, 1000),
	}
	c.listen("127.0.0.1:0")
	t.Cleanup(func() { c.server.Stop() })
	return c
}

func (c *controlPlane) listen(addr string) {
	c.t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		c.t.Fatal(err)
	}
	c.addr = l.Addr().String()
	c.server = grpc.NewServer()
	callbacks := xds.CallbackFuncs{
		StreamOpenFunc: func(ctx context.Context, _ int64, _ string) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.headers, _ = metadata.FromIncomingContext(ctx)
			return nil
		},
		StreamRequestFunc: func(_ int64, r *discovery.DiscoveryRequest) error {
			c.asked <- r
			return nil
		},
	}
	discovery.RegisterAggregatedDiscoveryServiceServer(c.server, xds.NewServer(context.Background(), c.cache, callbacks))
	go c.server.Serve(l)
}

// publish sets the resources of a node under a version.
func (c *controlPlane) publish(node, version string, configs ...*conf.RateLimitConfig) {
	c.t.Helper()
	var all []types.Resource
	for _, one := range configs {
		all = append(all, one)
	}
	snapshot, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{resource.RateLimitConfigType: all})
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.cache.SetSnapshot(context.Background(), node, snapshot); err != nil {
		c.t.Fatal(err)
	}
}

// tested is a client under test.
type tested struct {
	sets chan *rules.Set
	bad  chan error
	lost chan error
}

func (c *controlPlane) follow(change func(*Config)) *tested {
	c.t.Helper()
	got := &tested{make(chan *rules.Set, 100), make(chan error, 100), make(chan error, 100)}
	cfg := Config{
		Server: c.addr, NodeID: "envoy-ratelimit", ConnectRetry: 20 * time.Millisecond,
		BackoffMin: time.Millisecond, BackoffMax: 20 * time.Millisecond, Jitter: 0.5,
		Use: func(set *rules.Set) error {
			if len(set.DescriptorLimits("refused")) > 0 {
				return errors.New("not here")
			}
			got.sets <- set
			return nil
		},
		Failed: func(err error) { got.bad <- err },
		Lost:   func(err error) { got.lost <- err },
	}
	if change != nil {
		change(&cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, cfg) }()
	c.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			c.t.Error(err)
		}
	})
	return got
}

// next receives a value, with a timeout.
func next[T any](t *testing.T, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(30 * time.Second):
		t.Fatalf("no %s", what)
	}
	return v
}

// answer returns the next ACK or, if fault is not empty, the next NACK, whose error must contain fault.
func (c *controlPlane) answer(fault string) *discovery.DiscoveryRequest {
	c.t.Helper()
	for {
		r := next(c.t, "answer", c.asked)
		detail := r.GetErrorDetail()
		if r.GetResponseNonce() != "" && (detail == nil) == (fault == "") && strings.Contains(detail.GetMessage(), fault) {
			return r
		}
	}
}

func oneLimit(resource, domain string, n uint32) *conf.RateLimitConfig {
	return config(resource, domain, &conf.RateLimitDescriptor{Key: "k", RateLimit: policy(conf.RateLimitUnit_HOUR, n)})
}

func count(t *testing.T, set *rules.Set, domain string) int64 {
	t.Helper()
	limits := set.DescriptorLimits(domain)
	if len(limits) != 1 {
		t.Fatalf("%d limits", len(limits))
	}
	return limits[0].Rules[0].Limit.Count
}

func TestFollow(t *testing.T) {
	c := newControlPlane(t)
	c.publish("envoy-ratelimit", "1", oneLimit("r", "d", 5))
	got := c.follow(func(cfg *Config) {
		cfg.Headers = map[string]string{"x-token": "secret"}
		cfg.NodeMetadata = map[string]string{"zone": "a"}
	})
	if n := count(t, next(t, "set", got.sets), "d"); n != 5 {
		t.Errorf("the limit is %d", n)
	}
	first := next(t, "request", c.asked)
	if first.GetNode().GetId() != "envoy-ratelimit" || first.GetTypeUrl() != TypeURL ||
		first.GetNode().GetMetadata().GetFields()["zone"].GetStringValue() != "a" {
		t.Errorf("the first request is %v", first)
	}
	c.mu.Lock()
	if h := c.headers.Get("x-token"); len(h) != 1 || h[0] != "secret" {
		t.Errorf("the headers are %v", c.headers)
	}
	c.mu.Unlock()
	if a := c.answer(""); a.GetVersionInfo() != "1" {
		t.Errorf("the request after valid rules is %v", a)
	}

	c.publish("envoy-ratelimit", "2", config("r", "d", &conf.RateLimitDescriptor{Key: "k", RateLimit: policy(0, 1)}))
	if err := next(t, "fault", got.bad); !strings.Contains(err.Error(), "r: invalid rate limit unit 'UNKNOWN'") {
		t.Error(err)
	}
	if a := c.answer("invalid rate limit unit"); a.GetVersionInfo() != "1" || a.GetErrorDetail().GetCode() == 0 {
		t.Errorf("the request after invalid rules is %v", a)
	}

	c.publish("envoy-ratelimit", "3", oneLimit("r", "refused", 5))
	if a := c.answer("not here"); a.GetVersionInfo() != "1" {
		t.Errorf("the request after rules that Use rejects is %v", a)
	}

	c.publish("envoy-ratelimit", "4", oneLimit("r", "d", 6), oneLimit("s", "e", 7))
	set := next(t, "set", got.sets)
	if n, m := count(t, set, "d"), count(t, set, "e"); n != 6 || m != 7 {
		t.Errorf("the limits are %d and %d", n, m)
	}
	if a := c.answer(""); a.GetVersionInfo() != "4" {
		t.Errorf("the request after valid rules is %v", a)
	}
}

// After a restart of the control plane rules are received again, also with the same version.
func TestControlPlaneComesBack(t *testing.T) {
	c := newControlPlane(t)
	c.publish("envoy-ratelimit", "1", oneLimit("r", "d", 5))
	got := c.follow(nil)
	next(t, "set", got.sets)
	c.server.Stop()
	next(t, "loss", got.lost)
	c.cache = cache.NewSnapshotCache(false, cache.IDHash{}, nil)
	c.publish("envoy-ratelimit", "1", oneLimit("r", "d", 8))
	c.listen(c.addr)
	if n := count(t, next(t, "set", got.sets), "d"); n != 8 {
		t.Errorf("the limit is %d", n)
	}
}

// A message beyond the bound ends the stream, not the process.
func TestMessagesAreBounded(t *testing.T) {
	c := newControlPlane(t)
	c.publish("envoy-ratelimit", "1", oneLimit(strings.Repeat("r", 10_000), "d", 5))
	got := c.follow(func(cfg *Config) { cfg.MaxMessage = 1000 })
	if err := next(t, "loss", got.lost); !strings.Contains(err.Error(), "larger than max") {
		t.Error(err)
	}
	c.publish("envoy-ratelimit", "2", oneLimit("r", "d", 5))
	next(t, "set", got.sets)
}

// Control planes resend rejected rules at once. They are reported once, and the NACKs are delayed.
func TestRefusedRulesComeAgain(t *testing.T) {
	c := &client{cfg: Config{Failed: func(error) {}}}
	reported := 0
	c.cfg.Failed = func(error) { reported++ }
	synctest.Test(t, func(t *testing.T) {
		bad, began := errors.New("bad"), time.Now()
		for range 10 {
			c.reject(t.Context(), "1", bad)
		}
		// Delays: 0, 0.1, 0.2, 0.4, 0.8, 1.6 and four times 3 s.
		if took := time.Since(began); took != 15100*time.Millisecond || reported != 1 {
			t.Errorf("10 rejections took %v, and %d were reported", took, reported)
		}
		began = time.Now()
		c.reject(t.Context(), "2", bad)
		c.reject(t.Context(), "2", errors.New("worse"))
		if took := time.Since(began); took != 0 || reported != 3 {
			t.Errorf("another rejection took %v, and %d were reported", took, reported)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if c.reject(ctx, "2", errors.New("worse")) {
			t.Error("reject continues after the end of the context")
		}
	})
}

func TestJitter(t *testing.T) {
	c := Config{Jitter: 0.5}
	least, most := time.Hour, time.Duration(0)
	for range 1000 {
		d := c.jittered(time.Second)
		least, most = min(least, d), max(most, d)
	}
	if least < time.Second/2 || most > 3*time.Second/2 || least > 600*time.Millisecond || most < 1400*time.Millisecond {
		t.Errorf("1 s with jitter is %v to %v", least, most)
	}
}
