package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/rlstest"
	"github.com/sluiceproject/sluice/internal/testenv/certtest"
	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// Instances that share a store share the limit.
func TestServeSharedStores(t *testing.T) {
	directory := rulesDir(t, "  - {key: k, rate_limit: {unit: year, requests_per_unit: 10}}\n")
	for kind, store := range map[string]string{
		"redis":     fmt.Sprintf("{kind: redis, url: '%s', timeout: 5s}", redistest.Start(t).URL()),
		"memcached": fmt.Sprintf("{kind: memcached, addresses: ['%s'], timeout: 5s}", memcachetest.Start(t).Addr),
	} {
		t.Run(kind, func(t *testing.T) {
			cfg := fmt.Sprintf("rules: {paths: [%q]}\nstore: %s\n", directory, store)
			a, b := startServe(t, cfg).client(t), startServe(t, cfg).client(t)
			for i := range 5 {
				for j, client := range []string{"a", "b"} {
					c := a
					if client == "b" {
						c = b
					}
					want := fmt.Sprintf("OK: OK 10/YEAR left %d", 9-2*i-j)
					if got := rlstest.Answer(t.Context(), c, "d", "k=v"); got != want {
						t.Errorf("%s: got %s, want %s", client, got, want)
					}
				}
			}
			if got := rlstest.Answer(t.Context(), a, "d", "k=v"); got != "OVER_LIMIT: OVER_LIMIT 10/YEAR left 0" {
				t.Errorf("got %s", got)
			}
		})
	}
}

// The service starts and decides while the store is unavailable, and uses the store when it becomes available.
func TestServeStoreAway(t *testing.T) {
	redis := redistest.Start(t)
	redis.Kill()
	p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}\nstore: {kind: redis, url: '%s'}\n", rulesDir(t, `
  - {key: local, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: closed, rate_limit: {unit: year, requests_per_unit: 5, on_failure: closed}}
  - {key: open, rate_limit: {unit: year, requests_per_unit: 5, on_failure: open}}
