// Package adminclient is a client of a running service: of its admin API for operators, and of its check API.
package adminclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"
)

// Config configures a Client.
type Config struct {
	Admin   string // URL of the admin API: http://host:port, https://host:port or unix:///path
	Service string // URL of the check API, in the same forms

	TokenFile string // file with the token of the admin API; it is not sent to the check API
	CA        string // PEM file with the CA certificates that verify the service; "" means those of the system
	Cert, Key string // PEM files with the client certificate and its key
}

const (
	dialTimeout = 3 * time.Second
	callTimeout = 15 * time.Second // longer than the service's store timeout
	maxResponse = 64 << 20         // bytes
)

// Client is a client of one service. It is safe for concurrent use.
type Client struct{ admin, service endpoint }

// New returns a client. It reads the files of cfg, which may be pipes, until ctx is done, and sends no request.
func New(ctx context.Context, cfg Config) (*Client, error) {
	t, err := newTransports(ctx, &cfg)
	if err != nil {
		return nil, err
	}
	c := &Client{}
	if c.admin, err = t.endpoint(cfg.Admin); err != nil {
		return nil, fmt.Errorf("URL of the admin API: %w", err)
	}
	if c.service, err = t.endpoint(cfg.Service); err != nil {
		return nil, fmt.Errorf("URL of the service: %w", err)
	}
	c.admin.token, err = readToken(ctx, cfg.TokenFile)
	return c, err
}

// Exposed reports whether the token is sent in plain text: without TLS and not over loopback or a Unix socket.
func (c *Client) Exposed() bool { return c.admin.token != "" && c.admin.open }

// Get sends a GET request to the admin API. It decodes the response body into response, a pointer, and returns it as JSON.
func (c *Client) Get(ctx context.Context, path string, response any) (json.RawMessage, error) {
	return c.call(ctx, http.MethodGet, path, nil, response)
}

// Post sends a POST request to the admin API, and otherwise does the same as Get.
func (c *Client) Post(ctx context.Context, path string, body, response any) (json.RawMessage, error) {
	return c.call(ctx, http.MethodPost, path, body, response)
}

func (c *Client) call(ctx context.Context, method, path string, body, response any) (json.RawMessage, error) {
	resp, raw, err := c.admin.roundTrip(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		p := c.admin.problem(resp, path, raw)
		if resp.StatusCode == http.StatusNotFound && strings.HasPrefix(p.Detail, "no such path") { // of another listener
			p.Foreign, p.Sluice = true, true
		}
		return nil, c.admin.identify(ctx, "admin", p)
	}
	if err := json.Unmarshal(raw, response); err != nil || !hasFirstField(raw, response) {
		return nil, c.admin.foreign(resp, path)
	}
	return raw, nil
}

// hasFirstField reports whether a body has the first field of response, a pointer to a struct. Other servers respond to any path
// with {} or null, and json.Unmarshal accepts both.
func hasFirstField(raw []byte, response any) bool {
	t := reflect.TypeOf(response).Elem()
	for t.Kind() == reflect.Struct && t.NumField() > 0 && t.Field(0).Anonymous {
		t = t.Field(0).Type
	}
	if t.Kind() != reflect.Struct || t.NumField() == 0 {
		return true
	}
	name, _, _ := strings.Cut(t.Field(0).Tag.Get("json"), ",")
	var fields map[string]json.RawMessage
	return json.Unmarshal(raw, &fields) == nil && fields[name] != nil
}

// Check sends a check to the check API. A denial is not an error.
func (c *Client) Check(ctx context.Context, check any) (*Checked, error) {
	const path = "/v1/check"
	resp, raw, err := c.service.roundTrip(ctx, http.MethodPost, path, check)
	if err != nil {
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind == "application/problem+json" && !json.Valid(raw) || kind != "application/json" && kind != "application/problem+json" {
		p := c.service.foreign(resp, path)
		p.Text = strings.TrimSpace(string(raw[:min(len(raw), maxText)]))
		return nil, c.service.identify(ctx, "check", p)
	}
	checked := &Checked{Status: resp.StatusCode, Header: resp.Header, Raw: raw}
	var decision struct {
		Allowed *bool `json:"allowed"`
	}
	if err := json.Unmarshal(raw, &decision); err != nil || decision.Allowed == nil {
		return nil, c.service.problem(resp, path, raw)
	}
	if err := json.Unmarshal(raw, &checked.Result); err != nil {
		return nil, c.service.foreign(resp, path)
	}
	return checked, nil
}

// roundTrip sends a request and reads the whole response.
func (e *endpoint) roundTrip(ctx context.Context, method, path string, body any) (*http.Response, []byte, error) {
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

// send sends a request with a JSON body unless body is nil. The caller closes the body of the response.
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
		if at := (*url.Error)(nil); errors.As(err, &at) { // repeats the URL
			err = at.Err
		}
		return nil, &UnreachableError{URL: e.shown, Err: err}
	}
	if resp.StatusCode == http.StatusSwitchingProtocols { // because reads from an upgraded connection do not end with ctx
		_ = resp.Body.Close()
		return nil, e.foreign(resp, path)
	}
	return resp, nil
}

// read reads the body of a response, up to maxResponse.
func (e *endpoint) read(resp *http.Response) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	if err != nil {
		return nil, &UnreachableError{URL: e.shown, Err: err}
	}
	return raw, nil
}
