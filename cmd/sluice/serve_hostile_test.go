package main

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/attacks"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/rlstest"
)

// times returns n with SLUICE_SOAK, otherwise n/10.
func times(n int) int {
	if os.Getenv("SLUICE_SOAK") != "" {
		return n
	}
	return n / 10
}

// scale returns 1 with SLUICE_SOAK, otherwise 0.1.
func scale() float64 {
	if os.Getenv("SLUICE_SOAK") != "" {
		return 1
	}
	return 0.1
}

// victim is a service under attack.
type victim struct {
	*process
	honest pb.RateLimitServiceClient
}

func newVictim(t *testing.T) *victim {
	t.Helper()
	p := startServe(t, fmt.Sprintf(`
rules: {paths: [%q]}
listeners:
  grpc: {address: '127.0.0.1:0', max_message_size: 1MiB}
  http: {address: '127.0.0.1:0'}
logging: {level: info}
metrics: {http_listener: true}
`, rulesDir(t, "  - {key: k, rate_limit: {unit: year, requests_per_unit: 1000000}}\n")))
	v := &victim{p, p.client(t)}
	v.serves(t)
	return v
}

// serves fails the test if well-behaved clients are not served, on an existing and on a new connection.
func (v *victim) serves(t *testing.T) {
	t.Helper()
	for _, c := range []pb.RateLimitServiceClient{v.honest, v.client(t)} {
		if got := rlstest.Answer(t.Context(), c, "d", "k=v"); !strings.HasPrefix(got, "OK: OK 1000000/YEAR") {
			t.Errorf("a well-behaved client got %s", got)
		}
	}
	if got := v.get(t, "/readyz"); got != 200 {
		t.Errorf("/readyz: status %d", got)
	}
	if got := v.operate(t, "GET", "/v1/status", ""); got.status != 200 {
		t.Errorf("the admin API responds %d %s", got.status, got.body)
	}
}

// memory returns the memory of the process in MiB, by kind.
func (v *victim) memory(t *testing.T) map[string]int {
	t.Helper()
	heap := metric(t, v.process, "go_memstats_heap_inuse_bytes")
	if heap == 0 {
		t.Fatal("no metric for the heap")
	}
	m := map[string]int{"heap and stacks": int(heap+metric(t, v.process, "go_memstats_stack_inuse_bytes")) >> 20}
	if !raceEnabled { // the race detector keeps memory for every address and goroutine ever used
		m["process"] = v.resident(t)
	}
	return m
}

// resident returns the resident memory of the process in MiB, or 0 if it is unknown.
func (v *victim) resident(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", v.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return kib >> 10
		}
	}
	return 0
}

