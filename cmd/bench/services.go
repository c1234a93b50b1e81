package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
)

// A service is a contender that is a server.
type service struct {
	contender
	module, target string // where and what go build builds; empty for the floor, which is this program
	redis          bool   // it needs a Redis server
	wire           wire
	command        func(place) (*exec.Cmd, error)
}

func floorWire() wire {
	w := rlsWire
	w.floor = true
	return w
}

var inService = []string{serviceRun, serviceMem}

// services returns the servers in the order of the tables. All that support fixed windows use them.
func services() []service {
	const ratelimit = "fixed window, INCRBY and EXPIRE"
	return []service{
		{
			contender: contender{
				name: "service-floor", role: roleFloor, clock: "none", scenarios: slices.Concat(inService, inRESP),
				about: "grpc-go with a constant response",
			},
			wire: floorWire(), command: runFloorAs(func(at place) job { return job{Floor: at.grpc} }),
		},
		{
			contender: contender{
				name: "serve-memory", role: roleOurs, clock: oursClock, scenarios: inService,
				about: "sluice serve, store in memory, fixed window",
			},
			module: repository, target: "./cmd/sluice", wire: rlsWire, command: runServe("memory"),
		},
		{
			contender: contender{
				name: "serve-redis", role: roleOurs, clock: "Redis'", scenarios: inService,
				about: "sluice serve, store in Redis, exact, fixed window",
			},
			module: repository, target: "./cmd/sluice", wire: rlsWire, redis: true, command: runServe("redis"),
		},
		{
			contender: contender{
				name: "ratelimit-redis", role: roleOurs, clock: "Redis'", scenarios: inService,
				about: "sluice ratelimit, the drop-in for the reference with its environment, store in Redis, exact",
			},
			module: repository, target: "./cmd/sluice", wire: rlsWire, redis: true, command: runRatelimit("sluice", "ratelimit"),
		},
		{
			contender: contender{
				name: "envoyproxy-ratelimit", role: rolePeer, clock: "time.Now", scenarios: inService,
				about: "the reference, January 2026, " + ratelimit + "; with its local cache for the exhausted key",
			},
			module: filepath.Join("..", "interop", "reference"), target: "tool",
			wire: rlsWire, redis: true, command: runRatelimit("service_cmd"),
		},
		{
			contender: contender{
				name: "gubernator", role: rolePeer, clock: "time.Now", scenarios: inService,
				about: "mailgun/gubernator v2.4.0, one node, store in memory, token bucket",
			},
			module: "gubernator", target: "tool", wire: gubernatorWire, command: runGubernator,
		},
	}
}

// allServices includes those with other protocols.
func allServices() []service { return slices.Concat(services(), respServices()) }

// serviceNamed returns the service of a name, or nil if the contender is not a service.
func serviceNamed(name string) *service {
	for _, s := range allServices() {
		if s.name == name {
			return &s
		}
	}
	return nil
}

// serviceRules limit a user's requests, and those of the hot key.
const serviceRules = `domain: ` + serviceDomain + `
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: %d}}
  - {key: ` + hotKey + `, rate_limit: {unit: year, requests_per_unit: %d}}
`

func writeServiceRules(at place) error {
	dir := filepath.Join(at.dir, "config")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf(serviceRules, userLimit, hotLimit)
	return os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(text), 0o644)
}

func binary(name string) string {
	if path := os.Getenv(sluiceVar); name == "sluice" && path != "" {
		return path
	}
	return filepath.Join(os.Getenv(binariesVar), name)
}

func runServe(store string) func(place) (*exec.Cmd, error) {
	return func(at place) (*exec.Cmd, error) {
		return serveWith(at, store, fmt.Sprintf("  grpc: {address: %q}\n", at.grpc))
	}
}

