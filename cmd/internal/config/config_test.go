package config_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/rules"
)

var update = flag.Bool("update", false, "write the table of settings into docs/service.md")

func noEnv(string) (string, bool) { return "", false }

// Every setting has its place in the file and is read: a file with all of them is sound.
const all = `
listeners:
  grpc:
    address: unix:///run/sluice.sock
    tls: {cert: a.crt, key: a.key, client_ca: /ca.crt}
    max_connections: 5
    max_connections_per_address: 2
    max_streams: 6
    max_header_size: 8KiB
    max_message_size: 1MiB
    max_connection_age: 7m
    max_connection_age_grace: 8s
    reflection: false
  http:
    address: "[::1]:80"
    tls: {cert: b.crt, key: b.key, client_ca: c.crt}
    max_connections: 9
    max_connections_per_address: 3
  admin:
    address: ":6071"
    tls: {cert: d.crt, key: d.key, client_ca: e.crt}
    max_connections: 10
  resp:
    address: ":6380"
    tls: {cert: d.crt, key: d.key, client_ca: e.crt}
    max_connections: 13
    max_connections_per_address: 5
  gateway:
    address: ":8000"
    tls: {cert: g.crt, key: g.key, client_ca: ga.crt}
    certificates: [{cert: g2.crt, key: /g2.key}]
    acme: {domains: [api.example.com], email: ops@example.com, directory: "https://acme.example.com/dir", ca: aca, cache: acache, http: ":80"}
    max_connections: 14
    max_connections_per_address: 6
    max_header_size: 32KiB
    max_streams: 15
  drain: {wait: 5s, timeout: 6s}
store: {kind: memory, prefix: "x:", memory: 2GiB, snapshot: state, budget: 20ms, instances: 3, required: true}
rules: {paths: [a, /b], merge_domains: true, charge_denied: true}
rls:
  max_descriptors: 10
  overrides: true
  negative_hits: true
  shadow: true
  quota: true
  metadata: true
  headers: {enabled: true, limit: L, remaining: R, reset: S}
  clients: {web.example.com: [web, api], "spiffe://x/y": "*"}
auth: {max_wait: 3s}
check: {secret_file: s, refund_token_file: r}
metrics:
  enabled: true
  on_http: true
  public: true
  otlp: {endpoint: "https://m:1", headers_file: /h, interval: 10s, tls: {ca: x, cert: y, key: z}}
logging: {level: debug, format: json, denials: off, denials_per_second: 7, keys: masked, secret_file: s}
tracing: {endpoint: "https://collector:4317", headers_file: h, sample: 0.25, tls: {ca: ca, cert: /c, key: k}}
admin: {token_file: t, hosts: [ops.example.com]}
resp: {password_file: respw, on_failure: open}
queue:
  directory: kept
  name: q
  key_file: qk
  max_size: 2GiB
  max_count: 14
  max_size_per_key: 1GiB
  max_count_per_key: 7
  max_item_size: 2MiB
  max_results: 3MiB
  keep_dead: 0s
  workers: 15
  timeout: 9s
` + gatewayAll + authenticationAll

// outside has the settings that go with a queue outside only.
const outside = `
queue: {url: "tls://a:4222,tls://b:4222", credentials_file: c, tls: {ca: /a, cert: b, key: d}}
`

func TestQueueOutside(t *testing.T) {
	c, err := config.Parse("f", []byte(outside), noEnv)
	want := config.Default().Queue
	want.URL, want.CredentialsFile, want.TLS = "tls://a:4222,tls://b:4222", "c", config.StoreTLS{CA: "/a", Cert: "b", Key: "d"}
	if got, want := dump(t, c.Queue), dump(t, want); err != nil || got != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
}

// redis has the settings that go with Redis only.
const redis = `
store:
  kind: redis
  url: rediss://h
  password_file: p
  tls: {ca: /a, cert: c, key: k}
`

