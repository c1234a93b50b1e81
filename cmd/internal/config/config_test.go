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

var update = flag.Bool("update", false, "write the table of settings into docs/settings.md")

func noEnv(string) (string, bool) { return "", false }

// all is a configuration with every setting, except those of other stores and of external NATS servers.
const all = `
listeners:
  grpc:
    address: unix:///run/sluice.sock
    tls: {cert_file: a.crt, key_file: a.key, client_ca_file: /ca.crt}
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
    tls: {cert_file: b.crt, key_file: b.key, client_ca_file: c.crt}
    max_connections: 9
    max_connections_per_address: 3
  admin:
    address: ":6071"
    tls: {cert_file: d.crt, key_file: d.key, client_ca_file: e.crt}
    max_connections: 10
  resp:
    address: ":6380"
    tls: {cert_file: d.crt, key_file: d.key, client_ca_file: e.crt}
    max_connections: 13
    max_connections_per_address: 5
  gateway:
    address: ":8000"
    tls: {cert_file: g.crt, key_file: g.key, client_ca_file: ga.crt}
    certificates: [{cert_file: g2.crt, key_file: /g2.key}]
    acme: {domains: [api.example.com], email: ops@example.com, directory_url: "https://acme.example.com/dir", ca_file: aca, cache_dir: acache, http_address: ":80"}
    max_connections: 14
    max_connections_per_address: 6
    max_header_size: 32KiB
    max_streams: 15
  drain: {delay: 5s, timeout: 6s}
store: {kind: memory, key_prefix: "x:", max_memory: 2GiB, snapshot_file: state, timeout: 20ms, instances: 3, required: true}
rules: {paths: [a, /b], merge_domains: true, charge_denied: true}
rls:
  max_descriptors: 10
  accept_limit_overrides: true
  accept_negative_hits: true
  shadow_mode: true
  quota_mode: true
  dynamic_metadata: true
  headers: {enabled: true, limit: L, remaining: R, reset: S}
  client_domains: {web.example.com: [web, api], "spiffe://x/y": "*"}
forward_auth: {max_delay: 3s}
check_api: {reservation_secret_file: s, refund_token_file: r}
metrics:
  enabled: true
  http_listener: true
  allow_unauthenticated: true
  otlp: {endpoint: "https://m:1", headers_file: /h, interval: 10s, tls: {ca_file: x, cert_file: y, key_file: z}}
logging: {level: debug, format: json, denials: off, denials_per_second: 7, keys: masked, secret_file: s}
tracing: {endpoint: "https://collector:4317", headers_file: h, sample_ratio: 0.25, tls: {ca_file: ca, cert_file: /c, key_file: k}}
admin: {token_file: t, allowed_hosts: [ops.example.com]}
resp: {password_file: respw, on_failure: open}
queue:
  directory: kept
  stream_prefix: q
  encryption_key_file: qk
  max_total_size: 2GiB
  max_items: 14
  max_total_size_per_key: 1GiB
  max_items_per_key: 7
  max_item_size: 2MiB
  max_results_size: 3MiB
  dead_letter_ttl: 0s
  workers: 15
  delivery_timeout: 9s
` + gatewayAll + authenticationAll

// outside are the settings of external NATS servers.
const outside = `
queue: {url: "tls://a:4222,tls://b:4222", credentials_file: c, tls: {ca_file: /a, cert_file: b, key_file: d}}
`

func TestQueueOutside(t *testing.T) {
	c, err := config.Parse("f", []byte(outside), noEnv)
	want := config.Default().Queue
	want.URL, want.CredentialsFile, want.TLS = "tls://a:4222,tls://b:4222", "c", config.ClientTLS{CAFile: "/a", CertFile: "b", KeyFile: "d"}
	if got, want := dump(t, c.Queue), dump(t, want); err != nil || got != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
}

// redis are the settings of Redis.
const redis = `
store:
  kind: redis
  url: rediss://h
  password_file: p
  tls: {ca_file: /a, cert_file: c, key_file: k}
`

