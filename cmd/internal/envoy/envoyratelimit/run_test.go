package envoyratelimit

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/sluiceproject/sluice/cmd/internal/testenv/rlstest"
	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

// countingStores returns the variables of each store.
func countingStores(t *testing.T) map[string][]string {
	return map[string][]string{
		"redis":        onRedis(redistest.Shared(t)),
		"envoy's keys": append(onRedis(redistest.Shared(t)), "SLUICE_KEY_FORMAT=envoy"),
		"memcached":    {"BACKEND_TYPE=memcache", "MEMCACHE_HOST_PORT=" + memcachetest.Start(t).Addr},
		"envoy's keys in memcached": {
			"BACKEND_TYPE=memcache", "MEMCACHE_HOST_PORT=" + memcachetest.Start(t).Addr, "SLUICE_KEY_FORMAT=envoy",
		},
		"memory": {"BACKEND_TYPE=memory"},
	}
}

// The responses are those of the protocol on every store.
func TestAnswers(t *testing.T) {
	for _, g := range rlstest.Groups(false) {
		for name, store := range countingStores(t) {
			if name != "redis" && g.Settings != (rlstest.Settings{}) {
				continue // settings do not depend on stores
			}
			t.Run(fmt.Sprintf("%s/%+v", name, g.Settings), func(t *testing.T) {
				t.Parallel()
				root := t.TempDir()
				g.Write(t, filepath.Join(root, "config"), func(path, text string) error {
					return writeAll(path, text)
				})
				environ := append(slices.Clone(store), "RUNTIME_ROOT="+root)
				for variable, on := range map[string]bool{
					"SHADOW_MODE": g.Settings.Shadow, "QUOTA_MODE": g.Settings.Quota,
					"LIMIT_RESPONSE_HEADERS_ENABLED": g.Settings.Headers, "RESPONSE_DYNAMIC_METADATA": g.Settings.Metadata,
				} {
					environ = append(environ, fmt.Sprintf("%s=%t", variable, on))
				}
				p := launch(t, environ...)
				await(t, func() bool { return p.health() == "SERVING" }) // Memcached may come later
				g.Run(t, pb.NewRateLimitServiceClient(p.dial()))
			})
		}
	}
}

// Hits of a request on the same counter are applied in the order of its descriptors, on every store.
func TestOrderOfHits(t *testing.T) {
	_, environ := ruleDir(t, "  - {key: a, limit: 50}\n")
	for name, store := range countingStores(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := launch(t, slices.Concat(environ, store)...)
			await(t, func() bool { return p.health() == "SERVING" }) // Memcached may come later
			for _, step := range []rlstest.Step{
				{Ask: "a=full hits:50", Want: "OK: OK 50/YEAR left 0"},
				{Ask: "a=full give:1 | a=full", Want: "OK: OK 50/YEAR left 1 | OK 50/YEAR left 0"},
				{Ask: "a=full | a=full give:1", Want: "OVER_LIMIT: OVER_LIMIT 50/YEAR left 0 | OK 50/YEAR left 0"},
				{Ask: "a=full hits:0", Want: "OK: OK 50/YEAR left 0"},
				{Ask: "a=new give:1 | a=new", Want: "OK: OK 50/YEAR left 50 | OK 50/YEAR left 49"},
				{Ask: "a=new hits:0", Want: "OK: OK 50/YEAR left 49"},
				{Ask: "a=x hits:2 | a=x give:5 | a=y | a=x hits:3 | a=x hits:0 | a=x give:1", Want: "OK: OK 50/YEAR left 48 | OK 50/YEAR left 50 | " +
					"OK 50/YEAR left 49 | OK 50/YEAR left 47 | OK 50/YEAR left 47 | OK 50/YEAR left 48"},
				{Ask: "a=x hits:0", Want: "OK: OK 50/YEAR left 48"},
				{Ask: "a=z | a=z hits:2 | a=z", Want: "OK: OK 50/YEAR left 49 | OK 50/YEAR left 47 | OK 50/YEAR left 46"},
			} {
				if got := p.ask(step.Ask); got != step.Want {
					t.Errorf("%s:\ngot  %s\nwant %s", step.Ask, got, step.Want)
				}
			}
		})
	}
}

