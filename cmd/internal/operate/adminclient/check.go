package adminclient

import (
	"encoding/json"
	"net/http"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
)

// Checked is a response of POST /v1/check.
type Checked struct {
	Status int
	Header http.Header
	Result CheckResult
	Raw    json.RawMessage // body of the response
}

// CheckResult is the response body of POST /v1/check for a single check.
type CheckResult struct {
	Allowed  bool           `json:"allowed"`
	Limits   []CheckedLimit `json:"limits"`
	Degraded any            `json:"degraded"`
	Reason   string         `json:"reason"`
}

// CheckedLimit is the decision of one limit.
type CheckedLimit struct {
	Rule         string  `json:"rule"`
	Allowed      bool    `json:"allowed"`
	Limit        int64   `json:"limit"`
	Remaining    *int64  `json:"remaining"` // nil if unknown
	RetryAfterMS float64 `json:"retry_after_ms"`
	ResetAfterMS float64 `json:"reset_after_ms"`
	DelayMS      float64 `json:"delay_ms"` // wait before the allowed request proceeds
	Source       string  `json:"source"`
	ShadowDenied bool    `json:"shadow_denied"`
	ExceedsLimit bool    `json:"exceeds_limit"` // the cost is larger than the limit can ever grant
}

// Check is the body of POST /v1/check: a request, or descriptors of an Envoy domain.
type Check struct {
	Attributes  *Attributes        `json:"attributes,omitempty"`
	Domain      string             `json:"domain,omitempty"`
	Descriptors [][]adminmsg.Entry `json:"descriptors,omitempty"`
	Cost        int64              `json:"cost,omitempty"`
}

// Attributes is the attributes of an HTTP request.
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
