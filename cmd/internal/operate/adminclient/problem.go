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

// RatelimitError reports that the server is sluice ratelimit, or the service that it replaces, at its debug port.
type RatelimitError struct{ URL string }

func (e *RatelimitError) Error() string {
	return fmt.Sprintf("%s is the debug port of a service that serves Envoy as envoyproxy/ratelimit does: it has no admin API", e.URL)
}

// identify replaces the error about a server that is not ours by one that names it, if its page of debug paths does.
func (e *endpoint) identify(ctx context.Context, err error) error {
	var p *ProblemError
	if !errors.As(err, &p) || !p.Foreign || p.Status != http.StatusNotFound {
		return err
	}
	resp, raw, other := e.exchange(ctx, http.MethodGet, "/", nil)
	if other != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(raw), "/rlconfig: ") {
		return err
	}
	return &RatelimitError{URL: e.shown}
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
