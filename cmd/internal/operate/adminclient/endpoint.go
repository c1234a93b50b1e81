package adminclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/sluiceproject/sluice/cmd/internal/pemfile"
	"github.com/sluiceproject/sluice/internal/plainfile"
)

// endpoint is a listener of a service.
type endpoint struct {
	base   string // URL to which paths are appended
	shown  string // URL for messages
	token  string
	open   bool // a remote address without TLS
	client *http.Client
}

// transports creates endpoints with the same TLS configuration.
type transports struct{ tls *tls.Config }

func newTransports(ctx context.Context, cfg *Config) (*transports, error) {
	t := &transports{tls: &tls.Config{MinVersion: tls.VersionTLS12}}
	if cfg.CA != "" {
		var err error
		if t.tls.RootCAs, err = pemfile.StreamPool(ctx, cfg.CA); err != nil {
			return nil, fmt.Errorf("CA certificates: %w", err)
		}
	}
	if (cfg.Cert == "") != (cfg.Key == "") {
		return nil, errors.New("a client certificate needs its private key: set both or neither")
	}
	if cfg.Cert != "" {
		pair, err := pemfile.StreamPair(ctx, cfg.Cert, cfg.Key)
		if err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		t.tls.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

// maxTokenFile bounds the size of the token file, in bytes.
const maxTokenFile = 4 << 20

const addressHelp = "write http://127.0.0.1:6070, https://sluice.example.com:6070 or unix:///run/sluice/admin.sock"

// endpoint parses the URL of a listener.
func (t *transports) endpoint(address string) (endpoint, error) {
	e := endpoint{shown: address}
	dialer := &net.Dialer{Timeout: dialTimeout}
	transport := &http.Transport{TLSClientConfig: t.tls, DialContext: dialer.DialContext, TLSHandshakeTimeout: dialTimeout}
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		if path == "" {
			return e, fmt.Errorf("%q has no path: %s", address, addressHelp)
		}
		e.base = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer.DialContext(ctx, "unix", path) }
	} else {
		if !strings.Contains(address, "://") {
			address = "http://" + address
		}
		u, err := url.Parse(address)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return e, fmt.Errorf("%q is not a valid URL: %s", e.shown, addressHelp)
		}
		e.base = strings.TrimRight(u.String(), "/")
		e.shown = e.base
		e.open = u.Scheme == "http" && !loopback(u.Hostname())
	}
	e.client = &http.Client{
		Transport: transport,
		// The service sends no redirects, and the token must not be sent to the target of one.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return e, nil
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// readToken returns the first token of a file, or "" if file is empty.
func readToken(ctx context.Context, file string) (string, error) {
	if file == "" {
		return "", nil
	}
	b, err := plainfile.ReadStream(ctx, file, maxTokenFile)
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	token, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n") // the service accepts any of several
	token = strings.TrimSpace(token)
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", fmt.Errorf("token file: %s must contain one word of ASCII letters, digits and punctuation", file)
	}
	return token, nil
}