`), redis.URL()))
	client := p.client(t)
	for _, step := range []rlstest.Step{
		{Ask: "local=1", Want: "OK: OK 1/YEAR left 0"},
		{Ask: "local=1", Want: "OVER_LIMIT: OVER_LIMIT 1/YEAR left 0"},
		{Ask: "closed=1", Want: "OVER_LIMIT: OVER_LIMIT 5/YEAR left 0"},
		{Ask: "open=1", Want: "OK: OK"},
	} {
		if got := rlstest.Answer(t.Context(), client, "d", step.Ask); got != step.Want {
			t.Errorf("%s: got %s, want %s", step.Ask, got, step.Want)
		}
	}
	if got := p.get(t, "/readyz"); got != http.StatusOK {
		t.Errorf("/readyz: status %d while the rules can decide", got)
	}
	if err := redis.Restart(); err != nil {
		t.Fatal(err)
	}
	for {
		got := rlstest.Answer(t.Context(), client, "d", "closed=1")
		if strings.HasPrefix(got, "OK: OK 5/YEAR left") {
			break
		}
		if !strings.HasPrefix(got, "OVER_LIMIT") {
			t.Fatalf("got %s", got)
		}
	}
}

// If the store is required, /readyz and gRPC health follow its availability without any request.
func TestServeStoreRequired(t *testing.T) {
	redis := redistest.Start(t)
	p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}\nstore: {kind: redis, url: '%s', required: true}\n",
		rulesDir(t, "  - {key: k, rate_limit: {unit: year, requests_per_unit: 5}}\n"), redis.URL()))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	watch, err := healthpb.NewHealthClient(connect(t, p.grpc)).Watch(ctx, &healthpb.HealthCheckRequest{Service: "ratelimit"})
	if err != nil {
		t.Fatal(err)
	}
	becomes := func(want healthpb.HealthCheckResponse_ServingStatus, ready int) {
		t.Helper()
		if s, err := watch.Recv(); err != nil || s.GetStatus() != want {
			t.Fatalf("health is %v, %v, want %v", s, err, want)
		}
		if got := p.get(t, "/readyz"); got != ready {
			t.Errorf("/readyz: status %d, want %d", got, ready)
		}
	}
	becomes(healthpb.HealthCheckResponse_SERVING, http.StatusOK)
	redis.Kill()
	becomes(healthpb.HealthCheckResponse_NOT_SERVING, http.StatusServiceUnavailable)
	if err := redis.Restart(); err != nil {
		t.Fatal(err)
	}
	becomes(healthpb.HealthCheckResponse_SERVING, http.StatusOK)
}

func TestServeBadURL(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sluice.yaml")
	write(t, file, "store: {kind: redis, url: 'redis://user:secret@:x:y'}\nlisteners: {grpc: {address: '127.0.0.1:0'}, http: {address: off}}\n")
	code, _, stderr := sluiceRun(t, "serve", "--config", file)
	if code != term.ExitWrong || !strings.Contains(stderr, "redis://user:password@host:6379/0") || strings.Contains(stderr, "secret") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

// In-memory counts survive a restart if a snapshot is configured.
func TestServeSnapshot(t *testing.T) {
	cfg := fmt.Sprintf("rules: {paths: [%q]}\nstore: {snapshot_file: %q}\n",
		rulesDir(t, "  - {key: k, rate_limit: {unit: year, requests_per_unit: 2}}\n"), filepath.Join(t.TempDir(), "state"))
	for _, want := range []string{"OK: OK 2/YEAR left 1", "OK: OK 2/YEAR left 0", "OVER_LIMIT: OVER_LIMIT 2/YEAR left 0"} {
		p := startServe(t, cfg)
		if got := rlstest.Answer(t.Context(), p.client(t), "d", "k=v"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		p.signal(t, syscall.SIGTERM)
		<-p.ended
	}
}

// A snapshot that cannot be written is an error of the service, which exits with it.
func TestServeSnapshotUnwritable(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(directory, 0o700); err != nil {
		t.Fatal(err)
	}
	p := startServe(t, fmt.Sprintf("store: {snapshot_file: %q}\n", filepath.Join(directory, "state")))
	if err := os.RemoveAll(directory); err != nil {
		t.Fatal(err)
	}
	p.signal(t, syscall.SIGTERM)
	<-p.ended
	log := strings.Join(p.log(), "\n")
	if code := p.cmd.ProcessState.ExitCode(); code != term.ExitWrong || !strings.Contains(log, "snapshot") {
		t.Errorf("exit %d after\n%s", code, log)
	}
	p.err = nil // the exit code is expected
}

// The service connects to Redis over TLS, with a client certificate and a password from files.
func TestServeSecureRedis(t *testing.T) {
	authority := certtest.New(t)
	directory := t.TempDir()
	in := func(name string) string { return filepath.Join(directory, name) }
	server, client := authority.Issue(t, "localhost"), authority.Issue(t, "limiter")
	for name, b := range map[string][]byte{
		"ca": authority.PEM, "server.crt": server.Cert, "server.key": server.Key, "client.crt": client.Cert, "client.key": client.Key,
		"password": []byte("open sesame\n"),
	} {
		write(t, in(name), string(b))
	}
	_, port, _ := net.SplitHostPort(tcptest.FreeAddress(t))
	redis := redistest.Start(t, "--tls-port", port, "--tls-ca-cert-file", in("ca"), "--tls-cert-file", in("server.crt"),
		"--tls-key-file", in("server.key"))
	if _, err := redis.Do("ACL", "SETUSER", "limiter", "on", ">open sesame", "~*", "+@all"); err != nil {
		t.Fatal(err)
	}
	p := startServe(t, fmt.Sprintf(`
rules: {paths: [%q]}
store:
  kind: redis
  url: rediss://limiter@${REDIS_HOST}:%s
  password_file: %q
  tls: {ca_file: %q, cert_file: %q, key_file: %q}
  timeout: 5s
`, rulesDir(t, "  - {key: k, rate_limit: {unit: year, requests_per_unit: 10, on_failure: closed}}\n"),
		port, in("password"), in("ca"), in("client.crt"), in("client.key")), "REDIS_HOST=localhost")
	if got := rlstest.Answer(t.Context(), p.client(t), "d", "k=v"); got != "OK: OK 10/YEAR left 9" {
		t.Errorf("got %s\n%s", got, strings.Join(p.log(), "\n"))
	}
}
