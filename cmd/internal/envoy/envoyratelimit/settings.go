package envoyratelimit

import "time"

// Settings are the values of the environment variables. [ReadSettings] returns them.
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
	PerSecond  RedisSettings // for limits per second, if UsePerSecond
	Memcache   MemcacheSettings
	Startup    StartupSettings
	ByActivity bool // unhealthy while Redis is unavailable

	UsePerSecond bool
}

// GRPCSettings configure the listener for Envoy.
type GRPCSettings struct {
	Socket               string // path; replaces Host and Port
	Host                 string
	Port                 int
	MaxAge, MaxAgeGrace  time.Duration
	MaxMessage           int // maximum size of a request in bytes
	UseTLS               bool
	Cert, Key            string
	ClientCA, ClientName string // file, and required name in client certificates
}

// RuleSettings configure the source of rules.
type RuleSettings struct {
	Source              string // FILE or GRPC_XDS_SOTW
	Root, Below, App    string // directories
	SkipDotFiles        bool
	Merge               bool // a domain may be split over several files or resources
	StartWithout        bool // listen before rules are loaded
	HealthyOnlyWithSome bool // unhealthy until a domain is loaded
}

// XDSSettings configure the xDS control plane.
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

// StatsSettings configure the statistics.
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
	PrometheusMap  string // file
	Milliseconds   bool   // response times for Prometheus in milliseconds, as old dashboards expect

	MaxSeries int // maximum number of limits whose name contains values of requests
}

// Mogrifier extracts tags for DogStatsD from the names of statistics.
type Mogrifier struct {
	Pattern, Name string
	Tags          map[string]string
}

// ResponseSettings configure responses.
type ResponseSettings struct {
	Headers                                   bool
	LimitHeader, RemainingHeader, ResetHeader string
	Metadata                                  bool
	Shadow, Quota                             bool // for all limits
}

// CountingSettings configure counting.
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

// RedisSettings configure the connection to one Redis.
type RedisSettings struct {
	SocketType, Type, URL string
	Auth, SentinelAuth    string
	TLS                   bool
	Cert, Key, CA         string
	SkipHostname          bool
	Timeout               time.Duration
}

// MemcacheSettings configure the connection to Memcached.
type MemcacheSettings struct {
	Addrs         []string
	SRV           string
	TLS           bool
	Cert, Key, CA string
	SkipHostname  bool
}

// StartupSettings configure the retries of the connection to Redis during the start: first and maximum interval, total time.
type StartupSettings struct{ First, Most, Total time.Duration }
