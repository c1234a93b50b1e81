package adminapi

import (
	"net/http"
	"time"
)

// Status is how the process is doing.
type Status struct {
	Version   string            `json:"version"`
	Started   time.Time         `json:"started"`
	Uptime    float64           `json:"uptime_s"`
	Store     StoreStatus       `json:"store"`
	Rules     RulesStatus       `json:"rules"`
	Unready   string            `json:"unready"` // why /readyz responds with 503; "": it responds with 200
	Suspended []string          `json:"suspended"`
	Listeners map[string]string `json:"listeners"`
	LogLevel  string            `json:"log_level"`
}

// StoreStatus is how the store is doing.
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

func (a *api) status(_ http.ResponseWriter, r *http.Request) (any, error) {
	s := Status{Listeners: map[string]string{}}
	if a.Status != nil {
		s = a.Status(r.Context())
	}
	s.Started, s.Uptime = a.started.UTC(), time.Since(a.started).Round(time.Millisecond).Seconds()
	s.Suspended, s.LogLevel = append([]string{}, a.Limiter.Suspended()...), levelName(a.Level.Level())
	for _, rule := range a.Rules().Config().Rules {
		if !rule.Disabled {
			s.Rules.Native++
		}
	}
	s.Rules.Domains = len(a.Rules().Config().Domains)
	s.Store.Servers, s.Rules.Files = append([]ServerStatus{}, s.Store.Servers...), append([]string{}, s.Rules.Files...)
	return s, nil
}
