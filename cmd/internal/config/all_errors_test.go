package config_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/rules"
)

var validConfig = strings.Split(`listeners:
  grpc: {address: ":8081", max_connections: 100}
  http:
    address: ":8080"
    max_connections_per_address: 50
  gateway: {address: ":8000"}
store:
  kind: redis
  url: redis://localhost
rules: {paths: [rules.yaml]}
rls: {shadow_mode: true}
logging:
  level: info
  keys: masked
tracing: {endpoint: "http://localhost:4317", sample_ratio: 0.1}
queue:
  directory: /var/lib/sluice
  max_items: 100
  max_items_per_key: 10
authentication:
  api_keys: {files: [keys.yaml]}
gateway:
  upstreams:
    api: {servers: ["http://127.0.0.1:9001"]}
    web:
      servers: ["http://127.0.0.1:9002"]
      retries: 1
  routes:
    - {path: /web/**, upstream: web}
    - path: /api/**
      upstream: api
      timeout: 3s
      authentication: [api_keys]
`, "\n")

// Each of these errors is independent of all others.
var configPlants = []struct{ line, wrong, msg string }{
	{`  grpc: {address: ":8081", max_connections: 100}`, `  grpc: {address: ":8081", max_connections: none}`, "whole number"},
	{`  grpc: {address: ":8081", max_connections: 100}`, `  grpc: {address: ":8081", max_connections: 100`, "has no end"},
	{`  grpc: {address: ":8081", max_connections: 100}`, `  gprc: {address: ":8081"}`, `did you mean "grpc"`},
	{`    address: ":8080"`, `    address: 8080`, "write host:port"},
	{`    max_connections_per_address: 50`, `    max_connections_per_address: 1000000`, "is more than max_connections"},
	{`  url: redis://localhost`, `  url: http://localhost`, "redis://"},
	{`  url: redis://localhost`, `  url: redis://${NOSUCH}`, `no environment variable`},
	{`rules: {paths: [rules.yaml]}`, `rules: {paths: []}`, "the list is empty"},
	{`rules: {paths: [rules.yaml]}`, `rules: {paths: [rules.yaml}`, "has no end"},
	{`rls: {shadow_mode: true}`, `rls: {shadow_mode: maybe}`, "write true or false"},
	{`rls: {shadow_mode: true}`, `metrics: {http_listener: true, enabled: false}`, "metrics are disabled"},
	{`  level: info`, `  level: loud`, "logging.level"},
	{`  level: info`, `  level: "info`, "unclosed quote"},
	{`  keys: masked`, `  keys: @masked`, "cannot begin with @"},
	{`tracing: {endpoint: "http://localhost:4317", sample_ratio: 0.1}`, `tracing: {sample_ratio: 0.1}`, "there is no endpoint"},
	{`tracing: {endpoint: "http://localhost:4317", sample_ratio: 0.1}`, `tracing: {endpoint: "http://localhost:4317", sample_ratio: 7}`, "tracing.sample_ratio"},
	{`  max_items_per_key: 10`, `  max_items_per_key: 1000`, "is more than max_items"},
	{`  api_keys: {files: [keys.yaml]}`, `  api_keys: {file: [keys.yaml]}`, `did you mean "files"`},
	{`    api: {servers: ["http://127.0.0.1:9001"]}`, `    api: {servers: ["127.0.0.1:9001"]}`, "write http://host:port"},
	{`    api: {servers: ["http://127.0.0.1:9001"]}`, `    api: {servers: ["http://127.0.0.1:9001"}`, "has no end"},
	{`      retries: 1`, `      retries: many`, "whole number"},
	{`      retries: 1`, `      retries: 1: 2`, "second colon"},
	{`    - {path: /web/**, upstream: web}`, `    - {path: /web/**, upstream: wbe}`, `did you mean "web"`},
	{`    - {path: /web/**, upstream: web}`, `    - {path: web, upstream: web}`, "path"},
	{`    - {path: /web/**, upstream: web}`, `    - {path: /web/**, upstream: web`, "has no end"},
	{`    - path: /api/**`, `    - pth: /api/**`, `did you mean "path"`},
	{`      upstream: api`, `      upstream: nosuch`, "gateway.routes.upstream"},
	{`      timeout: 3s`, `      timeout: 3`, "has no unit"},
	{`      authentication: [api_keys]`, `      authentication: [basic]`, "basic is not set up"},
}

// All errors of a configuration are reported at once: those that were planted, each at its line, and no others.
func TestAllErrorsAtOnce(t *testing.T) {
	for round := range 60 {
		random := rand.New(rand.NewPCG(uint64(round), 29))
		lines, want := slices.Clone(validConfig), make(map[int]string)
		for range 1 + random.IntN(7) {
			p := configPlants[random.IntN(len(configPlants))]
			if at := slices.Index(lines, p.line); at >= 0 {
				lines[at], want[at+1] = p.wrong, p.msg
			}
		}
		_, err := config.Parse("f", []byte(strings.Join(lines, "\n")), noEnv)
		joined, _ := err.(interface{ Unwrap() []error })
		if joined == nil {
			t.Fatalf("the error is not joined: %v", err)
		}
		for _, one := range joined.Unwrap() {
			var e *rules.Error
			if !errors.As(one, &e) || e.Pos.Column == 0 || want[e.Pos.Line] == "" || !strings.Contains(e.Msg, want[e.Pos.Line]) {
				t.Errorf("is no planted error: %v", one)
				continue
			}
			delete(want, e.Pos.Line)
		}
		if len(want) > 0 {
			t.Errorf("not reported: %v", want)
		}
		if t.Failed() {
			t.Fatalf("round %d:\n%s\n%v", round, strings.Join(lines, "\n"), err)
		}
	}
}

// A rule file instead of a configuration file is recognised.
func TestRuleFileAsConfiguration(t *testing.T) {
	for _, text := range []string{
		"rules:\n  - {name: a, limit: 1/s}\n", "domain: a\ndescriptors: []\n", "attributes: {u: header:X-U}\nrules: []\n", "domain: a\n---\ndomain: b\n",
	} {
		_, err := config.Read("limits.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), "limits.yaml:1:1: this is a rule file: write rules: {paths: [limits.yaml]}") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
