package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/rlstest"
)

// asProgram is the environment variable that makes the test binary run as the program, including the race detector.
const asProgram = "SLUICE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	if directory := os.Getenv(asNATS); directory != "" {
		runNATS(directory)
		return
	}
	os.Exit(m.Run())
}

// process is a running sluice serve.
type process struct {
	cmd        *exec.Cmd
	grpc, http string
	admin      string
	ended      chan struct{}
	stdout     bytes.Buffer // read only after the exit
	err        error        // read only after the exit

	mu    sync.Mutex
	lines []string      // lines of the log
	more  chan struct{} // closed when a line is added
}

var served = regexp.MustCompile(`msg=serving grpc=(\S+) http=(\S+) admin=(\S+)`)

// startServe runs sluice serve with a configuration until the test ends. Listeners without settings use free ports.
func startServe(t *testing.T, cfg string, env ...string) *process {
	t.Helper()
	p := launch(t, cfg, env...)
	m := served.FindStringSubmatch(p.await(t, "msg=serving"))
	p.grpc, p.http, p.admin = m[1], m[2], m[3]
	return p
}

// launch is like startServe, but does not wait for the addresses of the listeners.
func launch(t *testing.T, cfg string, env ...string) *process {
	t.Helper()
	if !strings.Contains(cfg, "listeners:") {
		cfg += "\nlisteners: {grpc: {address: '127.0.0.1:0'}, http: {address: '127.0.0.1:0'}}\n"
	}
	if !strings.Contains(cfg, "admin:") {
		cfg = strings.Replace(cfg, "listeners: {", "listeners: {admin: {address: '127.0.0.1:0'}, ", 1)
		cfg = strings.Replace(cfg, "listeners:\n", "listeners:\n  admin: {address: '127.0.0.1:0'}\n", 1)
	}
	file := filepath.Join(t.TempDir(), "sluice.yaml")
	write(t, file, cfg)
	p := &process{cmd: exec.Command(os.Args[0], "serve", "--config", file), ended: make(chan struct{}), more: make(chan struct{})}
	p.cmd.Env = append(append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0"), env...)
	p.cmd.Stdout = &p.stdout
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.read(stderr)
	t.Cleanup(func() {
		p.signal(t, syscall.SIGTERM)
		if <-p.ended; p.err != nil {
			t.Errorf("sluice serve exits with %v\n%s", p.err, strings.Join(p.log(), "\n"))
		}
	})
	return p
}

func (p *process) read(stderr io.Reader) {
	defer close(p.ended)
	s := bufio.NewScanner(stderr)
	for s.Buffer(nil, 16<<20); s.Scan(); {
		p.mu.Lock()
		p.lines = append(p.lines, s.Text())
		close(p.more)
		p.more = make(chan struct{})
		p.mu.Unlock()
	}
	p.err = p.cmd.Wait()
}

func (p *process) log() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lines
}

// await waits for a log line that contains the text, and discards it and all lines before.
func (p *process) await(t *testing.T, text string) string {
	t.Helper()
	late := time.After(2 * time.Minute) // shorter than the timeout of the test binary, which would stop all tests
	for {
		p.mu.Lock()
		for i, line := range p.lines {
			if strings.Contains(line, text) {
				p.lines = p.lines[i+1:]
				p.mu.Unlock()
				return line
			}
		}
		more := p.more
		p.mu.Unlock()
		select {
		case <-more:
		case <-p.ended:
			t.Fatalf("sluice serve exited without logging %q:\n%s", text, strings.Join(p.log(), "\n"))
		case <-late:
			t.Fatalf("sluice serve does not log %q:\n%s", text, strings.Join(p.log(), "\n"))
		}
	}
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	select {
	case <-p.ended:
	default:
		if err := p.cmd.Process.Signal(s); err != nil {
			t.Error(err)
		}
	}
}

