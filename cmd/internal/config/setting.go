package config

import (
	"slices"
	"time"

	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// Setting is a key of the configuration file.
type Setting struct {
	Name string // path: "listeners.grpc.address"
	value
	Default string // as in a file; empty: none
	Doc     string // a noun phrase or an imperative; see TestDescriptions
}

// value is the type of a setting. Read decodes a node and stores the result in a field of the configuration.
type value struct {
	Type  string
	read  func(*decoder, *strictyaml.Node)
	shape shape // nil: entries with their own keys, see entryShape
}

// Settings lists all settings in the order in which they are documented.
func Settings() []Setting { return new(Config).settings() }

func tlsSettings(prefix string, tls *TLS) []Setting {
	return []Setting{
		{prefix + "cert_file", file(&tls.CertFile), "", "PEM file of the certificate chain; enables TLS on this listener. Reloaded within 5 s of a change and on SIGHUP"},
		{prefix + "key_file", file(&tls.KeyFile), "", "PEM file of the private key"},
		{prefix + "client_ca_file", file(&tls.ClientCAFile), "", "PEM file of the CAs of client certificates. Clients without a certificate of these CAs are rejected"},
	}
}

// perAddress returns the setting of a listener for connections per address.
func perAddress(prefix string, to *int64) Setting {
	return Setting{
		prefix + "max_connections_per_address", number(to, 1, 1e6), "",
		"maximum open connections per client address (IPv6: per /64); further ones are closed. The rules' `trusted_proxies` are exempt. Default: 25 % of `max_connections`",
	}
}

// settings returns all settings. Reading one sets its field of c.
func (c *Config) settings() []Setting {
	return slices.Concat(
		c.listeners(),
		c.Store.settings(),
		[]Setting{
			{"rules.paths", texts("list of files and directories", &c.Rules.Paths), "", "rule files and directories of rule files. Without it, a built-in rule set is used: 5 requests per minute and address in the Envoy domain `demo`"},
			{"rules.merge_domains", boolean(&c.Rules.MergeDomains), "false", "allow several files to define parts of one Envoy domain; otherwise this is an error"},
			{"rules.charge_denied", boolean(&c.Rules.ChargeDenied), "false", "charge denied requests too, as Envoy's rate limit service does"},
		},
		c.RLS.settings(),
		c.RESP.settings(),
		c.Gateway.settings(),
		c.Authentication.settings(),
		c.Queue.settings(),
		[]Setting{
			{"forward_auth.max_delay", duration(&c.ForwardAuth.MaxDelay), "1s", "maximum delay of a request by rules with `on_limit: delay`; requests that would wait longer are denied. The proxy's timeout must be longer"},

			{"check_api.reservation_secret_file", file(&c.CheckAPI.ReservationSecretFile), "", "file with the secret that authenticates reservations, 32 to 4096 bytes; the same for all instances that settle each other's reservations. Without it, reservations are valid only in the process that made them. Read at startup"},
			{"check_api.refund_token_file", file(&c.CheckAPI.RefundTokenFile), "", "file of the tokens that authorize refunds (a negative `cost`), sent as `Authorization: Bearer …`; one per line, at least 16 characters each. Without it, refunds are rejected with 403. Reloaded when it changes"},

			{"metrics.enabled", boolean(&c.Metrics.Enabled), "true", "serve metrics for Prometheus at `/metrics` of `listeners.admin`"},
			{"metrics.http_listener", boolean(&c.Metrics.HTTPListener), "false", "serve `/metrics` on `listeners.http` too, without authentication"},
			{"metrics.allow_unauthenticated", boolean(&c.Metrics.AllowUnauthenticated), "false", "serve `/metrics` on `listeners.admin` without a token"},
		},
		c.Metrics.OTLP.settings(),
		[]Setting{
			{"admin.token_file", file(&c.Admin.TokenFile), "", "file of the tokens of operators, sent as `Authorization: Bearer …`; one per line, at least 16 characters each. Without it, no token is required. Reloaded when it changes"},
			{"admin.allowed_hosts", texts("list of names", &c.Admin.AllowedHosts), "", "host names of the admin listener, besides IP addresses and `localhost`. Requests with another `Host` header are rejected with 403, as protection from DNS rebinding"},
		},
		c.Logging.settings(),
		c.Tracing.settings(),
	)
}

func (c *Config) listeners() []Setting {
	return slices.Concat(
		[]Setting{
			{"listeners.grpc.address", address(&c.GRPC.Address), "127.0.0.1:8081", "address of the gRPC listener for Envoy (RLS): `host:port`, `unix:///path`, or `off`"},
		},
		tlsSettings("listeners.grpc.tls.", &c.GRPC.TLS),
		[]Setting{
			{"listeners.grpc.max_connections", number(&c.GRPC.MaxConnections, 1, 1e6), "10000", "maximum open connections; further ones are closed"},
			perAddress("listeners.grpc.", &c.GRPC.MaxConnectionsPerAddress),
			{"listeners.grpc.max_streams", number(&c.GRPC.MaxStreams, 1, 1e6), "250", "maximum concurrent requests per connection; clients hold back further ones"},
			{"listeners.grpc.max_header_size", size(&c.GRPC.MaxHeaderSize, 1<<10, 1<<20), "16KiB", "maximum size of a request's headers"},
			{"listeners.grpc.max_message_size", size(&c.GRPC.MaxMessageSize, 1<<10, 16<<20), "1MiB", "maximum size of a request message; larger ones fail with `RESOURCE_EXHAUSTED`"},
			{"listeners.grpc.max_connection_age", interval(&c.GRPC.MaxConnectionAge, time.Second), "30m", "maximum age of a connection, ± 10 %, at least `1s`. Then the client is asked to reconnect (GOAWAY), so that load spreads over all instances"},
			{"listeners.grpc.max_connection_age_grace", duration(&c.GRPC.MaxConnectionAgeGrace), "1m", "additional time for requests in flight on a connection that has reached its maximum age"},
			{"listeners.grpc.reflection", boolean(&c.GRPC.Reflection), "true", "enable gRPC server reflection, for tools such as grpcurl"},
			{"listeners.http.address", address(&c.HTTP.Address), "127.0.0.1:8080", "address of the HTTP listener for the check API, forward authentication and health checks: `host:port`, `unix:///path`, or `off`"},
		},
		tlsSettings("listeners.http.tls.", &c.HTTP.TLS),
		[]Setting{
			{"listeners.http.max_connections", number(&c.HTTP.MaxConnections, 1, 1e6), "10000", "maximum open connections; further ones are closed"},
			perAddress("listeners.http.", &c.HTTP.MaxConnectionsPerAddress),
		},
		c.RESP.listener(),
		c.Gateway.listener(),
		[]Setting{
			{"listeners.admin.address", address(&c.Admin.Address), "127.0.0.1:6070", "address of the admin API: `host:port`, `unix:///path`, or `off`. A non-loopback address needs `admin.token_file` or `client_ca_file`"},
		},
		tlsSettings("listeners.admin.tls.", &c.Admin.TLS),
		[]Setting{
			{"listeners.admin.max_connections", number(&c.Admin.MaxConnections, 1, 1e6), "100", "maximum open connections; further ones are closed"},
			{"listeners.drain.delay", durationOrNone(&c.Drain.Delay), "0s", "time after SIGTERM during which requests are served as before while health checks already fail"},
			{"listeners.drain.timeout", duration(&c.Drain.Timeout), "20s", "maximum time after `delay` for requests in flight to finish"},
		},
	)
}

func (s *Store) settings() []Setting {
	return []Setting{
		{"store.kind", word(&s.Kind, Memory, Redis, Memcached), Memory, "store of the counts: memory of this process, Redis or Memcached; see [stores.md](stores.md)"},
		{"store.url", urlText(&s.URL, `^(rediss?|unix)://`), "", "URL of Redis, such as `redis://user:${PASSWORD}@host:6379/0`; `rediss://` for TLS, `unix://` for a socket"},
		{"store.password_file", file(&s.PasswordFile), "", "file with the password of Redis, instead of a password in `url`. Read for each new connection"},
		{"store.addresses", texts("list of addresses", &s.Addresses), "[127.0.0.1:11211]", "addresses of Memcached servers, `host:port`"},
		{"store.tls.ca_file", file(&s.TLS.CAFile), "", "PEM file of the CAs to verify the servers' certificates with, instead of the system's. Redis needs a `rediss://` URL; Memcached uses TLS if any key of `store.tls` is set"},
		{"store.tls.cert_file", file(&s.TLS.CertFile), "", "PEM file of the client certificate. Read for each new connection"},
		{"store.tls.key_file", file(&s.TLS.KeyFile), "", "PEM file of its private key"},
		{"store.key_prefix", text("text", &s.KeyPrefix), "\"sluice:\"", "prefix of all keys in Redis and Memcached"},
		{"store.max_memory", size(&s.MaxMemory, 1<<20, 1<<40), "256MiB", "maximum memory of the memory store. When it is full, keys share counters"},
		{"store.snapshot_file", file(&s.SnapshotFile), "", "file to save the memory store to at shutdown and to restore it from at startup. Without it, usage is lost at a restart"},
		{"store.timeout", duration(&s.Timeout), "10ms", "timeout of a call to Redis or Memcached; then the rules' `on_failure` decides"},
		{"store.instances", number(&s.Instances, 0, 1e6), "0", "number of instances that share Redis or Memcached; while the store is unavailable, each allows limit / instances, rounded up. With Redis the instances are counted automatically, and this value applies until they are; 0 then means 1 request per key and window. With Memcached they are not counted, and 0 means 1 instance"},
		{"store.required", boolean(&s.Required), "false", "fail `/readyz` and gRPC health checks while Redis or Memcached is unavailable. It is called every second, also without traffic"},
	}
}

func (r *RLS) settings() []Setting {
	return []Setting{
		{"rls.max_descriptors", number(&r.MaxDescriptors, 1, 1e5), "1000", "maximum descriptors per request; more fail with `INVALID_ARGUMENT`"},
		{"rls.accept_limit_overrides", boolean(&r.AcceptLimitOverrides), "false", "accept limits in requests (`limit` of a descriptor); every client can then set limits. Otherwise such requests fail with `PERMISSION_DENIED`"},
		{"rls.accept_negative_hits", boolean(&r.AcceptNegativeHits), "false", "accept refunds in requests (`is_negative_hits`). Otherwise such requests fail with `PERMISSION_DENIED`"},
		{"rls.shadow_mode", boolean(&r.ShadowMode), "false", "never deny: the overall code is always `OK`; the descriptors' statuses show the decisions"},
		{"rls.quota_mode", boolean(&r.QuotaMode), "false", "treat all limits as limits with `quota_mode`"},
		{"rls.dynamic_metadata", boolean(&r.DynamicMetadata), "false", "send dynamic metadata"},
		{"rls.headers.enabled", boolean(&r.Headers.Enabled), "false", "send headers about limits, which Envoy adds to its responses"},
		{"rls.headers.limit", text("text", &r.Headers.Limit), "RateLimit-Limit", "name of the header with the limit"},
		{"rls.headers.remaining", text("text", &r.Headers.Remaining), "RateLimit-Remaining", "name of the header with the remaining quota"},
		{"rls.headers.reset", text("text", &r.Headers.Reset), "RateLimit-Reset", "name of the header with the seconds until the limit is reset"},
		{"rls.client_domains", value{"mapping of lists", (*decoder).clients, shape{"type": "object", "additionalProperties": textsShape}}, "", "domains that each client may use, by a DNS name, URI or IP address in its certificate; `\"*\"` means all. Other requests fail with `PERMISSION_DENIED`. Needs `listeners.grpc.tls.client_ca_file`"},
	}
}
