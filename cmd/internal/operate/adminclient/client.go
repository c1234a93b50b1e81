// Package adminclient asks a running service: its admin API as an operator, and its check API as a caller.
package adminclient

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"
)

// Config says where the service is, and who asks.
type Config struct {
	Admin   string // where operators ask: http://host:port, https://host:port or unix:///path
	Service string // where callers ask, written likewise

	TokenFile string // with the operator's token; callers need none
	CA        string // file with the authorities that sign the service's certificate, PEM; default the system's
	Cert, Key string // files with the certificate to show, PEM
}

const (
	dialTimeout = 3 * time.Second
	callTimeout = 15 * time.Second // longer than the service waits for its store
	maxAnswer   = 64 << 20
)

// Client asks one service. It is safe for concurrent use.
type Client struct{ admin, service endpoint }

// New returns a client. Nothing is sent yet. The files may be pipes: reading them ends with the context.
func New(ctx context.Context, cfg Config) (*Client, error) {
	t, err := newTransports(ctx, &cfg)
	if err != nil {
		return nil, err
	}
	c := &Client{}
	if c.admin, err = t.endpoint(cfg.Admin); err != nil {
		return nil, fmt.Errorf("the admin API's address: %w", err)
	}
	if c.service, err = t.endpoint(cfg.Service); err != nil {
		return nil, fmt.Errorf("the service's address: %w", err)
	}
	c.admin.token, err = readToken(ctx, cfg.TokenFile)
	return c, err
}

// Exposed reports whether the token would be readable on its way: it goes to another machine without TLS.
func (c *Client) Exposed() bool { return c.admin.token != "" && c.admin.open }

// Get asks the admin API. The answer is JSON, which is also put into answer, a pointer.
func (c *Client) Get(ctx context.Context, path string, answer any) (json.RawMessage, error) {
	return c.call(ctx, http.MethodGet, path, nil, answer)
}

// Post asks the admin API to do something.
func (c *Client) Post(ctx context.Context, path string, body, answer any) (json.RawMessage, error) {
	return c.call(ctx, http.MethodPost, path, body, answer)
}

func (c *Client) call(ctx context.Context, method, path string, body, answer any) (json.RawMessage, error) {
	resp, raw, err := c.admin.exchange(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, c.admin.identify(ctx, "admin", c.admin.problem(resp, path, raw))
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return nil, c.admin.foreign(resp, path)
	}
	return raw, nil
}

// Check asks as a caller does. A denial is an answer, not an error.
func (c *Client) Check(ctx context.Context, check any) (*Checked, error) {
	const path = "/v1/check"
	resp, raw, err := c.service.exchange(ctx, http.MethodPost, path, check)
	if err != nil {
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind == "application/problem+json" && !json.Valid(raw) || kind != "application/json" && kind != "application/problem+json" {
		return nil, c.service.identify(ctx, "check", c.service.foreign(resp, path))
	}
	checked := &Checked{Status: resp.StatusCode, Header: resp.Header, Raw: raw}
	var answer struct {
		Allowed *bool `json:"allowed"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil || answer.Allowed == nil {
		return nil, c.service.problem(resp, path, raw)
	}
	if err := json.Unmarshal(raw, &checked.Answer); err != nil {
		return nil, c.service.foreign(resp, path)
	}
	return checked, nil
}

// exchange sends a request and reads the whole answer.
func (e *endpoint) exchange(ctx context.Context, method, path string, body any) (*http.Response, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := e.send(ctx, method, path, body)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	raw, err := e.read(resp)
	return resp, raw, err
}

// send sends a request with a JSON body, if there is one.
func (e *endpoint) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var reader io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		reader = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, e.base+path, reader)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json, application/problem+json, text/event-stream")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if method != http.MethodGet {
		req.Header.Set("X-Sluice-Admin", "1")
	}
	if e.token != "" {
		req.Header.Set("Authorization", "Bearer "+e.token)
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return nil, &UnreachableError{URL: e.shown, Err: err}
	}
	if resp.StatusCode == http.StatusSwitchingProtocols { // after which reading would not end with ctx
		_ = resp.Body.Close()
		return nil, e.foreign(resp, path)
	}
	return resp, nil
}

// read reads an answer whole.
func (e *endpoint) read(resp *http.Response) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, &UnreachableError{URL: e.shown, Err: err}
	}
	return raw, nil
}
