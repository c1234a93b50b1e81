package adminclient

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// Status is the answer of GET /v1/status.
type Status struct {
	Version       string            `json:"version"`
	Started       time.Time         `json:"started"`
	UptimeSeconds float64           `json:"uptime_s"`
	Store         StoreStatus       `json:"store"`
	Rules         RulesStatus       `json:"rules"`
	Unready       string            `json:"unready"` // why /readyz responds with 503
	Suspended     []string          `json:"suspended"`
	Listeners     map[string]string `json:"listeners"`
	LogLevel      string            `json:"log_level"`
}

// StoreStatus is where counts are kept, and whether it answers.
type StoreStatus struct {
	Kind    string `json:"kind"`
	Up      bool   `json:"up"`
	Servers []struct {
		N  int  `json:"n"`
		Up bool `json:"up"`
	} `json:"servers"`
	Instances int `json:"instances"` // that share it; 0: not known yet
}

// RulesStatus is which rules are in force.
type RulesStatus struct {
	Digest    string    `json:"digest"`
	LoadedAt  time.Time `json:"loaded_at"`
	Files     []string  `json:"files"`
	LastError *struct {
		At   time.Time `json:"at"`
		Text string    `json:"text"`
	} `json:"last_error"` // since the rules in force were read
	Native  int `json:"native"`
	Domains int `json:"domains"`
}

// Rules is the answer of GET /v1/rules.
type Rules struct {
	Digest string `json:"digest"`
	Rules  []Rule `json:"rules"`
}

// Rule is a rule and what became of the requests it was asked about since the service started.
type Rule struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"` // native or envoy
	File   string `json:"file"`
	Line   int    `json:"line"`
	Limits []struct {
		Bucket string `json:"bucket"`
		Limit  string `json:"limit"`
	} `json:"limits"`
	Per       []string `json:"per"`
	Shadow    bool     `json:"shadow"`
	Suspended bool     `json:"suspended"`
	Counts
}

// LimitText is the rule's limits on one line.
func (r *Rule) LimitText() string {
	all := make([]string, len(r.Limits))
	for i := range r.Limits {
		all[i] = r.Limits[i].Limit
	}
	return strings.Join(all, ", ")
}

// Counts is what became of requests.
type Counts struct {
	Allowed      int64 `json:"allowed"`
	Denied       int64 `json:"denied"`
	ShadowDenied int64 `json:"shadow_denied"`
	NearLimit    int64 `json:"near_limit"`
}

// Selector names buckets: a rule and whom it counts for, or a descriptor of an Envoy domain, or a request.
type Selector struct {
	Rule       string   `json:"rule,omitempty"`
	Key        Key      `json:"key,omitempty"`
	Domain     string   `json:"domain,omitempty"`
	Descriptor []Entry  `json:"descriptor,omitempty"`
	Request    *Request `json:"request,omitempty"`
	For        string   `json:"for,omitempty"` // of POST /v1/block
}

// Entry is one of a descriptor's.
type Entry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Request is an HTTP request that is not sent but asked about.
type Request struct {
	Method     string            `json:"method"`
	URL        string            `json:"url"`
	Headers    map[string]string `json:"headers,omitempty"`
	IP         string            `json:"ip,omitempty"`
	Claims     map[string]string `json:"claims,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
}

// Explain is the body of POST /v1/explain.
type Explain struct {
	Request     *Request  `json:"request,omitempty"`
	Domain      string    `json:"domain,omitempty"`
	Descriptors [][]Entry `json:"descriptors,omitempty"`
	Cost        int64     `json:"cost,omitempty"`
}

// Buckets is the answer of POST /v1/peek, /v1/reset and /v1/block.
type Buckets struct {
	Buckets []Bucket   `json:"buckets"`
	Until   *time.Time `json:"until"` // of a block; nil if it is lifted
}

// Bucket is where something is counted; its state only if that was asked for.
type Bucket struct {
	Rule              string  `json:"rule"`
	Key               Key     `json:"key"`
	Tier              string  `json:"tier"`
	Allowed           bool    `json:"allowed"`
	BlockedSeconds    float64 `json:"blocked_s"`
	Limit             int64   `json:"limit"`
	Remaining         int64   `json:"remaining"`
	RetryAfterSeconds float64 `json:"retry_after_s"`
	ResetAfterSeconds float64 `json:"reset_after_s"`
	Source            string  `json:"source"`
}

// Names is the body and the answer of POST /v1/suspend and /v1/resume.
type Names struct {
	Rules     []string `json:"rules,omitempty"`
	Suspended []string `json:"suspended,omitempty"`
}

// Top is the answer of GET /v1/top.
type Top struct {
	Since   time.Time  `json:"since"`
	Entries []TopEntry `json:"entries"`
}

// TopEntry is a key that was counted often: between Count-Error and Count times.
type TopEntry struct {
	Rule  string `json:"rule"`
	Key   Key    `json:"key"`
	Count int64  `json:"count"`
	Error int64  `json:"error"`
}

// Reloaded is the answer of POST /v1/reload.
type Reloaded struct {
	Digest  string `json:"digest"`
	Changed bool   `json:"changed"`
}

// Event is what GET /v1/watch tells at intervals: what happened since the last. Rules that nothing happened to are left
// out.
type Event struct {
	T     time.Time `json:"t"`
	Rules []struct {
		Name string `json:"name"`
		Counts
	} `json:"rules"`
	Top []TopEntry `json:"top"`
}

// Checked is the answer to a caller.
type Checked struct {
	Status int
	Header http.Header
	Answer CheckAnswer
	Raw    json.RawMessage // the same as it came
}

// CheckAnswer is the answer of POST /v1/check.
type CheckAnswer struct {
	Allowed  bool           `json:"allowed"`
	Limits   []CheckedLimit `json:"limits"`
	Degraded any            `json:"degraded"`
	Why      string         `json:"why"`
}

// CheckedLimit is what one limit says.
type CheckedLimit struct {
	Rule         string  `json:"rule"`
	Allowed      bool    `json:"allowed"`
	Limit        int64   `json:"limit"`
	Remaining    *int64  `json:"remaining"` // nil: nobody was asked
	RetryAfterMS float64 `json:"retry_after_ms"`
	ResetAfterMS float64 `json:"reset_after_ms"`
	DelayMS      float64 `json:"delay_ms"` // how long to wait before doing what is allowed
	Source       string  `json:"source"`
	Shadow       bool    `json:"shadow"` // it would have denied, and only reports
	Never        bool    `json:"never"`  // such a cost does not fit at any time
}

// Check is the body of POST /v1/check: a request, or descriptors of an Envoy domain.
type Check struct {
	Attributes  *Attributes `json:"attributes,omitempty"`
	Domain      string      `json:"domain,omitempty"`
	Descriptors [][]Entry   `json:"descriptors,omitempty"`
	Cost        int64       `json:"cost,omitempty"`
}

// Attributes is what rules look at in a request.
type Attributes struct {
	Method     string              `json:"method"`
	Path       string              `json:"path"`
	Host       string              `json:"host,omitempty"`
	IP         string              `json:"ip,omitempty"`
	Headers    map[string][]string `json:"headers,omitempty"`
	Query      map[string][]string `json:"query,omitempty"`
	Cookies    map[string][]string `json:"cookies,omitempty"`
	Claims     map[string]string   `json:"claims,omitempty"`
	Attributes map[string]string   `json:"attributes,omitempty"`
}
