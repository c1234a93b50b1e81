package config

import (
	"slices"

	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// Setting is one setting.
type Setting struct {
	Name string // with the sections that it stands in: "listeners.grpc.address"
	value
	Default string // as it would be written; empty: none
	Doc     string
}

// value is what may be written for a setting, and reads it to where it belongs.
type value struct {
	Type  string
	read  func(*decoder, *strictyaml.Node)
	shape shape // nil: entries with keys of their own, see entryShape
}

// Settings lists all settings in the order in which they are documented.
func Settings() []Setting { return new(Config).settings() }

func tlsSettings(prefix string, tls *TLS) []Setting {
	return []Setting{
		{prefix + "cert", file(&tls.Cert), "", "the certificate, PEM; with it the listener speaks TLS. Read again when it changes"},
		{prefix + "key", file(&tls.Key), "", "its key, PEM"},
		{prefix + "client_ca", file(&tls.ClientCA), "", "who signs clients' certificates, PEM; with it clients must show one"},
	}
}

// perAddress is the setting of a listener for connections of one address.
func perAddress(prefix string, to *int64) Setting {
	return Setting{
		prefix + "max_connections_per_address", number(to, 1, 1e6), "",
		"connections at once of one address (IPv6: /64); more are closed. The rules' `trusted_proxies` are exempt. Without it 25 % of `max_connections`",
	}
}

// settings binds all settings to the fields of the configuration.
func (c *Config) settings() []Setting {
	return slices.Concat(
		c.listeners(),
		c.Store.settings(),
		[]Setting{
			{"rules.paths", texts("list of files and directories", &c.Rules.Paths), "", "the rules; without them there are a few to try"},
			{"rules.merge_domains", boolean(&c.Rules.MergeDomains), "false", "several files may hold parts of one domain"},
			{"rules.charge_denied", boolean(&c.Rules.ChargeDenied), "false", "requests that are denied are charged too, as Envoy's service does"},
		},
		c.RLS.settings(),
		c.RESP.settings(),
		c.Gateway.settings(),
		c.Authentication.settings(),
		c.Queue.settings(),
		[]Setting{
			{"auth.max_wait", duration(&c.Auth.MaxWait), "1s", "how long a request that a rule delays may wait for its turn; proxies have to be more patient"},

			{"check.secret_file", file(&c.Check.SecretFile), "", "with 32 bytes or more that authenticate reservations, the same for all that settle each other's; without it reservations end with the process. Read at the start"},
			{"check.refund_token_file", file(&c.Check.RefundTokenFile), "", "with the token that callers send (`Authorization: Bearer …`) to give back what was charged (a negative `cost`), at least 16 characters; several lines are several tokens. Without it nothing is given back. Read again when it changes"},

			{"metrics.enabled", boolean(&c.Metrics.Enabled), "true", "show metrics to Prometheus at `/metrics`"},
			{"metrics.on_http", boolean(&c.Metrics.OnHTTP), "false", "show them on `listeners.http` too, to all who reach it"},
			{"metrics.public", boolean(&c.Metrics.Public), "false", "show them on `listeners.admin` to who has no token"},
		},
		c.Metrics.OTLP.settings(),
		[]Setting{
			{"admin.token_file", file(&c.Admin.TokenFile), "", "with the token that operators send (`Authorization: Bearer …`), at least 16 characters; several lines are several tokens. Read again when it changes"},
			{"admin.hosts", texts("list of names", &c.Admin.Hosts), "", "that operators reach the listener by, besides addresses and `localhost`; requests with another `Host` are refused"},
		},
		c.Logging.settings(),
		c.Tracing.settings(),
	)
}

func (c *Config) listeners() []Setting {
	return slices.Concat(
		[]Setting{
			{"listeners.grpc.address", address(&c.GRPC.Address), "127.0.0.1:8081", "where Envoy asks: `host:port`, `unix:///path`, or `off`"},
		},
		tlsSettings("listeners.grpc.tls.", &c.GRPC.TLS),
		[]Setting{
			{"listeners.grpc.max_connections", number(&c.GRPC.MaxConnections, 1, 1e6), "10000", "connections at once; more are closed"},
			perAddress("listeners.grpc.", &c.GRPC.MaxPerAddress),
			{"listeners.grpc.max_streams", number(&c.GRPC.MaxStreams, 1, 1e6), "250", "requests at once on a connection; more wait"},
			{"listeners.grpc.max_header_size", size(&c.GRPC.MaxHeaderBytes, 1<<10, 1<<20), "16KiB", "of a request's headers"},
			{"listeners.grpc.max_message_size", size(&c.GRPC.MaxMessageBytes, 1<<10, 16<<20), "1MiB", "of a request; more is refused"},
			{"listeners.grpc.max_connection_age", duration(&c.GRPC.MaxAge), "30m", "after this long, give or take a tenth, a client is asked to connect again, so that load spreads"},
			{"listeners.grpc.max_connection_age_grace", duration(&c.GRPC.MaxAgeGrace), "1m", "how much longer requests on such a connection may take"},
			{"listeners.grpc.reflection", boolean(&c.GRPC.Reflection), "true", "tell tools such as grpcurl what can be asked"},
			{"listeners.http.address", address(&c.HTTP.Address), "127.0.0.1:8080", "where checks, proxies and health checks ask: `host:port`, `unix:///path`, or `off`"},
		},
		tlsSettings("listeners.http.tls.", &c.HTTP.TLS),
		[]Setting{
			{"listeners.http.max_connections", number(&c.HTTP.MaxConnections, 1, 1e6), "10000", "connections at once; more are closed"},
			perAddress("listeners.http.", &c.HTTP.MaxPerAddress),
		},
		c.RESP.listener(),
		c.Gateway.listener(),
		[]Setting{
			{"listeners.admin.address", address(&c.Admin.Address), "127.0.0.1:6070", "where operators ask: `host:port`, `unix:///path`, or `off`. Beyond this machine it needs `admin.token_file` or a `client_ca`"},
		},
		tlsSettings("listeners.admin.tls.", &c.Admin.TLS),
		[]Setting{
			{"listeners.admin.max_connections", number(&c.Admin.MaxConnections, 1, 1e6), "100", "connections at once; more are closed"},
			{"listeners.drain.wait", durationOrNone(&c.Drain.Wait), "0s", "how long to go on as before after SIGTERM, while health checks already fail"},
			{"listeners.drain.timeout", duration(&c.Drain.Timeout), "20s", "how long requests may take then"},
		},
	)
}

func (s *Store) settings() []Setting {
	return []Setting{
		{"store.kind", word(&s.Kind, Memory, Redis, Memcached), Memory, "where counts are kept; see [stores.md](stores.md)"},
		{"store.url", urlText(&s.URL, `^(rediss?|unix)://`), "", "of Redis, such as `redis://user:${PASSWORD}@host:6379/0`"},
		{"store.password_file", file(&s.PasswordFile), "", "with the password of Redis, instead of one in the URL; read whenever a connection is made"},
		{"store.servers", texts("list of addresses", &s.Servers), "[127.0.0.1:11211]", "of Memcached"},
		{"store.tls.ca", file(&s.TLS.CA), "", "who signs the servers' certificates, PEM, instead of those the system trusts. For URLs with `rediss://`; Memcached speaks TLS if it is set"},
		{"store.tls.cert", file(&s.TLS.Cert), "", "the certificate to show to the servers, PEM; read whenever a connection is made"},
		{"store.tls.key", file(&s.TLS.Key), "", "its key, PEM"},
		{"store.prefix", text("text", &s.Prefix), "\"sluice:\"", "what keys in Redis and Memcached begin with"},
		{"store.memory", size(&s.Bytes, 1<<20, 1<<40), "256MiB", "the most that a store in memory takes"},
		{"store.snapshot", file(&s.Snapshot), "", "where a store in memory is saved at the end and read from at the start"},
		{"store.budget", duration(&s.Budget), "10ms", "how long Redis or Memcached may take before the rules' `on_failure` answers"},
		{"store.instances", number(&s.Instances, 0, 1e6), "0", "instances that share Redis or Memcached: while it is unavailable each allows an equal part. Redis counts them, and this is used until the number is known; 0 is 1 per key and window until then. Memcached does not count them, and 0 is 1 instance"},
		{"store.required", boolean(&s.Required), "false", "fail `/readyz` and gRPC health while Redis or Memcached is unavailable; it is checked every second, without traffic too"},
	}
}

func (r *RLS) settings() []Setting {
	return []Setting{
		{"rls.max_descriptors", number(&r.MaxDescriptors, 1, 1e5), "1000", "in a request; more are refused"},
		{"rls.overrides", boolean(&r.Overrides), "false", "take limits that requests bring (`limit` of a descriptor); who may send them sets limits"},
		{"rls.negative_hits", boolean(&r.NegativeHits), "false", "let requests give hits back (`is_negative_hits`)"},
		{"rls.shadow", boolean(&r.Shadow), "false", "never deny: the overall code is always OK, statuses say what it would have been"},
		{"rls.quota", boolean(&r.Quota), "false", "all limits are as if of `quota_mode`"},
		{"rls.metadata", boolean(&r.Metadata), "false", "send dynamic metadata"},
		{"rls.headers.enabled", boolean(&r.Headers.Enabled), "false", "have Envoy add headers to what it answers"},
		{"rls.headers.limit", text("text", &r.Headers.Limit), "RateLimit-Limit", "the name of the header with the limit"},
		{"rls.headers.remaining", text("text", &r.Headers.Remaining), "RateLimit-Remaining", "with what remains"},
		{"rls.headers.reset", text("text", &r.Headers.Reset), "RateLimit-Reset", "with the seconds until then"},
		{"rls.clients", value{"mapping of lists", (*decoder).clients, shape{"type": "object", "additionalProperties": textsShape}}, "", "which domains a client may ask about, by a name in its certificate (DNS name, URI, address); `\"*\"` is all. Others are refused. Needs `client_ca`"},
	}
}