// raw opens a TCP connection.
func raw(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func speak(t *testing.T, address string) *attacks.Frames {
	t.Helper()
	f, err := attacks.Speak(t.Context(), attacks.Target{Address: address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Conn.Close() })
	return f
}

// target returns the address of the gRPC listener and a valid call.
func (v *victim) target() attacks.Target {
	return attacks.Target{
		Address: v.grpc, Path: "/" + rls.ServiceName + "/ShouldRateLimit", Method: "POST", Fields: []string{"content-type", "application/grpc", "te", "trailers"}, Scale: scale(),
	}
}

// The service survives malformed, slow and incomplete requests on all ports, and its memory stays bounded.
func TestServeHostile(t *testing.T) {
	v := newVictim(t)
	before := v.memory(t)
	type attack struct {
		name string
		do   func(*testing.T, *victim)
	}
	all := []attack{
		{"garbage", garbage},
		{"slow clients", slowClients},
		{"giant headers", giantHeaders},
		{"many descriptors", manyDescriptors},
		{"bad bodies", badBodies},
	}
	for _, a := range attacks.HTTP2() {
		all = append(all, attack{a.Name, func(t *testing.T, v *victim) {
			if err := a.Run(t.Context(), v.target()); err != nil {
				t.Error(err)
			}
		}})
	}
	for _, a := range all {
		t.Run(a.name, func(t *testing.T) {
			a.do(t, v)
			v.serves(t)
		})
	}
	const most = 100
	for kind, after := range v.memory(t) {
		if t.Logf("%s: %d MiB, before %d", kind, after, before[kind]); after > before[kind]+most {
			t.Errorf("%s: the memory grew from %d MiB to %d", kind, before[kind], after)
		}
	}
}

// The service announces its HTTP/2 limits in SETTINGS, so that well-behaved clients can respect them.
func TestServeTellsBounds(t *testing.T) {
	p := startServe(t, "listeners: {grpc: {address: '127.0.0.1:0', max_streams: 77, max_header_size: 5KiB}, http: {address: '127.0.0.1:0'}}")
	f := speak(t, p.grpc)
	_ = f.WriteGoAway(0, http2.ErrCodeNo, nil)
	_ = f.Conn.(*net.TCPConn).CloseWrite()
	<-f.Done
	for id, want := range map[http2.SettingID]uint32{http2.SettingMaxConcurrentStreams: 77, http2.SettingMaxHeaderListSize: 5 << 10} {
		if f.Settings[id] != want {
			t.Errorf("%v is %d, want %d", id, f.Settings[id], want)
		}
	}
}

func garbage(t *testing.T, v *victim) {
	noise := make([]byte, 4096)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	texts := append([]string{string(noise), http2.ClientPreface + string(noise), "GET /" + strings.Repeat("a", 1<<16) + " HTTP/1.1\r\n\r\n"}, attacks.Garbage...)
	for range times(100) {
		for _, address := range []string{v.grpc, v.http, v.admin} {
			for _, text := range texts {
				c := raw(t, address)
				_, _ = io.WriteString(c, text) // the service may close the connection before
				_ = c.Close()
			}
		}
	}
}

// slowClients sends incomplete requests.
func slowClients(t *testing.T, v *victim) {
	var silent []net.Conn
	for i := range times(2000) {
		c := raw(t, []string{v.grpc, v.http, v.admin}[i%3])
		text := append(attacks.Beginnings[:3:3], http2.ClientPreface)[i/3%4]
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		if text != http2.ClientPreface {
			silent = append(silent, c)
		}
	}
	if os.Getenv("SLUICE_SOAK") != "" { // this takes the five seconds of the timeout
		for _, c := range silent {
			_, _ = io.Copy(io.Discard, c) // until the server closes the connection
		}
	}
	f := speak(t, v.grpc)
	for i := range times(1000) { // more requests without a body than may be in flight
		if err := f.WriteHeaders(http2.HeadersFrameParam{
			StreamID: uint32(2*i + 1), BlockFragment: v.target().Block("slow"), EndHeaders: true,
		}); err != nil {
			break // the server has closed the connection
		}
	}
}

func giantHeaders(t *testing.T, v *victim) {
	// A valid message, so that an accepted request gets a response with data.
	body := append([]byte{0, 0, 0, 0, 12}, "\x0a\x01d\x12\x07\x0a\x05\x0a\x01k\x12\x00"...)
	ask := func(size int) (answered bool) {
		f := speak(t, v.grpc)
		block := v.target().Block("large", "x-large", strings.Repeat("x", size))
		const most = 16 << 10
		first := min(most, len(block))
		err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:first], EndHeaders: first == len(block)})
		for rest := block[first:]; len(rest) > 0 && err == nil; rest = rest[min(most, len(rest)):] {
			err = f.WriteContinuation(1, len(rest) <= most, rest[:min(most, len(rest))])
		}
		_ = f.WriteData(1, true, body)
		<-f.Over
		_ = f.Conn.(*net.TCPConn).CloseWrite()
		<-f.Done
		return f.Seen[http2.FrameData] > 0
	}
	if !ask(10 << 10) {
		t.Error("a request with large headers gets no response")
	}
	for range times(50) {
		if ask(17<<10) || ask(100<<10) {
			t.Error("a request with headers above the limit gets a response")
		}
	}
}

func manyDescriptors(t *testing.T, v *victim) {
	entry := []byte("\x12\x05\x0a\x03\x0a\x01k") // a descriptor with one entry
	req := &pb.RateLimitRequest{Domain: "d"}
	req.ProtoReflect().SetUnknown(bytes.Repeat(entry, 100_000)) // cheap to create
	for range times(100) {
		_, err := v.honest.ShouldRateLimit(t.Context(), req)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "more than 1000 descriptors") {
			t.Fatalf("got %v", err)
		}
	}
	req = &pb.RateLimitRequest{Domain: strings.Repeat("d", 2<<20)}
	if _, err := v.honest.ShouldRateLimit(t.Context(), req); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v", err)
	}
}
