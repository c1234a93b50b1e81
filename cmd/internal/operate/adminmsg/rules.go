package adminmsg

import "strings"

// Rules is the answer of GET /v1/rules.
type Rules struct {
	Digest string `json:"digest"`
	Rules  []Rule `json:"rules"`
}

// Rule is a rule and what became of the requests it was asked about since the service started.
type Rule struct {
	Name      string      `json:"name"`
	Kind      string      `json:"kind"` // native or envoy
	File      string      `json:"file,omitempty"`
	Line      int         `json:"line,omitempty"`
	Limits    []RuleLimit `json:"limits"`
	Per       []string    `json:"per"`
	Shadow    bool        `json:"shadow"`
	OnFailure string      `json:"on_failure"`
	Accuracy  string      `json:"accuracy"`
	Suspended bool        `json:"suspended"`
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

// RuleLimit is one limit of a rule.
type RuleLimit struct {
	Bucket        string  `json:"bucket"`
	Limit         string  `json:"limit"`
	Count         int64   `json:"count"`
	WindowSeconds float64 `json:"window_seconds"`
	Algorithm     string  `json:"algorithm"`
	Burst         int64   `json:"burst"` // the most that can be spent at once
}

// Counts is how often a rule has decided what.
type Counts struct {
	Allowed      int64 `json:"allowed"`
	Denied       int64 `json:"denied"`
	ShadowDenied int64 `json:"shadow_denied"`
	NearLimit    int64 `json:"near_limit"`
}

// RuleNames is the body of POST /v1/suspend and /v1/resume.
type RuleNames struct {
	Rules []string `json:"rules"`
}

// Suspended is their answer: all rules that are switched off.
type Suspended struct {
	Suspended []string `json:"suspended"`
	Note      string   `json:"note"`
}

// Reloaded is the answer of POST /v1/reload.
type Reloaded struct {
	Digest        string   `json:"digest"`
	Changed       bool     `json:"changed"`
	RestartNeeded []string `json:"restart_needed"` // settings of the configuration file that only a restart applies
	ConfigError   string   `json:"config_error"`   // why the service would not start with that file; "": it would
}

// Fault is one thing that is wrong with rule files.
type Fault struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Rule    string `json:"rule,omitempty"`
	Message string `json:"message"`
}
