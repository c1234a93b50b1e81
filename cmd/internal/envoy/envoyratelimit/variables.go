package envoyratelimit

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// variables are all variables of the reference and of Sluice. docs/envoy-compatibility.md contains the same list; a
// test compares them.
var variables = slices.Concat(listeners, rulesFrom, statistics, answers, counting, backends)

var listeners = []variable{
	text("HOST", "0.0.0.0", func(s *Settings) *string { return &s.Host }),
	number("PORT", "8080", 0, 65535, func(s *Settings) *int { return &s.Port }),
	but("the reference has 0.0.0.0; set it to make the debug pages reachable from other hosts", text("DEBUG_HOST", "127.0.0.1", func(s *Settings) *string { return &s.DebugHost })),
	number("DEBUG_PORT", "6070", 0, 65535, func(s *Settings) *int { return &s.DebugPort }),
	text("GRPC_UDS", "", func(s *Settings) *string { return &s.GRPC.Socket }),
	text("GRPC_HOST", "0.0.0.0", func(s *Settings) *string { return &s.GRPC.Host }),
	number("GRPC_PORT", "8081", 0, 65535, func(s *Settings) *int { return &s.GRPC.Port }),
	duration("GRPC_MAX_CONNECTION_AGE", "24h", func(s *Settings) *time.Duration { return &s.GRPC.MaxAge }),
	duration("GRPC_MAX_CONNECTION_AGE_GRACE", "1h", func(s *Settings) *time.Duration { return &s.GRPC.MaxAgeGrace }),
	boolean("GRPC_SERVER_USE_TLS", "false", func(s *Settings) *bool { return &s.GRPC.UseTLS }),
	text("GRPC_SERVER_TLS_CERT", "", func(s *Settings) *string { return &s.GRPC.Cert }),
	text("GRPC_SERVER_TLS_KEY", "", func(s *Settings) *string { return &s.GRPC.Key }),
	ignored("GRPC_SERVER_TLS_CA_CERT", "", "the reference does not read it either; GRPC_CLIENT_TLS_CACERT is the CA of client certificates"),
	text("GRPC_CLIENT_TLS_CACERT", "", func(s *Settings) *string { return &s.GRPC.ClientCA }),
	but("compared exactly, without wildcards", text("GRPC_CLIENT_TLS_SAN", "", func(s *Settings) *string { return &s.GRPC.ClientName })),
	word("LOG_LEVEL", "WARN", []string{"trace", "debug", "info", "warn", "warning", "error", "fatal", "panic"},
		func(s *Settings) *string { return &s.LogLevel }),
	word("LOG_FORMAT", "text", []string{"text", "json"}, func(s *Settings) *string { return &s.LogFormat }),
	ignored("TRACING_ENABLED", "false", noTracing),
	ignored("TRACING_EXPORTER_PROTOCOL", "http", noTracing),
	ignored("TRACING_SERVICE_NAME", "RateLimit", noTracing),
	ignored("TRACING_SERVICE_NAMESPACE", "", noTracing),
	ignored("TRACING_SERVICE_INSTANCE_ID", "", noTracing),
	ignored("TRACING_SAMPLING_RATE", "1", noTracing),
}

const noTracing = "traces are not supported; traces of Envoy contain the duration of a check"

