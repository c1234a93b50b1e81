package adminclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
)

// UnreachableError reports that no response was received.
type UnreachableError struct {
	URL string
	Err error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("no response from %s: %v", e.URL, e.Err)
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// RatelimitError reports that the server is sluice ratelimit, or the service that it replaces.
type RatelimitError struct {
	URL   string
	API   string // the missing API: "admin" or "check"
	Debug bool   // URL is that of the debug port instead of the service port
}

func (e *RatelimitError) Error() string {
	port := "service port"
	if e.Debug {
		port = "debug port"
	}
	return fmt.Sprintf("%s is the %s of sluice ratelimit or envoyproxy/ratelimit, which has no %s API", e.URL, port, e.API)
}

// identify replaces the error about a foreign server by a RatelimitError if its pages are those of a rate limit service.
func (e *endpoint) identify(ctx context.Context, api string, err error) error {
	var p *ProblemError
	if !errors.As(err, &p) || !p.Foreign || p.Status != http.StatusNotFound {
		return err
	}
	page := func(path string) (int, string) {
		resp, raw, err := e.roundTrip(ctx, http.MethodGet, path, nil)
		if err != nil {
			return 0, ""
		}
		return resp.StatusCode, string(raw)
	}
	if status, text := page("/"); status == http.StatusOK && strings.Contains(text, "/rlconfig: ") {
		return &RatelimitError{URL: e.shown, API: api, Debug: true}
	}
	// The service port has two pages: /healthcheck responds with OK, and /json requires a request body.
	if status, text := page("/healthcheck"); status == http.StatusOK && text == "OK" {
		if status, _ := page("/json"); status == http.StatusBadRequest {
			return &RatelimitError{URL: e.shown, API: api}
		}
	}
	return err
}

// maxText is the maximum number of bytes of a body in an error.
const maxText = 512

// ProblemError is an error response.
type ProblemError struct {
	URL     string // base URL
	Path    string // path of the request
	Status  int
	Title   string
	Detail  string
	Token   bool // a token was sent
	Foreign bool // the server is not Sluice, or this listener does not have the API
	Sluice  bool // the server is Sluice, although Foreign
	Text    string
	Errors  []adminmsg.RuleError
}

func (e *ProblemError) Error() string {
	if e.Foreign && e.Sluice {
		return fmt.Sprintf("the listener of Sluice at %s does not serve the admin API: %s returned %d", e.URL, e.Path, e.Status)
	}
	if e.Foreign {
		return fmt.Sprintf("the server at %s is not Sluice: %s returned %d", e.URL, e.Path, e.Status)
	}
	if e.Detail != "" {
		return e.Detail
	}
	return fmt.Sprintf("%s: %d %s", e.Path, e.Status, e.Title)
}

// problem returns the error of a response whose status is not 200.
func (e *endpoint) problem(resp *http.Response, path string, raw []byte) *ProblemError {
	p := e.foreign(resp, path)
	p.Text = strings.TrimSpace(string(raw[:min(len(raw), maxText)]))
	var said struct {
		Title  string               `json:"title"`
		Detail string               `json:"detail"`
		Errors []adminmsg.RuleError `json:"errors"`
	}
	if json.Unmarshal(raw, &said) == nil && said.Title != "" {
		p.Foreign, p.Title, p.Detail, p.Errors = false, said.Title, said.Detail, said.Errors
	}
	return p
}

// foreign returns the error for a response that Sluice does not send.
func (e *endpoint) foreign(resp *http.Response, path string) *ProblemError {
	path, _, _ = strings.Cut(path, "?")
	return &ProblemError{URL: e.shown, Path: path, Status: resp.StatusCode, Token: e.token != "", Foreign: true}
}
