package envoyratelimit

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/sluiceproject/sluice/cmd/internal/testenv/rlstest"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

// asService makes the test binary run the service, so that tests use a separate process.
const asService = "TEST_AS_SERVICE"

func TestMain(m *testing.M) {
	if os.Getenv(asService) == "" {
		os.Exit(redistest.Run(m))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := Run(ctx, os.Environ(), os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "sluice:", err)
		os.Exit(2)
	}
}

// process is a running service.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	code int           // exit code, valid after done
	conn *grpc.ClientConn

	mu    sync.Mutex // guards the fields below
	log   bytes.Buffer
	addrs map[string]string // listen addresses by protocol
	news  chan struct{}     // closed and replaced after each log line
}

// launch starts a service on unused ports.
func launch(t *testing.T, environ ...string) *process {
	t.Helper()
	p := &process{
		t: t, done: make(chan struct{}), addrs: make(map[string]string), news: make(chan struct{}),
		cmd: exec.Command(os.Args[0]),
	}
	p.cmd.Env = append([]string{
		asService + "=1", "HOST=127.0.0.1", "PORT=0", "GRPC_HOST=127.0.0.1", "GRPC_PORT=0", "DEBUG_PORT=0",
		"USE_STATSD=false", "LOG_LEVEL=info", "REDIS_SOCKET_TYPE=tcp", "PATH=" + os.Getenv("PATH"),
	}, environ...)
	output, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.follow(output)
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("the service logged:\n%s", p.logged())
		}
	})
	return p
}

var listening = regexp.MustCompile(`msg=listening protocol=(\w+) address=(\S+)`)

func (p *process) follow(output io.Reader) {
	for lines := bufio.NewScanner(output); lines.Scan(); {
		p.mu.Lock()
		p.log.WriteString(lines.Text() + "\n")
		if m := listening.FindStringSubmatch(lines.Text()); m != nil {
			p.addrs[m[1]] = m[2]
		}
		close(p.news)
		p.news = make(chan struct{})
		p.mu.Unlock()
	}
	var failed *exec.ExitError
	if err := p.cmd.Wait(); errors.As(err, &failed) {
		p.code = failed.ExitCode()
	}
	close(p.done)
}

func (p *process) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// until waits until holds returns true. It is called after each log line.
func (p *process) until(what string, holds func() bool) {
	p.t.Helper()
	tooLong := time.After(30 * time.Second)
	for {
		p.mu.Lock()
		ok, news := holds(), p.news
		p.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-news:
		case <-p.done:
			p.t.Fatalf("the service ended before %s", what)
		case <-tooLong:
			p.t.Fatalf("no %s", what)
		}
	}
}

// ended waits until the service has ended and returns its exit code.
func (p *process) ended() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		p.t.Fatal("the service does not end")
	}
	return p.code
}

// says waits until the log contains text.
func (p *process) says(text string) {
	p.t.Helper()
	p.until(text, func() bool { return strings.Contains(p.log.String(), text) })
}

// addr returns the listen address of a protocol.
func (p *process) addr(what string) (addr string) {
	p.t.Helper()
	p.until("listening for "+what, func() bool {
		addr = p.addrs[what]
		return addr != ""
	})
	return addr
}

// dial connects to the service. Without options the connection is shared.
func (p *process) dial(options ...grpc.DialOption) *grpc.ClientConn {
	p.t.Helper()
	if len(options) == 0 {
		if p.conn == nil {
			p.conn = p.dial(grpc.WithTransportCredentials(insecure.NewCredentials()))
		}
		return p.conn
	}
	addr := p.addr("gRPC")
	if strings.HasPrefix(addr, "/") {
		addr = "unix://" + addr
	}
	conn, err := grpc.NewClient(addr, options...)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { conn.Close() })
	return conn
}

// ask sends a request to domain d and returns the response, both in the format of rlstest.
func (p *process) ask(text string) string {
	p.t.Helper()
	return rlstest.Answer(p.t.Context(), pb.NewRateLimitServiceClient(p.dial()), "d", text)
}

// get requests a page.
func (p *process) get(of, path string) (status int, body string) {
	p.t.Helper()
	return p.send(of, http.MethodGet, path, "")
}

func (p *process) send(of, method, path, body string) (int, string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, "http://"+p.addr(of)+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	if kind := resp.Header.Get("Content-Type"); path == "/json" && strings.HasPrefix(string(answer), "{") != (kind == "application/json") {
		p.t.Errorf("%s has the content type %s", answer, kind)
	}
	return resp.StatusCode, string(answer)
}

// health returns the status of the gRPC health service.
func (p *process) health() string {
	p.t.Helper()
	resp, err := healthpb.NewHealthClient(p.dial()).Check(p.t.Context(), &healthpb.HealthCheckRequest{Service: "ratelimit"})
	if err != nil {
		return err.Error()
	}
	return resp.GetStatus().String()
}

// ruleDir writes rules of domain d and returns the variables with their directory.
func ruleDir(t *testing.T, below string) (dir string, environ []string) {
	t.Helper()
	root := t.TempDir()
	dir = filepath.Join(root, "config")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c := rlstest.Case{Name: "d", Rules: below}
	name, text := c.File()
	writeFile(t, filepath.Join(dir, name), text)
	return dir, []string{"RUNTIME_ROOT=" + root}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	// Atomically, as deployment tools do.
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// onRedis returns the variables for a Redis, with a unique key prefix.
func onRedis(s *redistest.Server) []string { return []string{"REDIS_URL=" + s.Addr, ownPrefix()} }

var prefixCount atomic.Int64

// ownPrefix returns a unique key prefix, so that tests share no counts, also when they are repeated.
func ownPrefix() string { return fmt.Sprint("CACHE_KEY_PREFIX=", prefixCount.Add(1), ":") }
