package listen_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/sluiceproject/sluice/cmd/internal/edge/listen"
)

// logs collects log lines.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logs) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// running is a server that runs until it is stopped.
type running struct {
	*listen.Server
	logs *logs
	stop context.CancelFunc
	done chan error
}

// start runs a server until the test ends.
func start(t *testing.T, cfg listen.Config) *running {
	t.Helper()
	r := &running{logs: new(logs), done: make(chan error, 1)}
	cfg.Log = slog.New(slog.NewTextHandler(r.logs, nil))
	var err error
	if r.Server, err = listen.New(cfg); err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(t.Context())
	go func() { r.done <- r.Run(ctx) }()
	t.Cleanup(func() {
		r.stop()
		if err := <-r.done; err != nil {
			t.Error(err)
		}
	})
	return r
}

// ended waits until the server has shut down.
func (r *running) ended(t *testing.T) {
	t.Helper()
	if err := <-r.done; err != nil {
		t.Error(err)
	}
	r.done <- nil
}

func dial(t *testing.T, target string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	if len(opts) == 0 {
		opts = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	}
	conn, err := grpc.NewClient(target, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func health(t *testing.T, conn *grpc.ClientConn, service string) string {
	t.Helper()
	resp, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
	if err != nil {
		return status.Code(err).String()
	}
	return resp.GetStatus().String()
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestHealth(t *testing.T) {
	r := start(t, listen.Config{
		GRPC: listen.GRPC{Endpoint: listen.Endpoint{Address: "127.0.0.1:0"}, HealthNames: []string{"ratelimit"}},
		HTTP: listen.HTTP{Endpoint: listen.Endpoint{Address: "127.0.0.1:0"}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "mine "+r.URL.Path)
		})},
	})
	conn, url := dial(t, r.GRPCAddr().String()), "http://"+r.HTTPAddr().String()
	expect := func(grpc string, ready int) {
		t.Helper()
		for _, name := range []string{"", "ratelimit"} {
			if got := health(t, conn, name); got != grpc {
				t.Errorf("health of %q is %s, want %s", name, got, grpc)
			}
		}
		if got, _ := get(t, url+"/readyz"); got != ready {
			t.Errorf("/readyz answers %d, want %d", got, ready)
		}
		if got, _ := get(t, url+"/livez"); got != http.StatusOK {
			t.Errorf("/livez answers %d", got)
		}
	}
	expect("SERVING", 200)
	r.SetReady(false)
	expect("NOT_SERVING", 503)
	r.SetReady(true)
	expect("SERVING", 200)
	if got := health(t, conn, "other"); got != codes.NotFound.String() {
		t.Errorf("health of a service that is not there is %s", got)
	}
	if _, got := get(t, url+"/json"); got != "mine /json" {
		t.Errorf("the handler says %q", got)
	}
}

// A panic of a handler is an internal error, and the next request is served.
func TestPanic(t *testing.T) {
	r := start(t, listen.Config{HTTP: listen.HTTP{Endpoint: listen.Endpoint{Address: "127.0.0.1:0"}, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic("broken")
	})}})
	url := "http://" + r.HTTPAddr().String()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
		t.Errorf("it answers %d", resp.StatusCode)
	}
	if got, _ := get(t, url+"/readyz"); got != http.StatusOK {
		t.Errorf("/readyz answers %d", got)
	}
	if !r.logs.has("level=ERROR") || !r.logs.has("broken") {
		t.Error("the panic is not logged")
	}
}

// blocking registers a service whose only method responds when answer is closed or sends.
func blocking(entered chan<- struct{}, answer <-chan struct{}) func(grpc.ServiceRegistrar) {
	return func(r grpc.ServiceRegistrar) {
		r.RegisterService(&grpc.ServiceDesc{
			ServiceName: "test.Blocking", HandlerType: (*any)(nil),
			Methods: []grpc.MethodDesc{{
				MethodName: "Wait",
				Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
					in := new(healthpb.HealthCheckRequest)
					if err := decode(in); err != nil {
						return nil, err
					}
					entered <- struct{}{}
					<-answer
					return &healthpb.HealthCheckResponse{}, nil
				},
			}},
		}, struct{}{})
	}
}

