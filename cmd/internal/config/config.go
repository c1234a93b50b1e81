package config

import "time"

// Config is what a file says. [Default] is what none says.
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
	Auth    Auth
	Check   Check
	Queue   Queue
	Metrics Metrics
	Logging Logging
	Tracing Tracing

	Authentication Authentication

	broken []string // settings and sections with errors; see Sound
}

// Off in place of an address is no listener.
const Off = "off"

// Share returns what one address or key may have of a maximum: set, or a quarter of the maximum if set is 0.
func Share(set, most int64) int64 {
	if set > 0 {
		return set
	}
	return max(1, most/4)
}

// TLS are the files of a listener's certificates.
type TLS struct{ Cert, Key, ClientCA string }

// GRPC is the listener for Envoy's protocol.
type GRPC struct {
	Address         string
	TLS             TLS
	MaxConnections  int64
	MaxPerAddress   int64 // connections; 0: a quarter of MaxConnections
	MaxStreams      int64
	MaxHeaderBytes  int64
	MaxMessageBytes int64
	MaxAge          time.Duration
	MaxAgeGrace     time.Duration
	Reflection      bool
}

// HTTP is the listener for checks, proxies and health checks.
type HTTP struct {
	Address        string
	TLS            TLS
	MaxConnections int64
	MaxPerAddress  int64 // connections; 0: a quarter of MaxConnections
}

// Admin is the listener for operators, and who they are.
type Admin struct {
	Address        string
	TLS            TLS
	MaxConnections int64
	TokenFile      string
	Hosts          []string
}

// Drain is how the service ends.
type Drain struct{ Wait, Timeout time.Duration }

// Kinds of stores.
const (
	Memory    = "memory"
	Redis     = "redis"
	Memcached = "memcached"
)

// Store is where counts are kept.
type Store struct {
	Kind         string
	URL          string   // of Redis
	PasswordFile string   // of Redis
	Servers      []string // of Memcached
	TLS          StoreTLS
	Prefix       string
	Bytes        int64  // of memory
	Snapshot     string // of memory
	Budget       time.Duration
	Instances    int64 // that share it; 0: not said
	Required     bool  // health checks fail while it is unavailable
}

// StoreTLS are the files for connections to a store's servers, or a collector.
type StoreTLS struct{ CA, Cert, Key string }

// Rules are where the rules are.
type Rules struct {
	Paths        []string
	MergeDomains bool
	ChargeDenied bool
}

// RLS is what is said to Envoy, and what it may ask.
type RLS struct {
	MaxDescriptors          int64
	Overrides, NegativeHits bool
	Shadow, Quota           bool
	Metadata                bool
	Headers                 Headers
	Clients                 map[string][]string // domains by the name in a client's certificate; nil: all
}

// Headers are names of headers that tell about limits.
type Headers struct {
	Enabled                 bool
	Limit, Remaining, Reset string
}

// Auth is what is said to proxies that ask whether a request may pass.
type Auth struct{ MaxWait time.Duration }

// Check is the HTTP check API.
type Check struct{ SecretFile, RefundTokenFile string }

// Metrics is where Prometheus asks, and where metrics are sent.
type Metrics struct {
	Enabled bool
	OnHTTP  bool // also on the listener for health checks
	Public  bool // without a token
	OTLP    OTLPMetrics
}

// Logging is how logs are written.
type Logging struct {
	Level, Format    string
	Denials          string // Off or sampled
	DenialsPerSecond int64
	Keys             string // masked, plain or none
	SecretFile       string
}

// Collector is where something is sent by OTLP. Without an endpoint it is not.
type Collector struct {
	Endpoint    string
	HeadersFile string
	TLS         StoreTLS
}

// OTLPMetrics is how metrics are sent.
type OTLPMetrics struct {
	Collector
	Interval time.Duration
}

// Tracing is how requests are traced.
type Tracing struct {
	Collector
	Sample float64
}
