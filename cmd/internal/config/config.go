package config

import "time"

// Config is the configuration of a service. [Default] returns the configuration without a file.
type Config struct {
	GRPC    GRPC
	HTTP    HTTP
	Admin   Admin
	RESP    RESP
	Gateway Gateway
	Drain   Drain
	Store   Store
	Rules   Rules
	RLS     RLS
	Queue   Queue
	Metrics Metrics
	Logging Logging
	Tracing Tracing

	ForwardAuth    ForwardAuth
	CheckAPI       CheckAPI
	Authentication Authentication

	broken []string // settings and sections with errors; see Sound
}

// Off instead of an address disables a listener.
const Off = "off"

// Share returns the maximum for one address or key: set, or 25 % of the total maximum if set is 0; at least 1.
func Share(set, total int64) int64 {
	if set > 0 {
		return set
	}
	return max(1, total/4)
}

// TLS is the TLS configuration of a listener. Without CertFile the listener does not use TLS.
type TLS struct{ CertFile, KeyFile, ClientCAFile string }

// GRPC is the listener for Envoy's rate limit service protocol.
type GRPC struct {
	Address                  string
	TLS                      TLS
	MaxConnections           int64
	MaxConnectionsPerAddress int64 // 0: 25 % of MaxConnections
	MaxStreams               int64
	MaxHeaderSize            int64
	MaxMessageSize           int64
	MaxConnectionAge         time.Duration
	MaxConnectionAgeGrace    time.Duration
	Reflection               bool
}

// HTTP is the listener for the check API, forward authentication and health checks.
type HTTP struct {
	Address                  string
	TLS                      TLS
	MaxConnections           int64
	MaxConnectionsPerAddress int64 // 0: 25 % of MaxConnections
}

// Admin is the listener of the admin API and its authentication.
type Admin struct {
	Address        string
	TLS            TLS
	MaxConnections int64
	TokenFile      string
	AllowedHosts   []string
}

// Drain is the graceful shutdown; see listeners.drain.
type Drain struct{ Delay, Timeout time.Duration }

// Kinds of stores.
const (
	Memory    = "memory"
	Redis     = "redis"
	Memcached = "memcached"
)

// Store is the store of the counts.
type Store struct {
	Kind         string
	URL          string   // Redis only
	PasswordFile string   // Redis only
	Addresses    []string // Memcached only
	TLS          ClientTLS
	KeyPrefix    string
	MaxMemory    int64  // bytes; memory only
	SnapshotFile string // memory only
	Timeout      time.Duration
	Instances    int64 // sharing the store; 0: unknown
	Required     bool  // fail health checks while the store is unavailable
}

// ClientTLS is the TLS configuration of connections to stores, upstreams, NATS servers and collectors.
type ClientTLS struct{ CAFile, CertFile, KeyFile string }

// Rules are the paths of rule files and options for reading them.
type Rules struct {
	Paths        []string
	MergeDomains bool
	ChargeDenied bool
}

// RLS are the options of the rate limit service for Envoy.
type RLS struct {
	MaxDescriptors       int64
	AcceptLimitOverrides bool
	AcceptNegativeHits   bool
	ShadowMode           bool
	QuotaMode            bool
	DynamicMetadata      bool
	Headers              Headers
	ClientDomains        map[string][]string // allowed domains by a name in the client's certificate; nil: all
}

// Headers are the names of headers about limits.
type Headers struct {
	Enabled                 bool
	Limit, Remaining, Reset string
}

// ForwardAuth are the options of forward authentication, which proxies call for each request.
type ForwardAuth struct{ MaxDelay time.Duration }

// CheckAPI are the options of the HTTP check API.
type CheckAPI struct{ ReservationSecretFile, RefundTokenFile string }

// Metrics is the exposition of metrics for Prometheus and their export by OTLP.
type Metrics struct {
	Enabled              bool
	HTTPListener         bool // serve them on the HTTP listener too
	AllowUnauthenticated bool // serve them on the admin listener without a token
	OTLP                 OTLPMetrics
}

// Logging are the options of the log.
type Logging struct {
	Level, Format    string
	Denials          string // Off or sampled
	DenialsPerSecond int64
	Keys             string // masked, plain or none
	SecretFile       string
}

// Collector is an OTLP collector. Without an endpoint nothing is sent.
type Collector struct {
	Endpoint    string
	HeadersFile string
	TLS         ClientTLS
}

// OTLPMetrics is the export of metrics by OTLP.
type OTLPMetrics struct {
	Collector
	Interval time.Duration
}

// Tracing is the export of traces by OTLP.
type Tracing struct {
	Collector
	SampleRatio float64
}