func TestRedisSettings(t *testing.T) {
	c, err := config.Parse("f", []byte(redis), noEnv)
	want := config.Store{
		Kind: "redis", URL: "rediss://h", PasswordFile: "p", Servers: []string{"127.0.0.1:11211"}, Prefix: "sluice:",
		TLS: config.StoreTLS{CA: "/a", Cert: "c", Key: "k"}, Bytes: 256 << 20, Budget: 10 * time.Millisecond,
	}
	if got, want := dump(t, c.Store), dump(t, want); err != nil || got != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
}

func TestAllSettings(t *testing.T) {
	directory := t.TempDir()
	path := filepath.Join(directory, "sluice.yaml")
	if err := os.WriteFile(path, []byte(all), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(directory, name) }
	want := config.Config{
		GRPC: config.GRPC{
			Address: "unix:///run/sluice.sock", TLS: config.TLS{Cert: in("a.crt"), Key: in("a.key"), ClientCA: "/ca.crt"},
			MaxConnections: 5, MaxPerAddress: 2, MaxStreams: 6, MaxHeaderBytes: 8 << 10, MaxMessageBytes: 1 << 20,
			MaxAge: 7 * time.Minute, MaxAgeGrace: 8 * time.Second,
		},
		HTTP: config.HTTP{
			Address: "[::1]:80", TLS: config.TLS{Cert: in("b.crt"), Key: in("b.key"), ClientCA: in("c.crt")}, MaxConnections: 9, MaxPerAddress: 3,
		},
		Admin: config.Admin{
			Address: ":6071", TLS: config.TLS{Cert: in("d.crt"), Key: in("d.key"), ClientCA: in("e.crt")}, MaxConnections: 10,
			TokenFile: in("t"), Hosts: []string{"ops.example.com"},
		},
		RESP: config.RESP{
			Address: ":6380", TLS: config.TLS{Cert: in("d.crt"), Key: in("d.key"), ClientCA: in("e.crt")}, MaxConnections: 13, MaxPerAddress: 5,
			PasswordFile: in("respw"), OnFailure: "open",
		},
		Gateway: gatewayWanted(in), Authentication: authenticationWanted(in),
		Drain: config.Drain{Wait: 5 * time.Second, Timeout: 6 * time.Second},
		Store: config.Store{
			Kind: "memory", Servers: []string{"127.0.0.1:11211"}, Prefix: "x:", Bytes: 2 << 30, Snapshot: in("state"),
			Budget: 20 * time.Millisecond, Instances: 3, Required: true,
		},
		Rules: config.Rules{Paths: []string{in("a"), "/b"}, MergeDomains: true, ChargeDenied: true},
		RLS: config.RLS{
			MaxDescriptors: 10, Overrides: true, NegativeHits: true, Shadow: true, Quota: true,
			Metadata: true, Headers: config.Headers{Enabled: true, Limit: "L", Remaining: "R", Reset: "S"},
			Clients: map[string][]string{"web.example.com": {"web", "api"}, "spiffe://x/y": {"*"}},
		},
		Check: config.Check{SecretFile: in("s"), RefundTokenFile: in("r")},
		Queue: config.Queue{
			Directory: in("kept"), Name: "q", KeyFile: in("qk"), MaxBytes: 2 << 30, MaxCount: 14, MaxKeyBytes: 1 << 30, MaxKeyCount: 7, MaxItem: 2 << 20, MaxResults: 3 << 20,
			Workers: 15, Timeout: 9 * time.Second,
		},
		Auth: config.Auth{MaxWait: 3 * time.Second},
		Metrics: config.Metrics{
			Enabled: true, OnHTTP: true, Public: true,
			OTLP: config.OTLPMetrics{Interval: 10 * time.Second, Collector: config.Collector{
				Endpoint: "https://m:1", HeadersFile: "/h", TLS: config.StoreTLS{CA: in("x"), Cert: in("y"), Key: in("z")},
			}},
		},
		Logging: config.Logging{
			Level: "debug", Format: "json", Denials: "off", DenialsPerSecond: 7, Keys: "masked", SecretFile: in("s"),
		},
		Tracing: config.Tracing{Sample: 0.25, Collector: config.Collector{
			Endpoint: "https://collector:4317", HeadersFile: in("h"), TLS: config.StoreTLS{CA: in("ca"), Cert: "/c", Key: in("k")},
		}},
	}
	if got, want := dump(t, c), dump(t, want); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, s := range config.Settings() {
		last := s.Name[strings.LastIndex(s.Name, ".")+1:]
		if !strings.Contains(all+redis+outside, last+":") && s.Name != "store.servers" {
			t.Errorf("%s is not in the file with all settings", s.Name)
		}
	}
}

