package adminmsg

import "time"

// Status is the answer of GET /v1/status: how the process is doing.
type Status struct {
	Version       string            `json:"version"`
	Started       time.Time         `json:"started"`
	UptimeSeconds float64           `json:"uptime_s"`
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
	Servers   []ServerStatus `json:"servers"`
	Instances int            `json:"instances"` // that share it; 0: not known yet
}

// ServerStatus is how one of the store's servers is doing.
type ServerStatus struct {
	N  int  `json:"n"`
	Up bool `json:"up"`
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