var rulesFrom = []variable{
	word("CONFIG_TYPE", "FILE", []string{"FILE", "GRPC_XDS_SOTW"}, func(s *Settings) *string { return &s.Rules.Source }),
	boolean("FORCE_START_WITHOUT_INITIAL_CONFIG", "false", func(s *Settings) *bool { return &s.Rules.StartWithout }),
	boolean("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "false",
		func(s *Settings) *bool { return &s.Rules.HealthyOnlyWithSome }),
	boolean("MERGE_DOMAIN_CONFIG", "false", func(s *Settings) *bool { return &s.Rules.Merge }),
	text("RUNTIME_ROOT", "/srv/runtime_data/current", func(s *Settings) *string { return &s.Rules.Root }),
	text("RUNTIME_SUBDIRECTORY", "", func(s *Settings) *string { return &s.Rules.Below }),
	text("RUNTIME_APPDIRECTORY", "config", func(s *Settings) *string { return &s.Rules.App }),
	but("files of Kubernetes, whose names begin with two dots, are never read", boolean("RUNTIME_IGNOREDOTFILES", "false", func(s *Settings) *bool { return &s.Rules.SkipDotFiles })),
	ignored("RUNTIME_WATCH_ROOT", "true", "changes of files and of symbolic links are both detected"),
	text("CONFIG_GRPC_XDS_NODE_ID", "default", func(s *Settings) *string { return &s.XDS.NodeID }),
	text("CONFIG_GRPC_XDS_NODE_METADATA", "", func(s *Settings) *string { return &s.XDS.NodeMetadata }),
	text("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000", func(s *Settings) *string { return &s.XDS.Server }),
	interval("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "3s",
		func(s *Settings) *time.Duration { return &s.XDS.ConnectRetry }),
	pairs("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", func(s *Settings) *map[string]string { return &s.XDS.Headers }),
	boolean("CONFIG_GRPC_XDS_SERVER_USE_TLS", "false", func(s *Settings) *bool { return &s.XDS.UseTLS }),
	text("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "", func(s *Settings) *string { return &s.XDS.Cert }),
	text("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "", func(s *Settings) *string { return &s.XDS.Key }),
	text("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "", func(s *Settings) *string { return &s.XDS.CA }),
	text("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "", func(s *Settings) *string { return &s.XDS.Name }),
	interval("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "10s", func(s *Settings) *time.Duration { return &s.XDS.BackoffMin }),
	interval("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "60s", func(s *Settings) *time.Duration { return &s.XDS.BackoffMax }),
	but("relative jitter of the backoff, which doubles", fraction("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "0.5", func(s *Settings) *float64 { return &s.XDS.BackoffFactor })),
	boolean("XDS_CLIENT_BACKOFF_JITTER", "true", func(s *Settings) *bool { return &s.XDS.BackoffJitter }),
	number("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "0", 0, math.MaxInt32, func(s *Settings) *int { return &s.XDS.MaxMessage }),
}

var statistics = []variable{
	boolean("USE_STATSD", "true", func(s *Settings) *bool { return &s.Stats.Statsd }),
	text("STATSD_HOST", "localhost", func(s *Settings) *string { return &s.Stats.Host }),
	number("STATSD_PORT", "8125", 1, 65535, func(s *Settings) *int { return &s.Stats.Port }),
	boolean("USE_DOG_STATSD", "false", func(s *Settings) *bool { return &s.Stats.DogStatsd }),
	list("USE_DOG_STATSD_MOGRIFIERS", func(s *Settings) *[]string { return &s.Stats.mogrifierNames }),
	pairs("EXTRA_TAGS", func(s *Settings) *map[string]string { return &s.Stats.Tags }),
	interval("STATS_FLUSH_INTERVAL", "10s", func(s *Settings) *time.Duration { return &s.Stats.Flush }),
	boolean("DISABLE_STATS", "false", func(s *Settings) *bool { return &s.Stats.Disabled }),
	boolean("USE_PROMETHEUS", "false", func(s *Settings) *bool { return &s.Stats.Prometheus }),
	text("PROMETHEUS_ADDR", ":9090", func(s *Settings) *string { return &s.Stats.PrometheusAddr }),
	text("PROMETHEUS_PATH", "/metrics", func(s *Settings) *string { return &s.Stats.PrometheusPath }),
	but("supports match, match_type, match_metric_type, name, labels, scale and action; others cause a warning", text("PROMETHEUS_MAPPER_YAML", "", func(s *Settings) *string { return &s.Stats.PrometheusMap })),
	boolean("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", "false", func(s *Settings) *bool { return &s.Stats.Milliseconds }),
	ours(number("SLUICE_MAX_SERIES", "10000", 0, 10_000_000, func(s *Settings) *int { return &s.Stats.MaxSeries })),
}

var answers = []variable{
	boolean("LIMIT_RESPONSE_HEADERS_ENABLED", "false", func(s *Settings) *bool { return &s.Response.Headers }),
	text("LIMIT_LIMIT_HEADER", "RateLimit-Limit", func(s *Settings) *string { return &s.Response.LimitHeader }),
	text("LIMIT_REMAINING_HEADER", "RateLimit-Remaining", func(s *Settings) *string { return &s.Response.RemainingHeader }),
	text("LIMIT_RESET_HEADER", "RateLimit-Reset", func(s *Settings) *string { return &s.Response.ResetHeader }),
	boolean("RESPONSE_DYNAMIC_METADATA", "false", func(s *Settings) *bool { return &s.Response.Metadata }),
	boolean("SHADOW_MODE", "false", func(s *Settings) *bool { return &s.Response.Shadow }),
	boolean("QUOTA_MODE", "false", func(s *Settings) *bool { return &s.Response.Quota }),
}

var counting = []variable{
	fraction("NEAR_LIMIT_RATIO", "0.8", func(s *Settings) *float32 { return &s.Counting.NearRatio }),
	text("CACHE_KEY_PREFIX", "", func(s *Settings) *string { return &s.Counting.Prefix }),
	but("a count over one limit is not assumed to be over another", number("LOCAL_CACHE_SIZE_IN_BYTES", "0", 0, math.MaxInt, func(s *Settings) *int { return &s.Counting.LocalCache })),
	boolean("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "false",
		func(s *Settings) *bool { return &s.Counting.StopWhenOver }),
	but("only with SLUICE_KEY_FORMAT=envoy: Sluice's keys need no jitter", number("EXPIRATION_JITTER_MAX_SECONDS", "300", 0, math.MaxInt32,
		func(s *Settings) *int64 { return &s.Counting.ExpiryJitter })),
	ours(word("SLUICE_ON_FAILURE", "error", []string{"error", "open", "closed", "local"},
		func(s *Settings) *string { return &s.Counting.OnFailure })),
	ours(keyFormat),
	ours(duration("SLUICE_STORE_TIMEOUT", "0s", func(s *Settings) *time.Duration { return &s.Counting.Timeout })),
	ours(number("SLUICE_MAX_DESCRIPTORS", "1000", 1, 10_000,
		func(s *Settings) *int { return &s.Counting.MaxDescriptors })),
	ours(number("SLUICE_MAX_MESSAGE_BYTES", "4194304", 1<<10, 64<<20,
		func(s *Settings) *int { return &s.GRPC.MaxMessage })),
}

var keyFormat = variable{
	name: "SLUICE_KEY_FORMAT", initial: "sluice", kind: "sluice or envoy",
	set: func(s *Settings, value string) error {
		s.Counting.EnvoyKeys = value == "envoy"
		if value != "envoy" && value != "sluice" {
			return valueError("")
		}
		return nil
	},
}

var backends = slices.Concat([]variable{
	but("also memory: each process counts separately", word("BACKEND_TYPE", "redis", []string{"redis", "memcache", "memory"}, func(s *Settings) *string { return &s.Backend })),
	boolean("REDIS_PERSECOND", "false", func(s *Settings) *bool { return &s.UsePerSecond }),
	but("unhealthy while Redis is unavailable; it is checked every second, without traffic too", boolean("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "false", func(s *Settings) *bool { return &s.ByActivity })),
	text("REDIS_TLS_CLIENT_CERT", "", func(s *Settings) *string { return &s.Redis.Cert }),
	text("REDIS_TLS_CLIENT_KEY", "", func(s *Settings) *string { return &s.Redis.Key }),
	text("REDIS_TLS_CACERT", "", func(s *Settings) *string { return &s.Redis.CA }),
	boolean("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "false", func(s *Settings) *bool { return &s.Redis.SkipHostname }),
	interval("REDIS_STARTUP_INITIAL_INTERVAL", "1s", func(s *Settings) *time.Duration { return &s.Startup.First }),
	interval("REDIS_STARTUP_MAX_INTERVAL", "30s", func(s *Settings) *time.Duration { return &s.Startup.Most }),
	duration("REDIS_STARTUP_MAX_ELAPSED_TIME", "0s", func(s *Settings) *time.Duration { return &s.Startup.Total }),
	ignored("REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR", "false", "the new primary is found anyway"),
	list("MEMCACHE_HOST_PORT", func(s *Settings) *[]string { return &s.Memcache.Addrs }),
	but("resolved once, at the start", text("MEMCACHE_SRV", "", func(s *Settings) *string { return &s.Memcache.SRV })),
	ignored("MEMCACHE_SRV_REFRESH", "0", "MEMCACHE_SRV is resolved once, at the start"),
	ignored("MEMCACHE_MAX_IDLE_CONNS", "2", "all used connections stay open"),
	boolean("MEMCACHE_TLS", "false", func(s *Settings) *bool { return &s.Memcache.TLS }),
	text("MEMCACHE_TLS_CLIENT_CERT", "", func(s *Settings) *string { return &s.Memcache.Cert }),
	text("MEMCACHE_TLS_CLIENT_KEY", "", func(s *Settings) *string { return &s.Memcache.Key }),
	text("MEMCACHE_TLS_CACERT", "", func(s *Settings) *string { return &s.Memcache.CA }),
	boolean("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", "false",
		func(s *Settings) *bool { return &s.Memcache.SkipHostname }),
}, redisVariables("REDIS_", "/var/run/nutcracker/ratelimit.sock", func(s *Settings) *RedisSettings { return &s.Redis }),
	redisVariables("REDIS_PERSECOND_", "/var/run/nutcracker/ratelimitpersecond.sock",
		func(s *Settings) *RedisSettings { return &s.PerSecond }))

// redisVariables returns the variables of one of the two Redis.
func redisVariables(prefix, url string, of func(*Settings) *RedisSettings) []variable {
	const onePool = "one connection is shared by all requests, so there is no pool"
	const pipeline = "requests are always pipelined"
	return []variable{
		word(prefix+"SOCKET_TYPE", "unix", []string{"tcp", "unix"}, func(s *Settings) *string { return &of(s).SocketType }),
		word(prefix+"TYPE", "SINGLE", []string{"SINGLE", "SENTINEL", "CLUSTER"},
			func(s *Settings) *string { return &of(s).Type }),
		text(prefix+"URL", url, func(s *Settings) *string { return &of(s).URL }),
		text(prefix+"AUTH", "", func(s *Settings) *string { return &of(s).Auth }),
		text(prefix+"SENTINEL_AUTH", "", func(s *Settings) *string { return &of(s).SentinelAuth }),
		boolean(prefix+"TLS", "false", func(s *Settings) *bool { return &of(s).TLS }),
		but("timeout of connecting; SLUICE_STORE_TIMEOUT is for requests", duration(prefix+"TIMEOUT", "10s", func(s *Settings) *time.Duration { return &of(s).Timeout })),
		ignored(prefix+"POOL_SIZE", "10", onePool),
		ignored(prefix+"POOL_ON_EMPTY_BEHAVIOR", "WAIT", onePool),
		ignored(prefix+"PIPELINE_WINDOW", "0", pipeline),
		ignored(prefix+"PIPELINE_LIMIT", "0", pipeline),
		ignored(prefix+"CLUSTER_PIPELINE_PARALLELISM", "1", "the nodes of a Cluster are called concurrently"),
	}
}

// memcachedTimeout is the reference's timeout of a call to Memcached.
const memcachedTimeout = 100 * time.Millisecond

// complete reads variables that depend on other ones.
func (s *Settings) complete(env map[string]string) (faults []error) {
	if s.Backend == "memcache" && env["SLUICE_ON_FAILURE"] == "" { // as in the reference, where errors of Memcached count as no hits
		s.Counting.OnFailure = "open"
		s.Counting.Timeout = cmp.Or(s.Counting.Timeout, memcachedTimeout)
	}
	s.PerSecond.Cert, s.PerSecond.Key, s.PerSecond.CA = s.Redis.Cert, s.Redis.Key, s.Redis.CA
	s.PerSecond.SkipHostname = s.Redis.SkipHostname
	for _, name := range s.Stats.mogrifierNames {
		prefix := "DOG_STATSD_MOGRIFIER_" + name + "_"
		m := Mogrifier{Pattern: env[prefix+"PATTERN"], Name: env[prefix+"NAME"]}
		var err error
		if m.Tags, err = parsePairs(env[prefix+"TAGS"]); err != nil {
			faults = append(faults, fmt.Errorf("%sTAGS: write %s", prefix, kindPairs))
		}
		if m.Pattern == "" || m.Name == "" {
			faults = append(faults, fmt.Errorf("%sPATTERN and %sNAME: write both, because USE_DOG_STATSD_MOGRIFIERS names %s",
				prefix, prefix, name))
		}
		s.Stats.Mogrifiers = append(s.Stats.Mogrifiers, m)
	}
	return faults
}

// check returns errors for invalid combinations of settings.
func (s *Settings) check() (faults []error) {
	fault := func(bad bool, words string) {
		if bad {
			faults = append(faults, errors.New(words))
		}
	}
	sinks := 0
	for _, on := range []bool{s.Stats.Statsd, s.Stats.DogStatsd, s.Stats.Prometheus} {
		if on {
			sinks++
		}
	}
	fault(sinks > 1 && !s.Stats.Disabled, "unable to use more than one stats sink at the same time: "+
		"set one of USE_DOG_STATSD, USE_STATSD, USE_PROMETHEUS; USE_STATSD is on unless it is set to false")
	fault(s.Stats.Flush == 0, "STATS_FLUSH_INTERVAL: write "+kindDuration)
	fault(s.GRPC.UseTLS && (s.GRPC.Cert == "" || s.GRPC.Key == ""),
		"GRPC_SERVER_USE_TLS needs GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY: write the files' paths")
	fault(s.Counting.EnvoyKeys && s.Backend == "memory", "SLUICE_KEY_FORMAT=envoy is for BACKEND_TYPE=redis and memcache only")
	fault(s.UsePerSecond && s.Backend != "redis", "REDIS_PERSECOND is for BACKEND_TYPE=redis only")
	fault(s.Backend == "memcache" && len(s.Memcache.Addrs) == 0 && s.Memcache.SRV == "",
		"BACKEND_TYPE=memcache needs MEMCACHE_HOST_PORT: write the servers, host:port,host:port")
	fault(len(s.Memcache.Addrs) > 0 && s.Memcache.SRV != "",
		"both MEMCACHE_HOST_PORT and MEMCACHE_SRV are set: set one")
	fault(s.Backend == "redis" && s.Redis.Type == "SENTINEL" && !strings.Contains(s.Redis.URL, ","),
		"REDIS_URL: with REDIS_TYPE=SENTINEL write the primary's name and the sentinels: name,host:port,host:port")
	fault(s.UsePerSecond && s.PerSecond.Type == "SENTINEL" && !strings.Contains(s.PerSecond.URL, ","),
		"REDIS_PERSECOND_URL: with REDIS_PERSECOND_TYPE=SENTINEL write the primary's name and the sentinels: "+
			"name,host:port,host:port")
	return faults
}