func dump(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The defaults are those of the table, and an empty file has them.
func TestDefault(t *testing.T) {
	c := config.Default()
	want := config.Config{
		GRPC: config.GRPC{
			Address: "127.0.0.1:8081", MaxConnections: 10000, MaxStreams: 250, MaxHeaderBytes: 16 << 10, MaxMessageBytes: 1 << 20,
			MaxAge: 30 * time.Minute, MaxAgeGrace: time.Minute, Reflection: true,
		},
		HTTP:  config.HTTP{Address: "127.0.0.1:8080", MaxConnections: 10000},
		Admin: config.Admin{Address: "127.0.0.1:6070", MaxConnections: 100},
		RESP:  config.RESP{Address: "off", MaxConnections: 10000, OnFailure: "local"},
		Gateway: config.Gateway{
			Address: "off", MaxConnections: 10000, MaxBuffered: 128 << 20, MaxHeaderBytes: 64 << 10, MaxStreams: 250, ACME: config.ACME{Cache: "acme", HTTP: "off"},
			AccessLog: config.AccessLog{Format: "json"},
		},
		Authentication: config.Authentication{
			APIKeys: config.APIKeys{Header: "X-Api-Key"}, Basic: config.Basic{Realm: "Sluice"}, WrongAttempts: "10/min",
			JWT: config.JWT{JWKSRefresh: 5 * time.Minute, Leeway: 30 * time.Second, UserClaim: "sub", PlanClaim: "plan", Forward: true},
		},
		Drain: config.Drain{Timeout: 20 * time.Second},
		Store: config.Store{
			Kind: "memory", Servers: []string{"127.0.0.1:11211"}, Prefix: "sluice:", Bytes: 256 << 20, Budget: 10 * time.Millisecond,
		},
		RLS: config.RLS{
			MaxDescriptors: 1000,
			Headers:        config.Headers{Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset"},
		},
		Auth: config.Auth{MaxWait: time.Second},
		Queue: config.Queue{
			Name: "sluice", MaxBytes: 1 << 30, MaxCount: 100_000, MaxItem: 1 << 20, MaxResults: 256 << 20, KeepDead: 168 * time.Hour,
			Workers: 16, Timeout: time.Minute,
		},
		Metrics: config.Metrics{Enabled: true, OTLP: config.OTLPMetrics{Interval: time.Minute}},
		Logging: config.Logging{Level: "info", Format: "text", Denials: "sampled", DenialsPerSecond: 5, Keys: "masked"},
		Tracing: config.Tracing{Sample: 0.01},
	}
	if got, want := dump(t, c), dump(t, want); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, text := range []string{"", "# nothing\n", "{}"} {
		empty, err := config.Parse("f", []byte(text), noEnv)
		if got := dump(t, empty); err != nil || got != dump(t, want) {
			t.Errorf("%q: got %s, %v", text, got, err)
		}
	}
}

func TestFaults(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"fraction in quotes", "tracing: {endpoint: 'http://a', sample: '0.5'}", `f:1:41: tracing.sample: is "0.5": write a number between 0 and 1, such as 0.01 for one of a hundred`},
		{"attempts that cannot be counted", "authentication: {wrong_attempts: 5 concurrent}", `f:1:34: authentication.wrong_attempts: is "5 concurrent": write a limit such as 10/min, or off`},
		{"unknown section", "lsteners: {}", `f:1:1: there is no key "lsteners": did you mean "listeners"?`},
		{"unknown setting", "rls: {max: 3}", `f:1:7: rls: there is no key "max": use clients, headers, max_descriptors, metadata, negative_hits, overrides, quota or shadow`},
		{"no mapping", "store: memory", `f:1:8: store: is "memory": write a mapping, key: value`},
		{"a section that is empty", "store:", `f:1:7: store: is empty: write key: value below it, or remove it`},
		{"a list in place of all", "- a", `f:1:1: is a list: write a mapping, key: value`},
		{"a value that is empty", "store: {kind: }", `f:1:15: store.kind: is nothing: write memory, redis or memcached`},
		{"address", "listeners: {grpc: {address: localhost}}", `f:1:29: listeners.grpc.address: is "localhost": write host:port such as 127.0.0.1:8081 or :8081 for all of the machine's addresses, unix:///path, or off`},
		{"port", "listeners: {http: {address: ':http'}}", `f:1:29: listeners.http.address: is ":http": write host:port such as 127.0.0.1:8081 or :8081 for all of the machine's addresses, unix:///path, or off`},
		{"no path", "listeners: {grpc: {address: 'unix://'}}", `f:1:29: listeners.grpc.address: is "unix://": there is no path: write unix:///run/sluice.sock`},
		{"all off", "listeners: {grpc: {address: off}, http: {address: off}}", `f:1:12: listeners: all listeners are off: leave one on`},
		{"RESP for everybody", "listeners: {resp: {address: ':6380'}}", `f:1:29: listeners.resp.address: whoever reaches :6380 may spend anybody's limits: set resp.password_file or listeners.resp.tls.client_ca, or listen on 127.0.0.1`},
		{"RESP for the network", "listeners: {resp: {address: '192.0.2.1:6380', tls: {cert: c, key: k}}}", `f:1:29: listeners.resp.address: whoever reaches 192.0.2.1:6380 may spend anybody's limits: set resp.password_file or listeners.resp.tls.client_ca, or listen on 127.0.0.1`},
		{"half of RESP's pair", "listeners: {resp: {tls: {cert: c}}}", `f:1:25: listeners.resp.tls: TLS needs both a certificate and its key: set cert and key`},
		{"size without unit", "store: {memory: 5}", `f:1:17: store.memory: is 5: write a size such as 512B, 64KiB, 16MiB or 2GiB`},
		{"too small", "listeners: {grpc: {max_message_size: 10B}}", `f:1:38: listeners.grpc.max_message_size: 10B is not between 1KiB and 16MiB`},
		{"number", "rls: {max_descriptors: 0}", `f:1:24: rls.max_descriptors: 0 is not between 1 and 100000`},
		{"duration", "store: {budget: 10}", `f:1:17: store.budget: 10 has no unit: write 10s for seconds, or another duration such as 10m, 1h30m or 7d`},
		{"no duration", "listeners: {drain: {timeout: 0s}}", `f:1:30: listeners.drain.timeout: is "0s": write a duration above zero`},
		{"boolean", "rls: {shadow: yes}", `f:1:15: rls.shadow: is "yes": write true or false`},
		{"key without certificate", "listeners: {grpc: {tls: {key: k}}}", `f:1:25: listeners.grpc.tls: TLS needs both a certificate and its key: set cert and key`},
		{"redis without url", "store: {kind: redis}", `f:1:15: store.kind: redis needs a url: write url: redis://localhost:6379 below it`},
		{"url without redis", "store: {url: 'redis://h'}", `f:1:14: store.url: is for kind: redis, and this is memory: remove it, or change kind`},
		{"a queue nowhere", "queue: {workers: 3}", `f:1:8: queue: say where it is: directory: /var/lib/sluice/queue, or url: nats://host:4222`},
		{"a queue twice", "queue: {directory: d, url: 'nats://h'}", `f:1:8: queue: it is either in a directory or at a url: remove one of them`},
		{"a queue's url", "queue: {url: 'http://h'}", `f:1:14: queue.url: write a URL that begins with nats://, or tls:// for TLS`},
		{"a queue's credentials", "queue: {directory: d, credentials_file: c}", `f:1:41: queue.credentials_file: is for servers outside: remove it, or set url instead of directory`},
		{"a queue's key", "queue: {url: 'nats://h', tls: {cert: c}}", `f:1:31: queue.tls: a certificate and its key go together: set cert and key, or neither`},
		{"more than all", "listeners: {grpc: {max_connections: 5, max_connections_per_address: 6}}", `f:1:69: listeners.grpc.max_connections_per_address: 6 is more than max_connections (5): write at most that, or raise it`},
		{"more of a key than of all", "queue: {directory: d, max_size: 1MiB, max_size_per_key: 2MiB, max_count: 1, max_count_per_key: 2}", `f:1:57: queue.max_size_per_key: 2MiB is more than max_size (1MiB): write at most that, or raise it
f:1:96: queue.max_count_per_key: 2 is more than max_count (1): write at most that, or raise it`},
		{"TLS for memory", "store: {tls: {ca: c}}", `f:1:14: store.tls: a store in memory has no servers: remove it, or change kind`},
		{"half of a pair", "store: {kind: memcached, tls: {cert: c}}", `f:1:31: store.tls: a certificate and its key go together: set cert and key, or neither`},
		{"TLS without TLS", "store: {kind: redis, url: 'redis://h', tls: {ca: c}}", `f:1:45: store.tls: the url is without TLS: let it begin with rediss://`},
		{"not a url of redis", "store: {kind: redis, url: 'http://secret'}", `f:1:27: store.url: write a URL that begins with redis://, rediss:// for TLS, or unix://`},
		{"admin on all addresses", "listeners:\n  admin: {address: ':6070'}", `f:2:20: listeners.admin.address: :6070 can be reached from other machines, and whoever reaches it may lift limits and block: set admin: {token_file: /path/to/token}, or tls: {client_ca: …} beside the address, or write 127.0.0.1:6070`},
		{"admin without a certificate", "listeners: {admin: {address: ':6070', tls: {client_ca: a}}}", "f:1:44: listeners.admin.tls: TLS needs both a certificate and its key: set cert and key"},
		{"admin off", "listeners: {admin: {address: off}}\nadmin: {token_file: t}", "f:2:8: admin: the listener is off: remove this section, or listeners.admin.address"},
		{"clients without certificates", "rls: {clients: {a: b}}", `f:1:16: rls.clients: names of clients are believed only if somebody signs them: set listeners.grpc.tls.client_ca`},
		{"clients without domains", "rls: {clients: {a: []}}", `f:1:16: rls.clients: names of clients are believed only if somebody signs them: set listeners.grpc.tls.client_ca
f:1:20: rls.clients: the list is empty: write a domain, or "*" for all of them`},
		{"a secret for nothing", "logging: {keys: plain, secret_file: s}", `f:1:37: logging.secret_file: is for keys: masked, and this is plain: remove it, or change keys`},
		{"no fraction", "tracing: {sample: 5%}", `f:1:19: tracing.sample: is "5%": write a number between 0 and 1, such as 0.01 for one of a hundred`},
		{"no number", "tracing: {sample: NaN}", `f:1:19: tracing.sample: is "NaN": write a number between 0 and 1, such as 0.01 for one of a hundred`},
		{"no collector", "tracing: {sample: 1}", `f:1:10: tracing: there is no endpoint: write endpoint: http://localhost:4317, or remove it`},
		{"collector without scheme", "tracing: {endpoint: 'localhost:4317'}", `f:1:21: tracing.endpoint: write a URL that begins with http://, or https:// for TLS`},
		{"half a pair for a collector", "tracing: {endpoint: 'https://h', tls: {key: k}}", `f:1:39: tracing.tls: a certificate and its key go together: set cert and key, or neither`},
		{"collector without TLS", "tracing: {endpoint: 'http://h', tls: {ca: c}}", `f:1:38: tracing.tls: the endpoint is without TLS: let it begin with https://`},
		{"no collector of metrics", "metrics: {otlp: {interval: 1s}}", `f:1:17: metrics.otlp: there is no endpoint: write endpoint: http://localhost:4317, or remove it`},
		{"no such variable", "store: {kind: redis, url: 'redis://${NOBODY}@h'}", `f:1:27: store.url: there is no environment variable "NOBODY": set it, or write $$ for a $`},
		{"no variables in keys", "${SECTION}: {}", `f:1:1: there is no key "${SECTION}": use admin, auth, authentication, check, gateway, listeners, logging, metrics, queue, resp, rls, rules, store or tracing`},
		{"metrics that are off", "metrics: {enabled: false, on_http: true}", `f:1:36: metrics.on_http: metrics are switched off: remove it, or enabled: false`},
		{"metrics on no listener", "metrics: {on_http: true}\nlisteners: {http: {address: off}}", `f:1:20: metrics.on_http: listeners.http is off: give it an address, or remove on_http`},
		{"several", "rls: {shadow: 1, quota: 2}\nlogging: {level: x}", `f:1:15: rls.shadow: is 1: write true or false
f:1:25: rls.quota: is 2: write true or false
f:2:18: logging.level: is "x": write debug, info, warn or error`},
		{"no YAML", "a: [", `f:1:1: there is a , ] or } where a value should be, or a [ or { without an end`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := config.Parse("f", []byte(tt.text), noEnv)
			if err == nil {
				t.Fatal("it is taken")
			}
			if got := err.Error(); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			var e *rules.Error
			if !errors.As(err, &e) || e.Pos.Line == 0 {
				t.Errorf("%v has no place", err)
			}
		})
	}
}

