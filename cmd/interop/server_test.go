package interop

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// settings are environment variables.
type settings map[string]string

// A server is a running rate limit service: the reference, or Sluice as its drop-in replacement.
type server struct {
	name   string
	redis  *redistest.Server
	grpc   string // addresses
	http   string
	debug  string
	metric string
	statsd *statsd
	client rls.RateLimitServiceClient
	log    *output
}

// patience is the timeout of everything. The tests assert nothing about time.
const patience = 30 * time.Second

// startReference starts the reference with a Redis and the files in rules, by name.
func startReference(t testing.TB, redis *redistest.Server, rules map[string]string, env settings) *server {
	t.Helper()
	return start(t, "reference", exec.Command(reference(t, "service_cmd")), redis, rules, env)
}

// startSluice starts `sluice ratelimit` in the same way.
func startSluice(t testing.TB, redis *redistest.Server, rules map[string]string, env settings) *server {
	t.Helper()
	return start(t, "sluice", exec.Command(sluice(t), "ratelimit"), redis, rules, env)
}

func start(t testing.TB, name string, cmd *exec.Cmd, redis *redistest.Server, rules map[string]string, env settings) *server {
	t.Helper()
	s := &server{name: name, redis: redis, statsd: listenStatsd(t), log: new(output)}
	ports := freePorts(t, 4)
	s.http, s.grpc = "127.0.0.1:"+ports[0], "127.0.0.1:"+ports[1]
	s.debug, s.metric = "127.0.0.1:"+ports[2], "127.0.0.1:"+ports[3]
	all := settings{
		"HOST": "127.0.0.1", "PORT": ports[0], "GRPC_HOST": "127.0.0.1", "GRPC_PORT": ports[1],
		"DEBUG_HOST": "127.0.0.1", "DEBUG_PORT": ports[2], "PROMETHEUS_ADDR": s.metric,
		"USE_STATSD": "true", "STATSD_HOST": "127.0.0.1", "STATSD_PORT": s.statsd.port, "STATS_FLUSH_INTERVAL": "200ms",
		"RUNTIME_ROOT": writeRules(t, rules), "RUNTIME_APPDIRECTORY": "config", "RUNTIME_WATCH_ROOT": "false",
		"REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": redis.Addr, "LOG_FORMAT": "json",
	}
	maps.Copy(all, env)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	for key, value := range all {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	cmd.Stdout, cmd.Stderr = s.log, s.log
	launch(t, cmd)
	s.connect(t)
	return s
}

// launch starts a process, which is killed at the end of the test, or when the test binary ends in any way.
func launch(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	cmd.SysProcAttr = dieWithParent()
	started, ended := make(chan error), make(chan bool)
	go func() {
		defer close(ended)
		// The kernel ties the process to the thread that started it, so that thread must not end before.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is killed
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
}

// connect waits until the server responds on both of its ports.
func (s *server) connect(t testing.TB) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:"+s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s.client = rls.NewRateLimitServiceClient(conn)
	await(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		conn.ResetConnectBackoff()
		res, err := health.NewHealthClient(conn).Check(ctx, &health.HealthCheckRequest{Service: "ratelimit"})
		if err != nil {
			return fmt.Errorf("%s does not respond: %w\n%s", s.name, err, s.log)
		}
		if res.Status != health.HealthCheckResponse_SERVING {
			return fmt.Errorf("%s: health status %v\n%s", s.name, res.Status, s.log)
		}
		return nil
	})
	await(t, func() error {
		res, err := http.Get("http://" + s.http + "/healthcheck")
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", s.name, err, s.log)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: /healthcheck returned %s", s.name, res.Status)
		}
		return nil
	})
}

// await calls try until it returns nil, or patience has passed.
func await(t testing.TB, try func() error) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	end := time.Now().Add(patience)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
		<-tick.C
	}
}

// writeRules creates a folder for RUNTIME_ROOT.
func writeRules(t testing.TB, rules map[string]string) string {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "config")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range rules {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// readRules reads the files of a folder below testdata.
func readRules(t testing.TB, names ...string) map[string]string {
	t.Helper()
	rules := map[string]string{}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("testdata", "rules", name))
		if err != nil {
			t.Fatal(err)
		}
		rules[name] = string(text)
	}
	return rules
}

// freePorts returns ports that are reserved for this test until it ends.
func freePorts(t testing.TB, n int) (ports []string) {
	t.Helper()
	for range n {
		_, port, _ := net.SplitHostPort(tcptest.FreeAddress(t))
		ports = append(ports, port)
	}
	return ports
}

// output is the output of a process; it may be read while the process runs.
type output struct {
	mu   sync.Mutex // guards the fields below
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

// String returns the last lines of the output.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines := strings.Split(o.text.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}

// sorted returns a map's keys in order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
