package adminmsg

import "strings"

// Rules is the response of GET /v1/rules.
type Rules struct {
	Digest string `json:"digest"`
	Rules  []Rule `json:"rules"`
}

// Rule is a rule and the number of its decisions since the process started.
type Rule struct {
	Name      string      `json:"name"`
	Format    string      `json:"format"` // sluice or envoy
	File      string      `json:"file,omitempty"`
	Line      int         `json:"line,omitempty"`
	Limits    []RuleLimit `json:"limits"`
	Per       []string    `json:"per"`
	Shadow    bool        `json:"shadow"`
	OnFailure string      `json:"on_failure"`
	Accuracy  string      `json:"accuracy"`
	Suspended bool        `json:"suspended"`
	Verdict   *Verdict    `json:"verdict,omitempty"` // nil if rules are not judged
	Counts
}

// LimitText returns the limits of the rule, separated by commas.
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
	Burst         int64   `json:"burst"` // largest cost that can be allowed at once
}

// Counts is the number of decisions by result.
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

// Suspended is the response of POST /v1/suspend and /v1/resume: all suspended rules.
type Suspended struct {
	Suspended []string `json:"suspended"`
	Note      string   `json:"note"`
}

// Reloaded is the response of POST /v1/reload.
type Reloaded struct {
	Digest        string   `json:"digest"`
	Changed       bool     `json:"changed"`
	RestartNeeded []string `json:"restart_needed"` // settings changed in the configuration file that take effect after a restart
	ConfigError   string   `json:"config_error"`   // error in the configuration file that would fail a restart; "" if there is none
}

// RuleError is one error in a rule file.
type RuleError struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Rule    string `json:"rule,omitempty"`
	Message string `json:"message"`
}