func TestRedisSettings(t *testing.T) {
	c, err := config.Parse("f", []byte(redis), noEnv)
	want := config.Store{
		Kind: "redis", URL: "rediss://h", PasswordFile: "p", Addresses: []string{"127.0.0.1:11211"}, KeyPrefix: "sluice:",
		TLS: config.ClientTLS{CAFile: "/a", CertFile: "c", KeyFile: "k"}, MaxMemory: 256 << 20, Timeout: 10 * time.Millisecond,
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
			Address: "unix:///run/sluice.sock", TLS: config.TLS{CertFile: in("a.crt"), KeyFile: in("a.key"), ClientCAFile: "/ca.crt"},
			MaxConnections: 5, MaxConnectionsPerAddress: 2, MaxStreams: 6, MaxHeaderSize: 8 << 10, MaxMessageSize: 1 << 20,
			MaxConnectionAge: 7 * time.Minute, MaxConnectionAgeGrace: 8 * time.Second,
		},
		HTTP: config.HTTP{
			Address: "[::1]:80", TLS: config.TLS{CertFile: in("b.crt"), KeyFile: in("b.key"), ClientCAFile: in("c.crt")}, MaxConnections: 9, MaxConnectionsPerAddress: 3,
		},
		Admin: config.Admin{
			Address: ":6071", TLS: config.TLS{CertFile: in("d.crt"), KeyFile: in("d.key"), ClientCAFile: in("e.crt")}, MaxConnections: 10,
			TokenFile: in("t"), AllowedHosts: []string{"ops.example.com"},
		},
		RESP: config.RESP{
			Address: ":6380", TLS: config.TLS{CertFile: in("d.crt"), KeyFile: in("d.key"), ClientCAFile: in("e.crt")}, MaxConnections: 13, MaxConnectionsPerAddress: 5,
			PasswordFile: in("respw"), OnFailure: "open",
		},
		Gateway: gatewayWanted(in), Authentication: authenticationWanted(in),
		Drain: config.Drain{Delay: 5 * time.Second, Timeout: 6 * time.Second},
		Store: config.Store{
			Kind: "memory", Addresses: []string{"127.0.0.1:11211"}, KeyPrefix: "x:", MaxMemory: 2 << 30, SnapshotFile: in("state"),
			Timeout: 20 * time.Millisecond, Instances: 3, Required: true,
		},
		Rules: config.Rules{Paths: []string{in("a"), "/b"}, MergeDomains: true, ChargeDenied: true},
		RLS: config.RLS{
			MaxDescriptors: 10, AcceptLimitOverrides: true, AcceptNegativeHits: true, ShadowMode: true, QuotaMode: true,
			DynamicMetadata: true, Headers: config.Headers{Enabled: true, Limit: "L", Remaining: "R", Reset: "S"},
			ClientDomains: map[string][]string{"web.example.com": {"web", "api"}, "spiffe://x/y": {"*"}},
		},
		CheckAPI: config.CheckAPI{ReservationSecretFile: in("s"), RefundTokenFile: in("r")},
		Queue: config.Queue{
			Directory: in("kept"), StreamPrefix: "q", EncryptionKeyFile: in("qk"), MaxTotalSize: 2 << 30, MaxItems: 14,
			MaxTotalSizePerKey: 1 << 30, MaxItemsPerKey: 7, MaxItemSize: 2 << 20, MaxResultsSize: 3 << 20,
			Workers: 15, DeliveryTimeout: 9 * time.Second,
		},
		ForwardAuth: config.ForwardAuth{MaxDelay: 3 * time.Second},
		Metrics: config.Metrics{
			Enabled: true, HTTPListener: true, AllowUnauthenticated: true,
			OTLP: config.OTLPMetrics{Interval: 10 * time.Second, Collector: config.Collector{
				Endpoint: "https://m:1", HeadersFile: "/h", TLS: config.ClientTLS{CAFile: in("x"), CertFile: in("y"), KeyFile: in("z")},
			}},
		},
		Logging: config.Logging{
			Level: "debug", Format: "json", Denials: "off", DenialsPerSecond: 7, Keys: "masked", SecretFile: in("s"),
		},
		Tracing: config.Tracing{SampleRatio: 0.25, Collector: config.Collector{
			Endpoint: "https://collector:4317", HeadersFile: in("h"), TLS: config.ClientTLS{CAFile: in("ca"), CertFile: "/c", KeyFile: in("k")},
		}},
	}
	if got, want := dump(t, c), dump(t, want); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, s := range config.Settings() {
		last := s.Name[strings.LastIndex(s.Name, ".")+1:]
		if !strings.Contains(all+redis+outside, last+":") && s.Name != "store.addresses" {
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

// The defaults are those of the table, and an empty file leaves them unchanged.
func TestDefault(t *testing.T) {
	c := config.Default()
	want := config.Config{
		GRPC: config.GRPC{
			Address: "127.0.0.1:8081", MaxConnections: 10000, MaxStreams: 250, MaxHeaderSize: 16 << 10, MaxMessageSize: 1 << 20,
			MaxConnectionAge: 30 * time.Minute, MaxConnectionAgeGrace: time.Minute, Reflection: true,
		},
		HTTP:  config.HTTP{Address: "127.0.0.1:8080", MaxConnections: 10000},
		Admin: config.Admin{Address: "127.0.0.1:6070", MaxConnections: 100},
		RESP:  config.RESP{Address: "off", MaxConnections: 10000, OnFailure: "local"},
		Gateway: config.Gateway{
			Address: "off", MaxConnections: 10000, MaxBufferedSize: 128 << 20, MaxHeaderSize: 64 << 10, MaxStreams: 250, ACME: config.ACME{CacheDir: "acme", HTTPAddress: "off"},
			AccessLog: config.AccessLog{Format: "json"},
		},
		Authentication: config.Authentication{
			APIKeys: config.APIKeys{Header: "X-Api-Key"}, Basic: config.Basic{Realm: "Sluice"}, FailedAttempts: "10/min",
			JWT: config.JWT{JWKSRefresh: 5 * time.Minute, Leeway: 30 * time.Second, UserClaim: "sub", PlanClaim: "plan", ForwardCredentials: true},
		},
		Drain: config.Drain{Timeout: 20 * time.Second},
		Store: config.Store{
			Kind: "memory", Addresses: []string{"127.0.0.1:11211"}, KeyPrefix: "sluice:", MaxMemory: 256 << 20, Timeout: 10 * time.Millisecond,
		},
		RLS: config.RLS{
			MaxDescriptors: 1000,
			Headers:        config.Headers{Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset"},
		},
		ForwardAuth: config.ForwardAuth{MaxDelay: time.Second},
		Queue: config.Queue{
			StreamPrefix: "sluice", MaxTotalSize: 1 << 30, MaxItems: 100_000, MaxItemSize: 1 << 20, MaxResultsSize: 256 << 20, DeadLetterTTL: 168 * time.Hour,
			Workers: 16, DeliveryTimeout: time.Minute,
		},
		Metrics: config.Metrics{Enabled: true, OTLP: config.OTLPMetrics{Interval: time.Minute}},
		Logging: config.Logging{Level: "info", Format: "text", Denials: "sampled", DenialsPerSecond: 5, Keys: "masked"},
		Tracing: config.Tracing{SampleRatio: 0.01},
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
		{"fraction in quotes", "tracing: {endpoint: 'http://a', sample_ratio: '0.5'}", `f:1:47: tracing.sample_ratio: is "0.5": write a number between 0 and 1, such as 0.01 for 1 %`},
		{"attempts that cannot be counted", "authentication: {failed_attempts: 5 concurrent}", `f:1:35: authentication.failed_attempts: is "5 concurrent": write a limit such as 10/min, or off`},
		{"unknown section", "lsteners: {}", `f:1:1: there is no key "lsteners": did you mean "listeners"?`},
		{"unknown setting", "rls: {max: 3}", `f:1:7: rls: there is no key "max": use accept_limit_overrides, accept_negative_hits, client_domains, dynamic_metadata, headers, max_descriptors, quota_mode or shadow_mode`},
		{"no mapping", "store: memory", `f:1:8: store: is "memory": write a mapping, key: value`},
		{"a section that is empty", "store:", `f:1:7: store: is empty: write key: value below it, or remove it`},
		{"a list in place of all", "- a", `f:1:1: is a list: write a mapping, key: value`},
		{"a value that is empty", "store: {kind: }", `f:1:15: store.kind: is nothing: write memory, redis or memcached`},
		{"address", "listeners: {grpc: {address: localhost}}", `f:1:29: listeners.grpc.address: is "localhost": write host:port such as 127.0.0.1:8081 or :8081 for all interfaces, unix:///path, or off`},
		{"port", "listeners: {http: {address: ':http'}}", `f:1:29: listeners.http.address: is ":http": write host:port such as 127.0.0.1:8081 or :8081 for all interfaces, unix:///path, or off`},
		{"no path", "listeners: {grpc: {address: 'unix://'}}", `f:1:29: listeners.grpc.address: is "unix://": there is no path: write unix:///run/sluice.sock`},
		{"all off", "listeners: {grpc: {address: off}, http: {address: off}}", `f:1:12: listeners: all listeners are off: set the address of one`},
		{"RESP for everybody", "listeners: {resp: {address: ':6380'}}", `f:1:29: listeners.resp.address: :6380 can be reached from other hosts without authentication: set resp.password_file or listeners.resp.tls.client_ca_file, or listen on 127.0.0.1`},
		{"RESP for the network", "listeners: {resp: {address: '192.0.2.1:6380', tls: {cert_file: c, key_file: k}}}", `f:1:29: listeners.resp.address: 192.0.2.1:6380 can be reached from other hosts without authentication: set resp.password_file or listeners.resp.tls.client_ca_file, or listen on 127.0.0.1`},
		{"half of RESP's pair", "listeners: {resp: {tls: {cert_file: c}}}", `f:1:25: listeners.resp.tls: TLS needs both a certificate and its key: set cert_file and key_file`},
		{"size without unit", "store: {max_memory: 5}", `f:1:21: store.max_memory: is 5: write a size such as 512B, 64KiB, 16MiB or 2GiB`},
		{"too small", "listeners: {grpc: {max_message_size: 10B}}", `f:1:38: listeners.grpc.max_message_size: 10B is not between 1KiB and 16MiB`},
		{"number", "rls: {max_descriptors: 0}", `f:1:24: rls.max_descriptors: 0 is not between 1 and 100000`},
		{"duration", "store: {timeout: 10}", `f:1:18: store.timeout: 10 has no unit: write 10s for seconds, or another duration such as 10m, 1h30m or 7d`},
		{"too short", "metrics: {otlp: {endpoint: 'http://h', interval: 1ns}}", `f:1:50: metrics.otlp.interval: 1ns is not between 1s and 3650d`},
		{"connections too short", "listeners: {grpc: {max_connection_age: 1ms}}", `f:1:40: listeners.grpc.max_connection_age: 1ms is not between 1s and 3650d`},
		{"too long", "listeners: {drain: {delay: 90000h, timeout: 9999999h}}", `f:1:28: listeners.drain.delay: is "90000h", which is too long: write at most 3650d
f:1:45: listeners.drain.timeout: is "9999999h", which is too long: write at most 3650d`},
		{"an unclosed variable", "store: {key_prefix: 'a${NOPE'}", "f:1:21: store.key_prefix: \"${NOPE\" has no closing brace: write ${NAME} for an environment variable, or $${ for the text ${"},
		{"a removed key", "rls: {max_bytes: 1000}", `f:1:7: rls.max_bytes: removed: values of any length are counted: delete it`},
		{"no duration", "listeners: {drain: {timeout: 0s}}", `f:1:30: listeners.drain.timeout: is "0s": write a duration above zero`},
		{"boolean", "rls: {shadow_mode: yes}", `f:1:20: rls.shadow_mode: is "yes": write true or false`},
		{"key without certificate", "listeners: {grpc: {tls: {key_file: k}}}", `f:1:25: listeners.grpc.tls: TLS needs both a certificate and its key: set cert_file and key_file`},
		{"redis without url", "store: {kind: redis}", `f:1:15: store.kind: redis needs a url: write url: redis://localhost:6379 below it`},
		{"url without redis", "store: {url: 'redis://h'}", `f:1:14: store.url: is for kind: redis, and this is memory: remove it, or change kind`},
		{"a queue nowhere", "queue: {workers: 3}", `f:1:8: queue: there is no directory and no url: write directory: /var/lib/sluice/queue, or url: nats://host:4222`},
		{"a queue twice", "queue: {directory: d, url: 'nats://h'}", `f:1:8: queue: directory and url are both set: remove one of them`},
		{"a queue's url", "queue: {url: 'http://h'}", `f:1:14: queue.url: begins with "http://": write a URL that begins with nats://, or tls:// for TLS`},
		{"a queue's credentials", "queue: {directory: d, credentials_file: c}", `f:1:41: queue.credentials_file: is for external NATS servers: remove it, or set url instead of directory`},
		{"a queue's key", "queue: {url: 'nats://h', tls: {cert_file: c}}", `f:1:31: queue.tls: a certificate and its key go together: set cert_file and key_file, or neither`},
		{"more than all", "listeners: {grpc: {max_connections: 5, max_connections_per_address: 6}}", `f:1:69: listeners.grpc.max_connections_per_address: 6 is more than max_connections (5): write at most that, or raise it`},
		{"more of a key than of all", "queue: {directory: d, max_total_size: 1MiB, max_total_size_per_key: 2MiB, max_items: 1, max_items_per_key: 2}", `f:1:69: queue.max_total_size_per_key: 2MiB is more than max_total_size (1MiB): write at most that, or raise it
f:1:108: queue.max_items_per_key: 2 is more than max_items (1): write at most that, or raise it`},
		{"TLS for memory", "store: {tls: {ca_file: c}}", `f:1:14: store.tls: the memory store has no servers: remove it, or change kind`},
		{"half of a pair", "store: {kind: memcached, tls: {cert_file: c}}", `f:1:31: store.tls: a certificate and its key go together: set cert_file and key_file, or neither`},
		{"TLS without TLS", "store: {kind: redis, url: 'redis://h', tls: {ca_file: c}}", `f:1:45: store.tls: the url does not use TLS: begin it with rediss://`},
		{"not a url of redis", "store: {kind: redis, url: 'http://secret'}", `f:1:27: store.url: begins with "http://": write a URL that begins with redis://, rediss:// for TLS, or unix://`},
		{"admin on all addresses", "listeners:\n  admin: {address: ':6070'}", `f:2:20: listeners.admin.address: :6070 can be reached from other hosts without authentication: set admin.token_file or listeners.admin.tls.client_ca_file, or write 127.0.0.1:6070`},
		{"admin without a certificate", "listeners: {admin: {address: ':6070', tls: {client_ca_file: a}}}", "f:1:44: listeners.admin.tls: TLS needs both a certificate and its key: set cert_file and key_file"},
		{"admin off", "listeners: {admin: {address: off}}\nadmin: {token_file: t}", "f:2:8: admin: the listener is off: remove this section, or listeners.admin.address"},
		{"clients without certificates", "rls: {client_domains: {a: b}}", `f:1:23: rls.client_domains: client names are trusted only in verified certificates: set listeners.grpc.tls.client_ca_file`},
		{"clients without domains", "rls: {client_domains: {a: []}}", `f:1:23: rls.client_domains: client names are trusted only in verified certificates: set listeners.grpc.tls.client_ca_file
f:1:27: rls.client_domains: the list is empty: write a domain, or "*" for all of them`},
		{"a secret for nothing", "logging: {keys: plain, secret_file: s}", `f:1:37: logging.secret_file: is for keys: masked, and this is plain: remove it, or change keys`},
		{"no fraction", "tracing: {sample_ratio: 5%}", `f:1:25: tracing.sample_ratio: is "5%": write a number between 0 and 1, such as 0.01 for 1 %`},
		{"no number", "tracing: {sample_ratio: NaN}", `f:1:25: tracing.sample_ratio: is "NaN": write a number between 0 and 1, such as 0.01 for 1 %`},
		{"no collector", "tracing: {sample_ratio: 1}", `f:1:10: tracing: there is no endpoint: write endpoint: http://localhost:4317, or remove it`},
		{"collector without scheme", "tracing: {endpoint: 'localhost:4317'}", `f:1:21: tracing.endpoint: has no scheme: write a URL that begins with http://, or https:// for TLS`},
		{"half a pair for a collector", "tracing: {endpoint: 'https://h', tls: {key_file: k}}", `f:1:39: tracing.tls: a certificate and its key go together: set cert_file and key_file, or neither`},
		{"collector without TLS", "tracing: {endpoint: 'http://h', tls: {ca_file: c}}", `f:1:38: tracing.tls: the endpoint does not use TLS: begin it with https://`},
		{"no collector of metrics", "metrics: {otlp: {interval: 1s}}", `f:1:17: metrics.otlp: there is no endpoint: write endpoint: http://localhost:4317, or remove it`},
		{"no such variable", "store: {kind: redis, url: 'redis://${NOBODY}@h'}", `f:1:27: store.url: there is no environment variable "NOBODY": set it, or write $$ for a $`},
		{"no variables in keys", "${SECTION}: {}", `f:1:1: there is no key "${SECTION}": use admin, authentication, check_api, forward_auth, gateway, listeners, logging, metrics, queue, resp, rls, rules, store or tracing`},
		{"metrics that are off", "metrics: {enabled: false, http_listener: true}", `f:1:42: metrics.http_listener: metrics are disabled: remove it, or remove enabled: false`},
		{"metrics on no listener", "metrics: {http_listener: true}\nlisteners: {http: {address: off}}", `f:1:26: metrics.http_listener: listeners.http is off: set its address, or remove http_listener`},
		{"several", "rls: {shadow_mode: 1, quota_mode: 2}\nlogging: {level: x}", `f:1:20: rls.shadow_mode: is 1: write true or false
f:1:35: rls.quota_mode: is 2: write true or false
f:2:18: logging.level: is "x": write debug, info, warn or error`},
		{"no YAML", "a: [", `f:1:1: found , ] or } instead of a value, or a [ or { without an end`},
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

// Redis clients on loopback addresses need no password, and others need none if they have a certificate.
func TestRESPAddresses(t *testing.T) {
	for _, text := range []string{
		"listeners: {resp: {address: '127.0.0.1:6380'}}", "listeners: {resp: {address: '[::1]:6380'}}",
		"listeners: {resp: {address: 'localhost:6380'}}", "listeners: {resp: {address: 'unix:///run/s.sock'}}",
		"listeners: {resp: {address: ':6380', tls: {cert_file: c, key_file: k, client_ca_file: a}}}",
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

// The schema accepts a valid file and rejects misspelt keys and wrong types.
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
		"lsteners: {}", "rls: {max_descriptors: x}", "rls: {shadow_mode: maybe}", "store: {kind: x}", "store: {timeout: 10}", "rules: []",
		"rls: {max_descriptors: 0}", "store: {timeout: 0ms}", "store: {max_memory: 0B}", "store: {key_prefix: ''}", "listeners: {http: {address: 'localhost:65536'}}",
		"listeners: {http: {tls: {cert_file: a.pem}}}", "tracing: {sample_ratio: 0.5}", "queue: {directory: a, url: 'nats://a'}", "store: {tls: {cert_file: a.pem}}",
		"authentication: {identity_headers: {X-User: [user]}}", "authentication: {failed_attempts: 5 concurrent}", "gateway: {upstreams: {a: {}}}",
	} {
		if check(text) == nil {
			t.Errorf("%s is taken", text)
		}
	}
}

// The configurations in docs/service.md are valid.
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

// The table of settings in docs/settings.md is the one of the code.
func TestDocumented(t *testing.T) {
	const path = "../../../docs/settings.md"
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
	f.Add([]byte("listeners: {grpc: {tls: {key_file: ${X}}}}\nstore: [a]\nrls: {client_domains: {a: {b: c}}}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := config.Parse("f", b, noEnv); err != nil && err.Error() == "" {
			t.Error("an error without text")
		}
		config.IsServiceConfig(b)
	})
}

// An admin listener that other hosts can reach needs authentication.
func TestAdminBeyondThisMachine(t *testing.T) {
	parse := func(address, more string) error {
		_, err := config.Parse("f", []byte(fmt.Sprintf("listeners: {admin: {address: '%s'%s", address, more)), noEnv)
		return err
	}
	for _, address := range []string{":6070", "0.0.0.0:6070", "[::]:6070", "192.0.2.1:6070", "[::ffff:192.0.2.1]:6070", "ops.example.com:6070", "localhost.example.com:6070"} {
		for _, more := range []string{"}}", ", tls: {cert_file: a, key_file: b}}}", "}}\nadmin: {allowed_hosts: [a]}"} {
			if err := parse(address, more); err == nil || !strings.Contains(err.Error(), address+" can be reached from other hosts") {
				t.Errorf("%s%s: %v", address, more, err)
			}
		}
		for _, more := range []string{"}}\nadmin: {token_file: t}", ", tls: {cert_file: a, key_file: b, client_ca_file: c}}}"} {
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

// An empty file is an error, because a full disk can leave one: it does not mean the defaults.
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