// serveWith runs sluice serve with these listeners in addition to HTTP.
func serveWith(at place, store, listeners string) (*exec.Cmd, error) {
	if err := writeServiceRules(at); err != nil {
		return nil, err
	}
	file := filepath.Join(at.dir, "sluice.yaml")
	text := fmt.Sprintf("listeners:\n%s  http: {address: %q}\n  admin: {address: off}\nrules:\n  paths: [config]\nstore: {kind: %s", listeners, at.http, store)
	if store == "redis" {
		// The store timeout is that of the reference: a busy machine must not make it decide without Redis.
		text += fmt.Sprintf(", url: %q, timeout: 1s", "redis://"+at.redis)
	}
	text += "}\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return nil, err
	}
	return exec.Command(binary("sluice"), "serve", "--config", file), nil
}

// runRatelimit runs the reference, or its drop-in replacement.
func runRatelimit(name string, args ...string) func(place) (*exec.Cmd, error) {
	return func(at place) (*exec.Cmd, error) {
		if err := writeServiceRules(at); err != nil {
			return nil, err
		}
		cmd := exec.Command(binary(name), args...)
		cmd.Env = []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"),
			"HOST=127.0.0.1", "PORT=" + at.port(at.http), "GRPC_HOST=127.0.0.1", "GRPC_PORT=" + at.port(at.grpc),
			"DEBUG_HOST=127.0.0.1", "DEBUG_PORT=" + at.port(at.third), "DISABLE_STATS=true", "USE_STATSD=false",
			"RUNTIME_ROOT=" + at.dir, "RUNTIME_APPDIRECTORY=config", "RUNTIME_WATCH_ROOT=false",
			"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + at.redis,
		}
		if at.over {
			cmd.Env = append(cmd.Env, "LOCAL_CACHE_SIZE_IN_BYTES=10000000")
		}
		return cmd, nil
	}
}

// runGubernator runs one node. With any configuration it also listens on port 7946 for others.
func runGubernator(at place) (*exec.Cmd, error) {
	file := filepath.Join(at.dir, "gubernator.conf")
	if err := os.WriteFile(file, nil, 0o644); err != nil { // it requires this file
		return nil, err
	}
	cmd := exec.Command(binary("gubernator"), "-config", file)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"),
		"GUBER_GRPC_ADDRESS=" + at.grpc, "GUBER_HTTP_ADDRESS=" + at.http, "GUBER_ADVERTISE_ADDRESS=" + at.grpc,
		"GUBER_CACHE_SIZE=2000000", "GUBER_LOG_LEVEL=error", "OTEL_TRACES_EXPORTER=none",
	}
	return cmd, nil
}

// runFloorAs runs this program as a floor.
func runFloorAs(of func(place) job) func(place) (*exec.Cmd, error) {
	return func(at place) (*exec.Cmd, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(of(at))
		if err != nil {
			return nil, err
		}
		return exec.Command(self, "-child", string(text)), nil
	}
}

// floorServer responds without reading more of a request than the number of descriptors.
type floorServer struct {
	rls.UnimplementedRateLimitServiceServer
	answers []*rls.RateLimitResponse
}

func (f *floorServer) ShouldRateLimit(_ context.Context, r *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return f.answers[min(len(r.Descriptors), len(f.answers)-1)], nil
}

// serveFloor is the child process that runFloorAs starts. It runs until the process ends.
func serveFloor(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return serveFloorOn(l)
}

func serveFloorOn(l net.Listener) error {
	f := new(floorServer)
	for n := range fillTakes + 1 {
		answer := &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}
		for range n {
			answer.Statuses = append(answer.Statuses, &rls.RateLimitResponse_DescriptorStatus{
				Code:           rls.RateLimitResponse_OK,
				CurrentLimit:   &rls.RateLimitResponse_RateLimit{RequestsPerUnit: userLimit, Unit: rls.RateLimitResponse_RateLimit_YEAR},
				LimitRemaining: userLimit - 1, DurationUntilReset: &durationpb.Duration{Seconds: 1_000_000},
			})
		}
		f.answers = append(f.answers, answer)
	}
	s := grpc.NewServer()
	rls.RegisterRateLimitServiceServer(s, f)
	return s.Serve(l)
}
