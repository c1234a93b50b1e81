package loadgen

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// HTTP configures an HTTP target. Status 2xx counts as allowed, 429 as denied, any other as failed.
type HTTP struct {
	URL     *url.URL // URL of the first key, for host and port
	Full    Pattern  // URL by key
	TLS     *tls.Config
	Callers int
	Method  string
	Headers []Header
	Body    Pattern
}

// A Header is a header of a request.
type Header struct {
	Name  string
	Value Pattern
}

// maxBody is the maximum number of bytes read of a response. The connection of a larger one is closed.
const maxBody = 1 << 20

type httpTarget struct {
	HTTP
	transport *http.Transport
}

// NewHTTP returns an HTTP target. It returns an error if the server does not accept connections. Redirects are not followed,
// and no proxy is used.
func NewHTTP(ctx context.Context, cfg HTTP) (Target, error) {
	addr := cfg.URL.Host
	if cfg.URL.Port() == "" {
		port := "80"
		if cfg.URL.Scheme == "https" {
			port = "443"
		}
		addr = net.JoinHostPort(cfg.URL.Hostname(), port)
	}
	if err := reach(ctx, addr); err != nil {
		return nil, err
	}
	return &httpTarget{HTTP: cfg, transport: &http.Transport{
		DialContext:     (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSClientConfig: cfg.TLS, TLSHandshakeTimeout: 5 * time.Second, ForceAttemptHTTP2: true,
		MaxIdleConns: 0, MaxIdleConnsPerHost: max(1, cfg.Callers), IdleConnTimeout: time.Minute,
		DisableCompression: true, // compression only if requested with -H 'Accept-Encoding: gzip'
	}}, nil
}

func (t *httpTarget) Close() error {
	t.transport.CloseIdleConnections()
	return nil
}

func (t *httpTarget) Dial(context.Context) (Caller, error) { return &httpCaller{of: t}, nil }

type httpCaller struct {
	of   *httpTarget
	text []byte
}

func (c *httpCaller) Close() error { return nil }

func (c *httpCaller) Ask(ctx context.Context, keys []int64, answered func(Answer)) error {
	for _, key := range keys {
		req, err := c.request(ctx, key)
		if err != nil {
			return err
		}
		resp, err := c.of.transport.RoundTrip(req)
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusSwitchingProtocols { // reads from an upgraded connection do not end with ctx
			_, err = io.CopyN(io.Discard, resp.Body, maxBody)
		}
		_ = resp.Body.Close()
		if err != nil && err != io.EOF {
			return fmt.Errorf("response body: %w", err)
		}
		answered(httpAnswer(resp.StatusCode))
	}
	return nil
}

func (c *httpCaller) request(ctx context.Context, key int64) (*http.Request, error) {
	var body io.Reader
	if text := c.of.Body.Append(nil, key); len(text) > 0 { // a new slice, because the transport may still read the previous one
		body = bytes.NewReader(text)
	}
	c.text = c.of.Full.Append(c.text[:0], key)
	req, err := http.NewRequestWithContext(ctx, c.of.Method, string(c.text), body)
	if err != nil {
		return nil, err
	}
	for _, h := range c.of.Headers {
		value := h.Value.Text(key)
		if h.Name == "Host" {
			req.Host = value
		} else {
			req.Header.Add(h.Name, value)
		}
	}
	return req, nil
}

func httpAnswer(status int) Answer {
	a := Answer{Kind: Failed, Code: strconv.Itoa(status)} // small numbers do not allocate
	switch {
	case status >= 200 && status < 300:
		a.Kind = Allowed
	case status == http.StatusTooManyRequests:
		a.Kind = Denied
	}
	return a
}