func writeAll(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

func TestJSON(t *testing.T) {
	_, environ := ruleDir(t, "  - {key: a, rate_limit: {unit: year, requests_per_unit: 1}}\n")
	p := launch(t, append(environ, onRedis(redistest.Shared(t))...)...)
	ask := `{"domain":"d","descriptors":[{"entries":[{"key":"a","value":"1"}]}]}`
	for _, tt := range []struct {
		method, body string
		status       int
		want         string // beginning of the response
	}{
		{"POST", ask, 200, `{"overallCode":"OK","statuses":[{"code":"OK","currentLimit":{"requestsPerUnit":1,"unit":"YEAR"},"durationUntilReset":"`},
		{"GET", ask, 429, `{"overallCode":"OVER_LIMIT","statuses":[{"code":"OVER_LIMIT",`},
		{"PUT", `{"domain":"other","descriptors":[{}]}`, 200, `{"overallCode":"OK","statuses":[{"code":"OK"}]}`},
		{"POST", `{`, 400, "Bad Request\n"},
		{"POST", `{"domain":"d","unknown":1}`, 400, "Bad Request\n"},
		{"POST", `{"domain":""}`, 400, "Bad Request\n"},
		{"POST", `{"domain":"d"}`, 400, "Bad Request\n"},
		{"POST", `{"domain":"` + strings.Repeat("x", 4<<20) + `"}`, 400, "the message has 4194317 bytes, more than 4194304: send less, or raise SLUICE_MAX_MESSAGE_BYTES\n"},
	} {
		status, body := p.send("HTTP", tt.method, "/json", tt.body)
		body = strings.NewReplacer(`, "`, `,"`, `": `, `":`).Replace(body) // protobuf adds spaces at random
		if status != tt.status || !strings.HasPrefix(body, tt.want) {
			t.Errorf("%s %.60s: %d %s, want %d %s", tt.method, tt.body, status, body, tt.status, tt.want)
		}
	}
}

func TestPages(t *testing.T) {
	_, environ := ruleDir(t, "  - {key: a, limit: 1}\n")
	p := launch(t, append(environ, "BACKEND_TYPE=memory", "USE_PROMETHEUS=true", "PROMETHEUS_ADDR=127.0.0.1:0")...)
	p.ask("a=1 hits:3")
	p.health()
	for _, tt := range []struct{ of, path, want string }{
		{"HTTP", "/healthcheck", "OK"},
		{"debug", "/", "/debug/pprof/: root of various pprof endpoints. hit for help.\n"},
		{"debug", "/rlconfig", "d.a: unit=YEAR requests_per_unit=1, shadow_mode: false, quota_mode: false\n"},
		{"debug", "/stats", "ratelimit.service.rate_limit.d.a.total_hits: 3\n"},
		{"debug", "/debug/pprof/", "goroutine"},
		{"Prometheus", "/metrics", `ratelimit_service_rate_limit_total_hits{domain="d",key1="a"} 3` + "\n"},
		{"Prometheus", "/metrics", `ratelimit_service_rate_limit_over_limit{domain="d",key1="a"} 2` + "\n"},
		{"Prometheus", "/metrics", `ratelimit_service_total_requests{grpc_method="Check"} 1` + "\n"},
		{"Prometheus", "/metrics", `ratelimit_service_response_time_seconds_count{grpc_method="ShouldRateLimit"} 1` + "\n"},
		{"Prometheus", "/metrics", "ratelimit_service_config_load_success 1\n"},
	} {
		if status, body := p.get(tt.of, tt.path); status != 200 || !strings.Contains(body, tt.want) {
			t.Errorf("%s: %d\n%s\nwant in it %s", tt.path, status, body, tt.want)
		}
	}
	if status, _ := p.get("debug", "/debug/pprof/cmdline"); status != 404 {
		t.Errorf("the command line is served: %d", status)
	}
	if !strings.HasPrefix(p.addr("debug"), "127.0.0.1:") {
		t.Errorf("the debug pages are on %s", p.addr("debug"))
	}
}

// On SIGTERM health checks fail and the service ends.
func TestEnding(t *testing.T) {
	_, environ := ruleDir(t, "  - {key: a, limit: 1}\n")
	p := launch(t, append(environ, onRedis(redistest.Shared(t))...)...)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	watch, err := healthpb.NewHealthClient(p.dial()).Watch(ctx, &healthpb.HealthCheckRequest{Service: "ratelimit"})
	if err != nil {
		t.Fatal(err)
	}
	if s, err := watch.Recv(); err != nil || s.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Fatal(s, err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if s, err := watch.Recv(); err != nil || s.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health during shutdown is %v, %v", s, err)
	}
	leave()
	if code := p.ended(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// While Redis is unavailable requests fail, as in the reference, and so do health checks if they are configured to.
func TestRedisAway(t *testing.T) {
	server := redistest.Start(t)
	_, environ := ruleDir(t, "  - {key: a, limit: 5}\n")
	p := launch(t, append(environ, "REDIS_URL="+server.Addr, "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true")...)
	if got := p.ask("a=1"); got != "OK: OK 5/YEAR left 4" {
		t.Error(got)
	}
	server.Kill()
	for range 40 { // more than opens the breaker
		if got := p.ask("a=1"); !strings.HasPrefix(got, "rpc error: code = Unknown desc = ") {
			t.Fatalf("without Redis: %s", got)
		}
	}
	p.says("store unavailable")
	await(t, func() bool { return p.health() == "NOT_SERVING" })
	if status, body := p.get("HTTP", "/healthcheck"); status != 500 || body != "" {
		t.Errorf("health is %d %s", status, body)
	}
	if _, stats := p.get("debug", "/stats"); !strings.Contains(stats, "ratelimit.service.call.should_rate_limit.redis_error: 40\n") {
		t.Error(stats)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { // each request may be a probe
		p.ask("a=1")
		return p.health() == "SERVING"
	})
}

// Health follows Redis without requests: it fails when Redis is unavailable and recovers with Redis.
func TestHealthWithoutTraffic(t *testing.T) {
	for _, format := range []string{"sluice", "envoy"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			server, seconds := redistest.Start(t), redistest.Start(t)
			_, environ := ruleDir(t, "  - {key: a, limit: 5}\n")
			p := launch(t, append(environ, "REDIS_URL="+server.Addr, "REDIS_PERSECOND=true", "REDIS_PERSECOND_SOCKET_TYPE=tcp",
				"REDIS_PERSECOND_URL="+seconds.Addr, "SLUICE_KEY_FORMAT="+format, "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true")...)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			watch, err := healthpb.NewHealthClient(p.dial()).Watch(ctx, &healthpb.HealthCheckRequest{Service: "ratelimit"})
			if err != nil {
				t.Fatal(err)
			}
			becomes := func(want healthpb.HealthCheckResponse_ServingStatus, http int) {
				t.Helper()
				if s, err := watch.Recv(); err != nil || s.GetStatus() != want {
					t.Fatalf("health is %v, %v, want %v", s, err, want)
				}
				if status, _ := p.get("HTTP", "/healthcheck"); status != http {
					t.Errorf("/healthcheck is %d, want %d", status, http)
				}
			}
			becomes(healthpb.HealthCheckResponse_SERVING, 200)
			for _, s := range []*redistest.Server{server, seconds} {
				s.Kill()
				becomes(healthpb.HealthCheckResponse_NOT_SERVING, 500)
				if err := s.Restart(); err != nil {
					t.Fatal(err)
				}
				becomes(healthpb.HealthCheckResponse_SERVING, 200)
			}
		})
	}
}

// Without Memcached requests are allowed, as in the reference, and health checks fail until Memcached has replied once.
func TestMemcachedAway(t *testing.T) {
	server := memcachetest.Start(t)
	server.Kill()
	_, environ := ruleDir(t, "  - {key: a, limit: 5}\n  - {key: none, limit: 0}\n")
	p := launch(t, append(environ, "BACKEND_TYPE=memcache", "MEMCACHE_HOST_PORT="+server.Addr)...)
	without := map[string]string{
		"a=1": "OK: OK 5/YEAR left 4", "a=1 hits:6": "OVER_LIMIT: OVER_LIMIT 5/YEAR left 0", "none=1": "OVER_LIMIT: OVER_LIMIT 0/YEAR left 0",
	}
	for ask, want := range without {
		if got := p.ask(ask); got != want {
			t.Errorf("%s without Memcached: %s, want %s", ask, got, want)
		}
	}
	if status, _ := p.send("HTTP", http.MethodPost, "/json", `{"domain":"d","descriptors":[{"entries":[{"key":"a","value":"1"}]}]}`); status != 200 {
		t.Errorf("/json without Memcached: %d", status)
	}
	if status, _ := p.get("HTTP", "/healthcheck"); status != 500 || p.health() != "NOT_SERVING" {
		t.Errorf("health without Memcached: %d, %s", status, p.health())
	}
	server.Restart()
	p.says("store available again")
	await(t, func() bool { return p.health() == "SERVING" })
	await(t, func() bool {
		p.ask("a=2")
		return strings.Contains(p.ask("a=2 hits:0"), "left 3")
	})
	server.Kill()
	for ask, want := range without {
		if got := p.ask(ask); got != want || p.health() != "SERVING" {
			t.Errorf("%s after Memcached was stopped: %s, %s, want %s", ask, got, p.health(), want)
		}
	}
}

// await waits until holds returns true.
func await(t *testing.T, holds func() bool) {
	t.Helper()
	for range 100_000 {
		if holds() {
			return
		}
	}
	t.Fatal("timeout")
}

// A service that starts before Redis listens when Redis is available. With a fail mode it listens at once.
func TestRedisComesLate(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	_, environ := ruleDir(t, "  - {key: a, limit: 5}\n")
	environ = append(environ, "REDIS_URL="+server.Addr, "REDIS_STARTUP_INITIAL_INTERVAL=50ms", "REDIS_STARTUP_MAX_INTERVAL=50ms")
	waits := launch(t, environ...)
	early := launch(t, append(slices.Clone(environ), "SLUICE_ON_FAILURE=open")...)
	waits.says("store connection failed")
	if got := early.ask("a=1"); got != "OK: OK 5/YEAR left 4" {
		t.Errorf("before Redis is available: %s", got)
	}
	if strings.Contains(waits.logged(), "protocol=gRPC") {
		t.Error("the service listens without Redis")
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	if got := waits.ask("a=1"); got != "OK: OK 5/YEAR left 4" {
		t.Errorf("with Redis: %s", got)
	}
	await(t, func() bool { return strings.HasPrefix(early.ask("a=1 hits:0"), "OK: OK 5/YEAR left 4") })

	gone := launch(t, append(slices.Clone(environ), "REDIS_URL=127.0.0.1:1", "REDIS_STARTUP_MAX_ELAPSED_TIME=100ms")...)
	if gone.ended() != 2 || !strings.Contains(gone.logged(), "REDIS_URL") {
		t.Errorf("exit code %d:\n%s", gone.code, gone.logged())
	}
}

func TestRulesChange(t *testing.T) {
	dir, environ := ruleDir(t, "  - {key: a, limit: 5}\n")
	p := launch(t, append(environ, "BACKEND_TYPE=memory")...)
	if got := p.ask("a=1"); got != "OK: OK 5/YEAR left 4" {
		t.Error(got)
	}
	writeFile(t, filepath.Join(dir, "d.yaml"), "domain: d\ndescriptors:\n  - {key: a, rate_limit: {unit: eon, requests_per_unit: 3}}\n")
	p.says("invalid rate limit unit 'eon'")
	if got := p.ask("a=1"); got != "OK: OK 5/YEAR left 3" {
		t.Errorf("with invalid rules: %s", got)
	}
	writeFile(t, filepath.Join(dir, "d.yaml"), "domain: d\ndescriptors:\n  - {key: a, rate_limit: {unit: year, requests_per_unit: 3}}\n")
	await(t, func() bool { return strings.HasPrefix(p.ask("a=1 hits:0"), "OK: OK 3/YEAR left 1") })
	if _, stats := p.get("debug", "/stats"); !strings.Contains(stats, "config_load_error: 1\n") ||
		!strings.Contains(stats, "config_load_success: 2\n") {
		t.Error(stats)
	}
}

// The recovery from an invalid file, by removing or restoring it, is logged, so that the error is not the last line. It is a
// warning, because the error is logged at the default level.
func TestRulesRecover(t *testing.T) {
	dir, environ := ruleDir(t, "  - {key: a, limit: 5}\n")
	p := launch(t, append(environ, "BACKEND_TYPE=memory")...)
	p.says(`level=info msg="Successfully loaded new configuration"`)
	for i, bad := range []string{"domain: d\ndescriptors: [{key: a}]\n", "descriptors: []\n"} {
		writeFile(t, filepath.Join(dir, "bad"), bad)
		p.until("error", func() bool { return strings.Count(p.log.String(), "Error loading new configuration") == i+1 })
		if err := os.Remove(filepath.Join(dir, "bad")); err != nil {
			t.Fatal(err)
		}
		p.until("recovery", func() bool {
			return strings.Count(p.log.String(), `level=warning msg="Successfully loaded new configuration" domains=1`) == i+1
		})
	}
	if _, stats := p.get("debug", "/stats"); !strings.Contains(stats, "config_load_error: 2\n") || !strings.Contains(stats, "config_load_success: 3\n") {
		t.Error(stats)
	}
}

// Every document of a file is a domain. If one has an error, nothing changes, and its line in the file is logged.
func TestDocuments(t *testing.T) {
	const messaging = "domain: messaging\ndescriptors:\n  - {key: message_type, value: marketing, rate_limit: {unit: day, requests_per_unit: %d}}\n"
	const auth = "domain: auth\ndescriptors:\n  - {key: auth_type, value: login, rate_limit: {unit: minute, requests_per_unit: %d}}\n"
	root := t.TempDir()
	file := filepath.Join(root, "config", "limits.yaml")
	if err := writeAll(file, fmt.Sprintf(messaging+"---\n"+auth, 5, 5)); err != nil {
		t.Fatal(err)
	}
	p := launch(t, "BACKEND_TYPE=memory", "RUNTIME_ROOT="+root)
	client := pb.NewRateLimitServiceClient(p.dial())
	ask := func(domain, text string) string { return rlstest.Answer(t.Context(), client, domain, text) }
	if got := ask("messaging", "message_type=marketing"); got != "OK: OK 5/DAY left 4" {
		t.Error(got)
	}
	if got := ask("auth", "auth_type=login"); got != "OK: OK 5/MINUTE left 4" {
		t.Error(got)
	}
	for i, bad := range []struct{ second, want string }{
		{"domain: auth\ndescriptors:\n  - {key: auth_type, rate_limit: {unit: eon, requests_per_unit: 5}}\n", "limits.yaml:7:41: invalid rate limit unit 'eon'"},
		{"rules:\n  - {name: logins, limit: 5/min}\n", "limits.yaml:5:1: config file cannot have empty domain"},
	} {
		writeFile(t, file, fmt.Sprintf(messaging, 9)+"---\n"+bad.second)
		p.says(bad.want)
		if got := ask("messaging", "message_type=marketing hits:0"); !strings.Contains(got, " 5/DAY ") {
			t.Errorf("with invalid document %d: %s", i, got)
		}
	}
	writeFile(t, file, fmt.Sprintf(auth+"---\n"+messaging, 9, 9))
	await(t, func() bool { return strings.Contains(ask("messaging", "message_type=marketing hits:0"), " 9/DAY ") })
	if got := ask("auth", "auth_type=login hits:0"); !strings.Contains(got, " 9/MINUTE ") {
		t.Errorf("after a change of both documents: %s", got)
	}
}

// A directory that is a symbolic link can be replaced, as deployments do.
func TestLinkChanges(t *testing.T) {
	root := t.TempDir()
	for version, count := range []string{"5", "6"} {
		if err := writeAll(filepath.Join(root, fmt.Sprint("v", version), "config", "d.yaml"),
			"domain: d\ndescriptors:\n  - {key: a, rate_limit: {unit: year, requests_per_unit: "+count+"}}\n"); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(root, "current")
	if err := os.Symlink("v0", link); err != nil {
		t.Fatal(err)
	}
	p := launch(t, "BACKEND_TYPE=memory", "RUNTIME_ROOT="+link)
	if got := p.ask("a=1"); got != "OK: OK 5/YEAR left 4" {
		t.Error(got)
	}
	if err := os.Symlink("v1", link+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link+".new", link); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return strings.HasPrefix(p.ask("a=1 hits:0"), "OK: OK 6/YEAR left 5") })
}

// Without a rule directory nothing is limited, as in the reference, until it is created.
func TestNoRuleDirectory(t *testing.T) {
	root := t.TempDir()
	p := launch(t, "BACKEND_TYPE=memory", "RUNTIME_ROOT="+root)
	p.says("rule directory not found")
	if got := p.ask("a=1"); got != "OK: OK" {
		t.Error(got)
	}
	if log := p.logged(); strings.Contains(log, "Successfully loaded") || strings.Count(log, "level=error") != 1 {
		t.Errorf("more than one message:\n%s", log)
	}
	if err := writeAll(filepath.Join(root, "config", "d"), "domain: d\ndescriptors:\n  - {key: a, rate_limit: {unit: year, requests_per_unit: 3}}\n"); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return strings.HasPrefix(p.ask("a=1 hits:0"), "OK: OK 3/YEAR") })
	p.says("Successfully loaded new configuration")
}

