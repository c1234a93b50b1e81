package config

import "github.com/sluiceproject/sluice/internal/strictyaml"

// Setting is one setting.
type Setting struct {
	Name    string // with the sections that it stands in: "listeners.grpc.address"
	Type    string // what is written
	Default string // as it would be written; empty: none
	Doc     string

	read func(*decoder, *strictyaml.Node)
}

// Settings lists all settings in the order in which they are documented.
func Settings() []Setting { return settings }

func tlsSettings(prefix string, tls func(*Config) *TLS) []Setting {
	return []Setting{
		{
			prefix + "cert", "file", "",
			"the certificate, PEM; with it the listener speaks TLS. Read again when it changes",
			text(func(c *Config) *string { return &tls(c).Cert }),
		},
		{
			prefix + "key", "file", "",
			"its key, PEM",
			text(func(c *Config) *string { return &tls(c).Key }),
		},
		{
			prefix + "client_ca", "file", "",
			"who signs clients' certificates, PEM; with it clients must show one",
			text(func(c *Config) *string { return &tls(c).ClientCA }),
		},
	}
}

// perAddress is the setting of a listener for connections of one address.
func perAddress(prefix string, to func(*Config) *int64) Setting {
	return Setting{
		prefix + "max_connections_per_address", "number", "",
		"connections at once of one address (IPv6: /64); more are closed. The rules' `trusted_proxies` are exempt. Without it 25 % of `max_connections`",
		number(to, 1, 1e6),
	}
}