// connect returns a gRPC connection to the first address that accepts one.
func connect(t *testing.T, target string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	if len(opts) == 0 {
		opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
	conn, err := grpc.NewClient(target, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func (p *process) client(t *testing.T) pb.RateLimitServiceClient {
	t.Helper()
	return pb.NewRateLimitServiceClient(connect(t, p.grpc))
}

func (p *process) get(t *testing.T, path string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.http+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// rulesDir returns a directory with rules of the domain d.
func rulesDir(t *testing.T, descriptors string) string {
	t.Helper()
	directory := t.TempDir()
	write(t, filepath.Join(directory, "d.yaml"), "domain: d\ndescriptors:\n"+descriptors)
	return directory
}

// The program passes all cases of rlstest about matching, several descriptors and responses.
func TestServeCases(t *testing.T) {
	for _, g := range rlstest.Groups(true) {
		directory := t.TempDir()
		g.Write(t, directory, func(name, text string) error { return os.WriteFile(name, []byte(text), 0o600) })
		s := g.Settings
		p := startServe(t, fmt.Sprintf(`
rules: {paths: [%q]}
rls: {shadow_mode: %v, quota_mode: %v, dynamic_metadata: %v, accept_limit_overrides: %v, accept_negative_hits: %v, headers: {enabled: %v}}
`, directory, s.Shadow, s.Quota, s.Metadata, s.Overrides, s.Negative, s.Headers))
		g.Run(t, p.client(t))
	}
}

// Without rule files the service has a demo rule, and prints commands to try it.
func TestServeDemo(t *testing.T) {
	p := startServe(t, "")
	for i := range 6 {
		want := fmt.Sprintf("OK: OK 5/MINUTE left %d", 4-i)
		got := rlstest.Answer(t.Context(), p.client(t), "demo", "remote_address=10.0.0.1")
		if i == 0 && got != want || i > 0 && !strings.Contains(got, " 5/MINUTE left ") { // the window may end during the test
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for _, path := range []string{"/livez", "/readyz"} {
		if got := p.get(t, path); got != http.StatusOK {
			t.Errorf("%s: status %d", path, got)
		}
	}
	for _, path := range []string{"/", "/debug/pprof/", "/metrics"} {
		if got := p.get(t, path); got != http.StatusNotFound {
			t.Errorf("%s: status %d, want 404, because it is off by default", path, got)
		}
	}
	for _, name := range []string{"", "ratelimit", rls.ServiceName} {
		resp, err := healthpb.NewHealthClient(connect(t, p.grpc)).Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
		if err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v, %v", name, resp, err)
		}
	}
	if got := reflected(t, p.grpc); got != "envoy/service/ratelimit/v3/rls.proto" {
		t.Errorf("reflection: the service is described in %q", got)
	}
	p.signal(t, syscall.SIGTERM)
	<-p.ended
	for _, want := range []string{"grpcurl", "http://" + p.http + "/v1/check", "sluice status", p.grpc, "sluice serve --config"} {
		if !strings.Contains(p.stdout.String(), want) {
			t.Errorf("no %s in the banner:\n%s", want, &p.stdout)
		}
	}
}

// reflected returns the name of the file that describes the service, by gRPC reflection like grpcurl.
func reflected(t *testing.T, address string) string {
	t.Helper()
	stream, err := reflectionpb.NewServerReflectionClient(connect(t, address)).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: rls.ServiceName},
	}); err != nil {
		t.Fatal(err)
	}
	resp, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil { // because the service would otherwise wait for more at its shutdown
		t.Fatal(err)
	}
	for _, b := range resp.GetFileDescriptorResponse().GetFileDescriptorProto() {
		var file descriptorpb.FileDescriptorProto
		if err := proto.Unmarshal(b, &file); err != nil {
			t.Fatal(err)
		}
		if len(file.GetService()) > 0 {
			return file.GetName()
		}
	}
	return ""
}

// Rules are reloaded when their files change and on SIGHUP. If the files have errors, the rules stay active.
func TestServeReload(t *testing.T) {
	directory := rulesDir(t, "  - {key: k, rate_limit: {unit: year, requests_per_unit: 1}}\n")
	file := filepath.Join(directory, "d.yaml")
	p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}", directory))
	client := p.client(t)
	expect := func(want string) {
		t.Helper()
		if got := rlstest.Answer(t.Context(), client, "d", "k=v"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	expect("OK: OK 1/YEAR left 0")
	expect("OVER_LIMIT: OVER_LIMIT 1/YEAR left 0")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, "domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: year, requests_per_unit: many}}\n")
	p.signal(t, syscall.SIGHUP)
	if line := p.await(t, "rules reload failed"); !strings.Contains(line, "d.yaml:3:") || !strings.Contains(line, "requests_per_unit") {
		t.Errorf("the log line is %s", line)
	}
	expect("OVER_LIMIT: OVER_LIMIT 1/YEAR left 0")
	write(t, file, string(good))
	p.await(t, "rule files valid again")
	write(t, file, "domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: year, requests_per_unit: 5}}\n")
	p.await(t, "rules reloaded")
	expect("OK: OK 5/YEAR left 3")
	write(t, file, "rules: [{name: a, limit: 1/s}]\n")
	p.await(t, "rule files define no Envoy domain")
	expect("OK: OK")
	write(t, file, "rules: [{name: a, limit: {rate: 1/s, refill: interval}}]\n")
	if line := p.await(t, "buckets reset"); !strings.Contains(line, `"rules":"a"`) && !strings.Contains(line, "rules=a") {
		t.Errorf("the log line is %s", line)
	}
}