// With invalid rules the service starts, logs the errors and fails requests until it has valid rules.
func TestBadRulesAtTheStart(t *testing.T) {
	root := t.TempDir()
	if err := writeAll(filepath.Join(root, "config", "d"), "descriptors: []\n"); err != nil {
		t.Fatal(err)
	}
	p := launch(t, "BACKEND_TYPE=memory", "RUNTIME_ROOT="+root)
	p.says("Error loading new configuration")
	if got := p.ask("a=1"); got != "rpc error: code = Unknown desc = no rate limit configuration loaded" {
		t.Error(got)
	}
	if err := writeAll(filepath.Join(root, "config", "d"), "domain: d\n"); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return p.ask("a=1") == "OK: OK" })
}

func TestWrongSettings(t *testing.T) {
	p := launch(t, "REDIS_AUTH=hunter2", "PORT=eighty", "REDIS_PERSECOND=perhaps")
	p.ended()
	for _, want := range []string{"PORT: is \"eighty\": write a whole number between 0 and 65535", "REDIS_PERSECOND: is \"perhaps\": write true or false"} {
		if p.code != 2 || !strings.Contains(p.logged(), want) {
			t.Errorf("exit code %d, log\n%s\nwant in it %s", p.code, p.logged(), want)
		}
	}
}

func TestSocket(t *testing.T) {
	_, environ := ruleDir(t, "  - {key: a, limit: 5}\n")
	socket := filepath.Join(t.TempDir(), "s")
	p := launch(t, append(environ, "BACKEND_TYPE=memory", "GRPC_UDS="+socket)...)
	if got := p.ask("a=1"); got != "OK: OK 5/YEAR left 4" {
		t.Error(got)
	}
}