func wait(t *testing.T, conn *grpc.ClientConn) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		done <- conn.Invoke(context.Background(), "/test.Blocking/Wait", &healthpb.HealthCheckRequest{}, &healthpb.HealthCheckResponse{})
	}()
	return done
}

// Requests in flight at shutdown get a response, and those that exceed the timeout are aborted.
func TestDrain(t *testing.T) {
	entered, answer := make(chan struct{}), make(chan struct{})
	r := start(t, listen.Config{GRPC: listen.GRPC{Endpoint: listen.Endpoint{Address: "127.0.0.1:0"}, Register: blocking(entered, answer)}})
	conn := dial(t, r.GRPCAddr().String())
	asked := wait(t, conn)
	<-entered
	watch, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := watch.Recv(); err != nil || m.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("got %v, %v", m, err)
	}
	r.stop()
	if m, err := watch.Recv(); err != nil || m.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("a health watcher receives %v, %v", m, err)
	}
	close(answer)
	if err := <-asked; err != nil {
		t.Errorf("request in flight at shutdown: %v", err)
	}
	if err := watch.CloseSend(); err != nil {
		t.Error(err)
	}
}

func TestDrainIsBounded(t *testing.T) {
	entered, answer := make(chan struct{}), make(chan struct{})
	r := start(t, listen.Config{
		GRPC:         listen.GRPC{Endpoint: listen.Endpoint{Address: "127.0.0.1:0"}, Register: blocking(entered, answer)},
		HTTP:         listen.HTTP{Endpoint: listen.Endpoint{Address: "127.0.0.1:0"}},
		DrainTimeout: 10 * time.Millisecond,
	})
	asked := wait(t, dial(t, r.GRPCAddr().String()))
	<-entered
	r.stop()
	if err := <-asked; status.Code(err) != codes.Unavailable { // the connection is closed while the handler still runs
		t.Errorf("got %v, want Unavailable", err)
	}
	close(answer)
	r.ended(t)
	if !r.logs.has("drain timeout exceeded") {
		t.Error("closed connections are not logged")
	}
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	stale, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	cfg := listen.Config{GRPC: listen.GRPC{Endpoint: listen.Endpoint{Address: "unix://" + path}}}
	if _, err := listen.New(cfg); err == nil || !strings.Contains(err.Error(), "choose another address") {
		t.Errorf("a socket that is in use is taken: %v", err)
	}
	if err := stale.Close(); err != nil { // as after a killed process
		t.Fatal(err)
	}
	start(t, cfg)
	if got := health(t, dial(t, "unix://"+path), ""); got != "SERVING" {
		t.Errorf("got %s", got)
	}
}

func TestAddressInUse(t *testing.T) {
	r := start(t, listen.Config{GRPC: listen.GRPC{Endpoint: listen.Endpoint{Address: "127.0.0.1:0"}}})
	for _, cfg := range []listen.Config{
		{GRPC: listen.GRPC{Endpoint: listen.Endpoint{Address: r.GRPCAddr().String()}}},
		{HTTP: listen.HTTP{Endpoint: listen.Endpoint{Address: r.GRPCAddr().String()}}},
	} {
		if _, err := listen.New(cfg); err == nil || !strings.Contains(err.Error(), "another process listens there") {
			t.Errorf("got %v", err)
		}
	}
}

// A flood of connections does not affect existing ones, and new ones are accepted after it.
func TestMaxConnections(t *testing.T) {
	r := start(t, listen.Config{HTTP: listen.HTTP{Endpoint: listen.Endpoint{Address: "127.0.0.1:0", MaxConnections: 2}}})
	open := func() net.Conn {
		c, err := net.Dial("tcp", r.HTTPAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	ask := func(c net.Conn) bool {
		if _, err := io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return false
		}
		b := make([]byte, 12)
		_, err := io.ReadFull(c, b)
		return err == nil && string(b) == "HTTP/1.1 200"
	}
	first, second := open(), open()
	if !ask(first) || !ask(second) {
		t.Fatal("no answer")
	}
	for range 20 {
		if third := open(); ask(third) {
			t.Error("one more is answered")
		}
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	for !ask(open()) { // until the server has noticed that the first is closed
		if t.Context().Err() != nil {
			t.Fatal("there is no room again")
		}
	}
}
