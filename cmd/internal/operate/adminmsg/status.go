package adminmsg

import "time"

// Status is the answer of GET /v1/status: how the process is doing.
type Status struct {
	Version       string            `json:"version"`
	Started       time.Time         `json:"started"`
	UptimeSeconds float64           `json:"uptime_seconds"`
	Store         StoreStatus       `json:"store"`
	Rules         RulesStatus       `json:"rules"`
	Unready       string            `json:"unready"` // why /readyz responds with 503; "": it responds with 200
	Suspended     []string          `json:"suspended"`
	Listeners     map[string]string `json:"listeners"`
	LogLevel      string            `json:"log_level"`
}

// StoreStatus is where counts are kept, and whether it answers.
type StoreStatus struct {
	Kind      string         `json:"kind"`
	Up        bool           `json:"up"`
	Error     string         `json:"error"` // of the ping that the status made; "": none
	Servers   []ServerStatus `json:"servers"`
	Instances int            `json:"instances"`       // that share it; 0: not known yet
	History   []BreakerEvent `json:"breaker_history"` // newest first, the last 32
}

// ServerStatus is the state of one shard of the store.
type ServerStatus struct {
	Shard   int        `json:"shard"`
	Address string     `json:"address"` // of its server; "": not known
	Up      bool       `json:"up"`
	Breaker string     `json:"breaker"` // open or closed
	Since   *time.Time `json:"since"`   // when the breaker opened; null: it is closed
	Error   string     `json:"error"`   // why it opened
}

// BreakerEvent is one opening or closing of a shard's circuit breaker.
type BreakerEvent struct {
	At      time.Time `json:"at"`
	Shard   int       `json:"shard"`
	Server  string    `json:"server"` // address at that time; "": not known
	Breaker string    `json:"breaker"`
	Error   string    `json:"error"`
}

// RulesStatus is which rules are live.
type RulesStatus struct {
	Digest    string     `json:"digest"`
	LoadedAt  time.Time  `json:"loaded_at"`
	Files     []string   `json:"files"`
	LastError *LastError `json:"last_error"` // why the live rules are not what the files say
	Native    int        `json:"native"`
	Domains   int        `json:"domains"`
}

// LastError is something that went wrong.
type LastError struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

// LogLevel is the body and the answer of PUT /v1/log-level.
type LogLevel struct {
	Level string `json:"level"`
}