// Redis clients of this machine need no password, and others none if they show a certificate.
func TestRESPAddresses(t *testing.T) {
	for _, text := range []string{
		"listeners: {resp: {address: '127.0.0.1:6380'}}", "listeners: {resp: {address: '[::1]:6380'}}",
		"listeners: {resp: {address: 'localhost:6380'}}", "listeners: {resp: {address: 'unix:///run/s.sock'}}",
		"listeners: {resp: {address: ':6380', tls: {cert: c, key: k, client_ca: a}}}",
		"listeners: {resp: {address: ':6380'}}\nresp: {password_file: p}",
		"listeners: {resp: {address: '127.0.0.1:0'}, grpc: {address: off}, http: {address: off}}",
	} {
		if _, err := config.Parse("f", []byte(text), noEnv); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestVariables(t *testing.T) {
	env := map[string]string{"PASSWORD": "p:${X}", "N": "7", "EMPTY": ""}
	look := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	c, err := config.Parse("f", []byte(`
store: {kind: redis, url: "redis://u:${PASSWORD}@h/$$1${EMPTY}"}
rls:
  max_descriptors: ${N}
rules: {paths: [a, "${N}/b"]}
`), look)
	if err != nil {
		t.Fatal(err)
	}
	if c.Store.URL != "redis://u:p:${X}@h/$1" || c.RLS.MaxDescriptors != 7 || c.Rules.Paths[1] != "7/b" {
		t.Errorf("got %q, %d, %q", c.Store.URL, c.RLS.MaxDescriptors, c.Rules.Paths)
	}
}

func TestLooks(t *testing.T) {
	for text, want := range map[string]bool{
		"listeners: {}": true, "rules: {paths: [x]}": true, "store: {}\nrules: {}": true, all: true,
		"rules: [{name: a}]": false, "domain: d": false, "": false, "- a": false, "[": false, "attributes: {}\nrules:\n  - {}": false,
	} {
		if got := config.IsServiceConfig([]byte(text)); got != want {
			t.Errorf("%q looks like a configuration: %v", text, got)
		}
	}
}

func TestNoFile(t *testing.T) {
	for _, path := range []string{filepath.Join(t.TempDir(), "none.yaml"), t.TempDir()} {
		if _, err := config.Load(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

// The schema takes what is taken, and refuses misspelt keys and wrong types.
func TestSchema(t *testing.T) {
	b, err := config.Schema()
	if err != nil {
		t.Fatal(err)
	}
	var document any
	if err := json.Unmarshal(b, &document); err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("service.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("service.json")
	if err != nil {
		t.Fatal(err)
	}
	check := func(text string) error {
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		return schema.Validate(v)
	}
	if err := check(all); err != nil {
		t.Error(err)
	}
	for _, text := range []string{
		"lsteners: {}", "rls: {max_descriptors: x}", "rls: {shadow: maybe}", "store: {kind: x}", "store: {budget: 10}", "rules: []",
		"rls: {max_descriptors: 0}", "store: {budget: 0ms}", "store: {memory: 0B}", "store: {prefix: ''}", "listeners: {http: {address: 'localhost:65536'}}",
		"listeners: {http: {tls: {cert: a.pem}}}", "tracing: {sample: 0.5}", "queue: {directory: a, url: 'nats://a'}", "store: {tls: {cert: a.pem}}",
		"authentication: {identity_headers: {X-User: [user]}}", "authentication: {wrong_attempts: 5 concurrent}", "gateway: {upstreams: {a: {}}}",
	} {
		if check(text) == nil {
			t.Errorf("%s is taken", text)
		}
	}
}

// The configurations that docs/service.md shows are sound.
func TestShown(t *testing.T) {
	b, err := os.ReadFile("../../../docs/service.md")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(b), "```yaml\n")
	for _, part := range parts[1:] {
		text, _, _ := strings.Cut(part, "```")
		if _, err := config.Parse("shown", []byte(text), func(string) (string, bool) { return "value", true }); err != nil {
			t.Errorf("%v in\n%s", err, text)
		}
	}
	if len(parts) < 3 {
		t.Errorf("%d configurations are shown", len(parts)-1)
	}
}

// docs/service.md has the table of all settings as the code has it.
func TestDocumented(t *testing.T) {
	const path = "../../../docs/service.md"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- settings -->\n", "<!-- end of settings -->"
	head, rest, found := strings.Cut(string(b), begin)
	got, tail, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no place for the settings", path)
	}
	want := "\n" + config.Table() + "\n"
	if got == want {
		return
	}
	if !*update {
		t.Fatalf("%s has not the settings of the code: go test ./cmd/internal/config -update writes them", path)
	}
	if err := os.WriteFile(path, []byte(head+begin+want+end+tail), 0o600); err != nil {
		t.Fatal(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(all))
	f.Add([]byte("listeners: {grpc: {tls: {key: ${X}}}}\nstore: [a]\nrls: {clients: {a: {b: c}}}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := config.Parse("f", b, noEnv); err != nil && err.Error() == "" {
			t.Error("a fault without words")
		}
		config.IsServiceConfig(b)
	})
}

// Operators on other machines say who they are, or the configuration is refused.
func TestAdminBeyondThisMachine(t *testing.T) {
	parse := func(address, more string) error {
		_, err := config.Parse("f", []byte(fmt.Sprintf("listeners: {admin: {address: '%s'%s", address, more)), noEnv)
		return err
	}
	for _, address := range []string{":6070", "0.0.0.0:6070", "[::]:6070", "192.0.2.1:6070", "[::ffff:192.0.2.1]:6070", "ops.example.com:6070", "localhost.example.com:6070"} {
		for _, more := range []string{"}}", ", tls: {cert: a, key: b}}}", "}}\nadmin: {hosts: [a]}"} {
			if err := parse(address, more); err == nil || !strings.Contains(err.Error(), address+" can be reached from other machines") {
				t.Errorf("%s%s: %v", address, more, err)
			}
		}
		for _, more := range []string{"}}\nadmin: {token_file: t}", ", tls: {cert: a, key: b, client_ca: c}}}"} {
			if err := parse(address, more); err != nil {
				t.Errorf("%s%s: %v", address, more, err)
			}
		}
	}
	for _, address := range []string{"127.0.0.1:6070", "127.1.2.3:0", "[::1]:6070", "localhost:6070", "unix:///run/x.sock", "off"} {
		if err := parse(address, "}}"); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// An emptied file is what a full disk leaves, and not a wish for the defaults.
func TestEmptied(t *testing.T) {
	for _, text := range []string{"", "\n", "# a comment\n", "null\n", "---\n", "\ufeff"} {
		file := filepath.Join(t.TempDir(), "sluice.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := config.Load(file); err == nil || !strings.Contains(err.Error(), "the file is empty") {
			t.Errorf("%q: %v", text, err)
		}
	}
	file := filepath.Join(t.TempDir(), "sluice.yaml")
	if err := os.WriteFile(file, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := config.Load(file); err != nil || c.Store.Kind != config.Default().Store.Kind {
		t.Errorf("{}: %v", err)
	}
}
