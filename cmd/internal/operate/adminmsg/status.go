package adminmsg

import "time"

// Status is the response of GET /v1/status.
type Status struct {
	Version       string            `json:"version"`
	StartedAt     time.Time         `json:"started_at"`
	UptimeSeconds float64           `json:"uptime_seconds"`
	Store         StoreStatus       `json:"store"`
	Rules         RulesStatus       `json:"rules"`
	Unready       string            `json:"unready"` // reason why /readyz responds with 503; "" if it responds with 200
	Suspended     []string          `json:"suspended"`
	Listeners     map[string]string `json:"listeners"`
	LogLevel      string            `json:"log_level"`
}

// StoreStatus is the status of the store and its shards.
type StoreStatus struct {
	Kind      string         `json:"kind"`
	Up        bool           `json:"up"`
	Error     string         `json:"error"` // of the ping sent for this status; "" if it succeeded
	Servers   []ServerStatus `json:"servers"`
	Instances int            `json:"instances"`       // number of instances that share the store; 0 if not known yet
	History   []BreakerEvent `json:"breaker_history"` // last 32 events, newest first
}

// ServerStatus is the state of one shard of the store.
type ServerStatus struct {
	Shard   int        `json:"shard"`
	Address string     `json:"address"` // host:port of its servers, separated by commas; "" if unknown
	Up      bool       `json:"up"`
	Breaker string     `json:"breaker"` // open or closed
	Since   *time.Time `json:"since"`   // time at which the breaker opened; nil if it is closed
	Error   string     `json:"error"`   // last error before the breaker opened
}

// BreakerEvent is one opening or closing of a shard's circuit breaker.
type BreakerEvent struct {
	Time    time.Time `json:"time"`
	Shard   int       `json:"shard"`
	Server  string    `json:"server"` // address of the shard at that time; "" if unknown
	Breaker string    `json:"breaker"`
	Error   string    `json:"error"`
}

// RulesStatus is the status of the rule set in effect.
type RulesStatus struct {
	Digest       string     `json:"digest"`
	LoadedAt     time.Time  `json:"loaded_at"`
	Files        []string   `json:"files"`
	LastError    *LastError `json:"last_error"` // error of the last reload; nil if the rule set is that of the files
	SluiceRules  int        `json:"sluice_rules"`
	EnvoyDomains int        `json:"envoy_domains"`
}

// LastError is the error of the last reload and the time of the first reload that failed.
type LastError struct {
	Time    time.Time `json:"time"`
	Message string    `json:"message"`
}

// LogLevel is the request and response body of PUT /v1/log-level.
type LogLevel struct {
	Level string `json:"level"`
}