var settings = join(
	[]Setting{
		{
			"listeners.grpc.address", "address", "127.0.0.1:8081",
			"where Envoy asks: `host:port`, `unix:///path`, or `off`",
			address(func(c *Config) *string { return &c.GRPC.Address }),
		},
	},
	tlsSettings("listeners.grpc.tls.", func(c *Config) *TLS { return &c.GRPC.TLS }),
	[]Setting{
		{
			"listeners.grpc.max_connections", "number", "10000",
			"connections at once; more are closed",
			number(func(c *Config) *int64 { return &c.GRPC.MaxConnections }, 1, 1e6),
		},
		perAddress("listeners.grpc.", func(c *Config) *int64 { return &c.GRPC.MaxPerAddress }),
		{
			"listeners.grpc.max_streams", "number", "250",
			"requests at once on a connection; more wait",
			number(func(c *Config) *int64 { return &c.GRPC.MaxStreams }, 1, 1e6),
		},
		{
			"listeners.grpc.max_header_size", "size", "16KiB",
			"of a request's headers",
			size(func(c *Config) *int64 { return &c.GRPC.MaxHeaderBytes }, 1<<10, 1<<20),
		},
		{
			"listeners.grpc.max_message_size", "size", "64KiB",
			"of a request",
			size(func(c *Config) *int64 { return &c.GRPC.MaxMessageBytes }, 1<<10, 16<<20),
		},
		{
			"listeners.grpc.max_connection_age", "duration", "30m",
			"after this long, give or take a tenth, a client is asked to connect again, so that load spreads",
			duration(func(c *Config) *seconds { return &c.GRPC.MaxAge }),
		},
		{
			"listeners.grpc.max_connection_age_grace", "duration", "1m",
			"how much longer requests on such a connection may take",
			duration(func(c *Config) *seconds { return &c.GRPC.MaxAgeGrace }),
		},
		{
			"listeners.grpc.reflection", "boolean", "true",
			"tell tools such as grpcurl what can be asked",
			boolean(func(c *Config) *bool { return &c.GRPC.Reflection }),
		},
		{
			"listeners.http.address", "address", "127.0.0.1:8080",
			"where checks, proxies and health checks ask: `host:port`, `unix:///path`, or `off`",
			address(func(c *Config) *string { return &c.HTTP.Address }),
		},
	},
	tlsSettings("listeners.http.tls.", func(c *Config) *TLS { return &c.HTTP.TLS }),
	[]Setting{
		{
			"listeners.http.max_connections", "number", "10000",
			"connections at once; more are closed",
			number(func(c *Config) *int64 { return &c.HTTP.MaxConnections }, 1, 1e6),
		},
		perAddress("listeners.http.", func(c *Config) *int64 { return &c.HTTP.MaxPerAddress }),
	},
	respListener,
	gatewayListener,
	[]Setting{
		{
			"listeners.admin.address", "address", "127.0.0.1:6070",
			"where operators ask: `host:port`, `unix:///path`, or `off`. Beyond this machine it needs `admin.token_file` or a `client_ca`",
			address(func(c *Config) *string { return &c.Admin.Address }),
		},
	},
	tlsSettings("listeners.admin.tls.", func(c *Config) *TLS { return &c.Admin.TLS }),
	[]Setting{
		{
			"listeners.admin.max_connections", "number", "100",
			"connections at once; more are closed",
			number(func(c *Config) *int64 { return &c.Admin.MaxConnections }, 1, 1e6),
		},
		{
			"listeners.drain.wait", "duration", "0s",
			"how long to go on as before after SIGTERM, while health checks already fail",
			durationOrNone(func(c *Config) *seconds { return &c.Drain.Wait }),
		},
		{
			"listeners.drain.timeout", "duration", "20s",
			"how long requests may take then",
			duration(func(c *Config) *seconds { return &c.Drain.Timeout }),
		},

		{
			"store.kind", "`memory`, `redis`, `memcached`", Memory,
			"where counts are kept; see [stores.md](stores.md)",
			word(func(c *Config) *string { return &c.Store.Kind }, Memory, Redis, Memcached),
		},
		{
			"store.url", "URL", "",
			"of Redis, such as `redis://user:${PASSWORD}@host:6379/0`",
			text(func(c *Config) *string { return &c.Store.URL }),
		},
		{
			"store.password_file", "file", "",
			"with the password of Redis, instead of one in the URL; read whenever a connection is made",
			text(func(c *Config) *string { return &c.Store.PasswordFile }),
		},
		{
			"store.servers", "list of addresses", "[127.0.0.1:11211]",
			"of Memcached",
			texts(func(c *Config) *[]string { return &c.Store.Servers }),
		},
		{
			"store.tls.ca", "file", "",
			"who signs the servers' certificates, PEM, instead of those the system trusts. For URLs with `rediss://`; Memcached speaks TLS if it is set",
			text(func(c *Config) *string { return &c.Store.TLS.CA }),
		},
		{
			"store.tls.cert", "file", "",
			"the certificate to show to the servers, PEM; read whenever a connection is made",
			text(func(c *Config) *string { return &c.Store.TLS.Cert }),
		},
		{
			"store.tls.key", "file", "",
			"its key, PEM",
			text(func(c *Config) *string { return &c.Store.TLS.Key }),
		},
		{
			"store.prefix", "text", "\"sluice:\"",
			"what keys in Redis and Memcached begin with",
			text(func(c *Config) *string { return &c.Store.Prefix }),
		},
		{
			"store.memory", "size", "256MiB",
			"the most that a store in memory takes",
			size(func(c *Config) *int64 { return &c.Store.Bytes }, 1<<20, 1<<40),
		},
		{
			"store.snapshot", "file", "",
			"where a store in memory is saved at the end and read from at the start",
			text(func(c *Config) *string { return &c.Store.Snapshot }),
		},
		{
			"store.budget", "duration", "10ms",
			"how long Redis or Memcached may take before the rules' `on_failure` answers",
			duration(func(c *Config) *seconds { return &c.Store.Budget }),
		},
		{
			"store.instances", "number", "0",
			"instances that share Redis or Memcached: while it is unavailable each allows an equal part. Redis counts them, and this is used until the number is known; 0 is 1 per key and window until then. Memcached does not count them, and 0 is 1 instance",
			number(func(c *Config) *int64 { return &c.Store.Instances }, 0, 1e6),
		},

		{
			"rules.paths", "list of files and directories", "",
			"the rules; without them there are a few to try",
			texts(func(c *Config) *[]string { return &c.Rules.Paths }),
		},
		{
			"rules.merge_domains", "boolean", "false",
			"several files may hold parts of one domain",
			boolean(func(c *Config) *bool { return &c.Rules.MergeDomains }),
		},
		{
			"rules.charge_denied", "boolean", "false",
			"requests that are denied are charged too, as Envoy's service does",
			boolean(func(c *Config) *bool { return &c.Rules.ChargeDenied }),
		},

		{
			"rls.max_descriptors", "number", "32",
			"in a request; more are refused",
			number(func(c *Config) *int64 { return &c.RLS.MaxDescriptors }, 1, 1e5),
		},
		{
			"rls.max_entries", "number", "16",
			"in a descriptor; more are refused",
			number(func(c *Config) *int64 { return &c.RLS.MaxEntries }, 1, 1e4),
		},
		{
			"rls.max_bytes", "number", "1024",
			"in a domain, key or value; more are refused",
			number(func(c *Config) *int64 { return &c.RLS.MaxBytes }, 1, 1<<20),
		},
		{
			"rls.overrides", "boolean", "false",
			"take limits that requests bring (`limit` of a descriptor); who may send them sets limits",
			boolean(func(c *Config) *bool { return &c.RLS.Overrides }),
		},
		{
			"rls.negative_hits", "boolean", "false",
			"let requests give hits back (`is_negative_hits`)",
			boolean(func(c *Config) *bool { return &c.RLS.NegativeHits }),
		},
		{
			"rls.shadow", "boolean", "false",
			"never deny: the overall code is always OK, statuses say what it would have been",
			boolean(func(c *Config) *bool { return &c.RLS.Shadow }),
		},
		{
			"rls.quota", "boolean", "false",
			"all limits are as if of `quota_mode`",
			boolean(func(c *Config) *bool { return &c.RLS.Quota }),
		},
		{
			"rls.metadata", "boolean", "false",
			"send dynamic metadata",
			boolean(func(c *Config) *bool { return &c.RLS.Metadata }),
		},
		{
			"rls.headers.enabled", "boolean", "false",
			"have Envoy add headers to what it answers",
			boolean(func(c *Config) *bool { return &c.RLS.Headers.Enabled }),
		},
		{
			"rls.headers.limit", "text", "RateLimit-Limit",
			"the name of the header with the limit",
			text(func(c *Config) *string { return &c.RLS.Headers.Limit }),
		},
		{
			"rls.headers.remaining", "text", "RateLimit-Remaining",
			"with what remains",
			text(func(c *Config) *string { return &c.RLS.Headers.Remaining }),
		},
		{
			"rls.headers.reset", "text", "RateLimit-Reset",
			"with the seconds until then",
			text(func(c *Config) *string { return &c.RLS.Headers.Reset }),
		},
		{
			"rls.clients", "mapping of lists", "",
			"which domains a client may ask about, by a name in its certificate (DNS name, URI, address); `\"*\"` is all. Others are refused. Needs `client_ca`",
			(*decoder).clients,
		},
	},
	respSettings,
	gatewaySettings,
	authenticationSettings,
	queueSettings,
	[]Setting{
		{
			"auth.max_wait", "duration", "1s",
			"how long a request that a rule delays may wait for its turn; proxies have to be more patient",
			duration(func(c *Config) *seconds { return &c.Auth.MaxWait }),
		},

		{
			"check.secret_file", "file", "",
			"with 32 bytes or more that authenticate reservations, the same for all that settle each other's; without it reservations end with the process. Read at the start",
			text(func(c *Config) *string { return &c.Check.SecretFile }),
		},

		{
			"metrics.enabled", "boolean", "true",
			"show metrics to Prometheus at `/metrics`",
			boolean(func(c *Config) *bool { return &c.Metrics.Enabled }),
		},
		{
			"metrics.on_http", "boolean", "false",
			"show them on `listeners.http` too, to all who reach it",
			boolean(func(c *Config) *bool { return &c.Metrics.OnHTTP }),
		},
		{
			"metrics.public", "boolean", "false",
			"show them on `listeners.admin` to who has no token",
			boolean(func(c *Config) *bool { return &c.Metrics.Public }),
		},
	},
	otlpMetricsSettings,
	[]Setting{
		{
			"admin.token_file", "file", "",
			"with the token that operators send (`Authorization: Bearer …`), at least 16 characters; several lines are several tokens. Read again when it changes",
			text(func(c *Config) *string { return &c.Admin.TokenFile }),
		},
		{
			"admin.hosts", "list of names", "",
			"that operators reach the listener by, besides addresses and `localhost`; requests with another `Host` are refused",
			texts(func(c *Config) *[]string { return &c.Admin.Hosts }),
		},
	},
	loggingSettings,
	tracingSettings,
)

func join(parts ...[]Setting) (all []Setting) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}
