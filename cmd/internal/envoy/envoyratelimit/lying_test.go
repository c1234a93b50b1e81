package envoyratelimit

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	conf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluiceproject/sluice/cmd/internal/envoy/xds"
	"github.com/sluiceproject/sluice/internal/testenv/faultproxy"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

// redisLies maps invalid replies to parts of their log lines.
var redisLies = map[string]string{
	"$-9\r\n": "length -9", "*1000000000\r\n": "1000000000 elements", strings.Repeat("*1\r\n", 100_000): "nested more than 16 deep",
}

// peak returns the peak memory of the process in MiB, or 0 if it is unknown.
func (p *process) peak() int {
	p.t.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		p.t.Fatal(err)
	}
	return kib >> 10
}

// Invalid replies of Redis, at the start or later, do not end the process: requests fail, the log names the server and the
// reason, and requests succeed again after the replies are valid.
func TestLyingRedis(t *testing.T) {
	server := redistest.Shared(t)
	_, environ := ruleDir(t, "  - {key: a, limit: 1000000}\n")
	for name, keys := range map[string]string{"own keys": "", "the keys of the reference": "SLUICE_KEY_FORMAT=envoy"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := faultproxy.Start(t, server.Addr)
			lie := func(text string) {
				proxy.Set(faultproxy.Fault{Change: func(*faultproxy.Conn, []byte) []byte { return []byte(text) }})
			}
			lie("$-9\r\n")
			p := launch(t, append(environ, "REDIS_URL="+proxy.Addr, "REDIS_STARTUP_INITIAL_INTERVAL=50ms", "REDIS_STARTUP_MAX_INTERVAL=50ms", "LOG_LEVEL=debug", ownPrefix(), keys)...)
			p.says("store connection failed")
			p.says("Redis " + proxy.Addr + ": reply rejected")
			proxy.Heal()
			for text, reason := range redisLies {
				await(t, func() bool { return strings.HasPrefix(p.ask("a=1"), "OK: ") })
				lie(text)
				await(t, func() bool {
					return strings.HasPrefix(p.ask("a=1"), "rpc error: ") && strings.Contains(p.logged(), reason)
				})
				proxy.Heal()
			}
			await(t, func() bool { return strings.HasPrefix(p.ask("a=1"), "OK: ") })
			if got := p.peak(); got > 256 {
				t.Errorf("the process used %d MiB", got)
			}
		})
	}
}

// liar is a control plane that sends arbitrary resources.
type liar struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	resources chan []byte // encoded, one per response
}

func (l *liar) StreamAggregatedResources(stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	for n := 0; ; n++ {
		if _, err := stream.Recv(); err != nil { // ACK or NACK of the previous response
			return err
		}
		select {
		case b := <-l.resources:
			err := stream.Send(&discovery.DiscoveryResponse{
				VersionInfo: fmt.Sprint(n), Nonce: fmt.Sprint(n), TypeUrl: xds.TypeURL, Resources: []*anypb.Any{{TypeUrl: xds.TypeURL, Value: b}},
			})
			if err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

// Resources that are too large, too many or too deeply nested do not end the process: the log names the control plane and the
// reason, the previous rules stay in use, and valid rules are used afterwards.
func TestLyingControlPlane(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	lies := &liar{resources: make(chan []byte)}
	server := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(server, lies)
	go server.Serve(l)
	t.Cleanup(server.Stop)
	rules := func(limit uint32) []byte {
		b, err := proto.Marshal(&conf.RateLimitConfig{Name: "d", Domain: "d", Descriptors: []*conf.RateLimitDescriptor{
			{Key: "a", RateLimit: &conf.RateLimitPolicy{RequestsPerUnit: limit, Unit: conf.RateLimitUnit_DAY}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	p := launch(t, "BACKEND_TYPE=memory", "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+l.Addr().String(), "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=10ms")
	lies.resources <- rules(7)
	before := p.ask("a=1 hits:0")
	if before != "OK: OK 7/DAY left 7" {
		t.Fatal(before)
	}
	nested := func(depth int) (b []byte) {
		for i := range depth { // from the innermost
			field := protowire.Number(4)
			if i == depth-1 {
				field = 3
			}
			head := protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.BytesType), uint64(len(b)))
			slices.Reverse(head)
			b = append(b, head...)
		}
		slices.Reverse(b)
		return b
	}
	base := p.peak()
	for _, lie := range []struct {
		name, reason string
		resource     []byte
	}{
		{"large", "received message larger than max", make([]byte, 8<<20)},
		{"many", "more than 200000 descriptors", bytes.Repeat(nested(1), 2<<20-100)},
		{"faulty", "descriptor has empty key", bytes.Repeat(nested(1), 10_000)},
		{"deep", "nested more than 64 deep", nested(20_000)},
	} {
		lies.resources <- lie.resource
		p.says(lie.reason)
		if got := p.ask("a=1 hits:0"); got != before {
			t.Errorf("%s: %s", lie.name, got)
		}
		t.Logf("%s: %d MiB, %d before", lie.name, p.peak(), base)
	}
	lies.resources <- rules(8)
	await(t, func() bool { return p.ask("a=1 hits:0") == "OK: OK 8/DAY left 8" })
	if got := p.peak(); got > 256 {
		t.Errorf("the process used %d MiB", got)
	}
}
