package adminclient

import (
	"encoding/json"
	"net/http"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
)

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
	Attributes  *Attributes        `json:"attributes,omitempty"`
	Domain      string             `json:"domain,omitempty"`
	Descriptors [][]adminmsg.Entry `json:"descriptors,omitempty"`
	Cost        int64              `json:"cost,omitempty"`
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
