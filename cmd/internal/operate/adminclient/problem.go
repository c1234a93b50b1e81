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

// UnreachableError says that nothing answered.
type UnreachableError struct {
	URL string
	Err error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("nothing answers at %s: %v", e.URL, e.Err)
}

// Unwrap gives the reason.
func (e *UnreachableError) Unwrap() error { return e.Err }

// RatelimitError reports that the server is sluice ratelimit, or the service that it replaces.
type RatelimitError struct {
	URL   string
	API   string // what was asked for and is not there: "admin" or "check"
	Debug bool   // URL is that of its debug port, and not of its service port
}

func (e *RatelimitError) Error() string {
	port := "service port"
	if e.Debug {
		port = "debug port"
	}
	return fmt.Sprintf("%s is the %s of a service that serves Envoy as envoyproxy/ratelimit does: it has no %s API", e.URL, port, e.API)
}

// identify replaces the error about a server that is not ours by one that names it, if its pages do.
func (e *endpoint) identify(ctx context.Context, api string, err error) error {
	var p *ProblemError
	if !errors.As(err, &p) || !p.Foreign || p.Status != http.StatusNotFound {
		return err
	}
	page := func(path string) (int, string) {
		resp, raw, err := e.exchange(ctx, http.MethodGet, path, nil)
		if err != nil {
			return 0, ""
		}
		return resp.StatusCode, string(raw)
	}
	if status, text := page("/"); status == http.StatusOK && strings.Contains(text, "/rlconfig: ") {
		return &RatelimitError{URL: e.shown, API: api, Debug: true}
	}
	// The service port has two pages: one says OK, and the other wants a request in JSON.
	if status, text := page("/healthcheck"); status == http.StatusOK && text == "OK" {
		if status, _ := page("/json"); status == http.StatusBadRequest {
			return &RatelimitError{URL: e.shown, API: api}
		}
	}
	return err
}

// ProblemError is an answer that is not what was asked for.
type ProblemError struct {
	URL     string // of the listener
	Path    string // what was asked
	Status  int
	Title   string
	Detail  string
	Token   bool // a token was sent
	Foreign bool // whatever answers there is not a service of ours
	Text    string
	Faults  []adminmsg.Fault // of rules
}

func (e *ProblemError) Error() string {
	if e.Foreign {
		return fmt.Sprintf("what answers at %s is not Sluice: %s gets %d", e.URL, e.Path, e.Status)
	}
	if e.Detail != "" {
		return e.Detail
	}
	return fmt.Sprintf("%s: %d %s", e.Path, e.Status, e.Title)
}

// problem reads an answer that says what is wrong.
func (e *endpoint) problem(resp *http.Response, path string, raw []byte) error {
	p := e.foreign(resp, path)
	p.Text = strings.TrimSpace(string(raw[:min(len(raw), 512)]))
	var said struct {
		Title  string           `json:"title"`
		Detail string           `json:"detail"`
		Faults []adminmsg.Fault `json:"faults"`
	}
	if json.Unmarshal(raw, &said) == nil && said.Title != "" {
		p.Foreign, p.Title, p.Detail, p.Faults = false, said.Title, said.Detail, said.Faults
	}
	return p
}

// foreign is the answer of somebody else.
func (e *endpoint) foreign(resp *http.Response, path string) *ProblemError {
	path, _, _ = strings.Cut(path, "?")
	return &ProblemError{URL: e.shown, Path: path, Status: resp.StatusCode, Token: e.token != "", Foreign: true}
}
