package envoyratelimit

import "time"

// Settings are what the environment says. Make them with [ReadSettings].
type Settings struct {
	Host, DebugHost string
	Port, DebugPort int
	GRPC            GRPCSettings

	LogLevel, LogFormat string

	Rules      RuleSettings
	XDS        XDSSettings
	Stats      StatsSettings
	Response   ResponseSettings
	Counting   CountingSettings
	Backend    string // redis, memcache or memory
	Redis      RedisSettings
	PerSecond  RedisSettings // for limits of a second, if UsePerSecond
	Memcache   MemcacheSettings
	Startup    StartupSettings
	ByActivity bool // unhealthy while Redis does not answer

	UsePerSecond bool
}

// GRPCSettings are about the listener for Envoy.
type GRPCSettings struct {
	Socket               string // a path; instead of Host and Port
	Host                 string
	Port                 int
	MaxAge, MaxAgeGrace  time.Duration
	MaxMessage           int // bytes of a request
	UseTLS               bool
	Cert, Key            string
	ClientCA, ClientName string // a file, and the name that a client's certificate must have
}

// RuleSettings say where rules come from.
type RuleSettings struct {
	Source              string // FILE or GRPC_XDS_SOTW
	Root, Below, App    string // directories
	SkipDotFiles        bool
	Merge               bool // several files, or resources, may have parts of one domain
	StartWithout        bool // listen before there are rules
	HealthyOnlyWithSome bool // unhealthy until there is a domain
}

// XDSSettings are about the control plane that sends rules.
type XDSSettings struct {
	NodeID, NodeMetadata   string
	Server                 string
	ConnectRetry           time.Duration
	Headers                map[string]string
	UseTLS                 bool
	Cert, Key, CA, Name    string
	BackoffMin, BackoffMax time.Duration
	BackoffFactor          float64
	BackoffJitter          bool
	MaxMessage             int
}

// StatsSettings are about statistics and where they go.
type StatsSettings struct {
	Statsd, DogStatsd bool
	Mogrifiers        []Mogrifier
	mogrifierNames    []string
	Host              string
	Port              int
	Tags              map[string]string
	Flush             time.Duration
	Disabled          bool

	Prometheus     bool
	PrometheusAddr string
	PrometheusPath string
	PrometheusMap  string // a file
	Milliseconds   bool   // response times in Prometheus are in milliseconds, as old dashboards expect

	MaxSeries int // names of limits that requests make up
}

// Mogrifier takes tags for DogStatsD out of a statistic's name.
type Mogrifier struct {
	Pattern, Name string
	Tags          map[string]string
}

// ResponseSettings are about answers.
type ResponseSettings struct {
	Headers                                   bool
	LimitHeader, RemainingHeader, ResetHeader string
	Metadata                                  bool
	Shadow, Quota                             bool // for all limits
}

// CountingSettings are about counts.
type CountingSettings struct {
	NearRatio      float32
	Prefix         string
	LocalCache     int // bytes
	StopWhenOver   bool
	ExpiryJitter   int64 // seconds
	EnvoyKeys      bool
	OnFailure      string // error, open, closed or local
	Timeout        time.Duration
	MaxDescriptors int
}

// RedisSettings are about one Redis.
type RedisSettings struct {
	SocketType, Type, URL string
	Auth, SentinelAuth    string
	TLS                   bool
	Cert, Key, CA         string
	SkipHostname          bool
	Timeout               time.Duration
}

// MemcacheSettings are about Memcached.
type MemcacheSettings struct {
	Addrs         []string
	SRV           string
	TLS           bool
	Cert, Key, CA string
	SkipHostname  bool
}

// StartupSettings say how long to wait for Redis at the start, and how often to try.
type StartupSettings struct{ First, Most, Total time.Duration }
