package authn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/pemfile"
)

// KeySetURL is the URL of a JWKS and how it is fetched.
type KeySetURL struct {
	URL           string        // https, or http with a loopback address
	CA            string        // PEM file of CAs that verify the server; default: the system's
	Interval      time.Duration // between fetches; default 5 minutes
	AllowInsecure bool          // allow http; an attacker on the network path can then forge tokens
}

const (
	fetchTime        = 10 * time.Second // timeout of a fetch
	fetchFirst       = time.Second      // delay after a failure; doubled after each further one
	maxFetchInterval = time.Minute
	// A token with an unknown key ID may have been signed with a new key, so the JWKS is fetched again. fetchRest is the minimum
	// interval of such fetches, because clients could send invented key IDs all day.
	fetchRest = 10 * time.Second
	// fetchWait is the maximum time that such a token waits for the fetch.
	fetchWait = 2 * time.Second
)

// jwksCache is a JWKS from a URL. It is safe for concurrent use.
type jwksCache struct {
	url      string
	shown    string // URL in logs, without credentials
	interval time.Duration
	client   *http.Client
	live     atomic.Pointer[[]publicKey] // nil: not fetched yet
	wake     chan struct{}

	mu    sync.Mutex    // guards the fields below
	under chan struct{} // closed when the requested or running fetch is done; nil: none
	ended time.Time     // end of the last fetch
}

func newJWKSCache(cfg KeySetURL) (*jwksCache, error) {
	u, err := url.Parse(cfg.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("jwks_url: write a URL such as https://example.com/.well-known/jwks.json")
	case u.Scheme == "http" && !cfg.AllowInsecure && !isLoopback(u.Hostname()):
		return nil, errors.New("jwks_url: an attacker on the network path of http:// could forge tokens: write https://, or set allow_insecure_jwks_url: true")
	}
	// HTTP/1.1 only: with HTTP/2 the transport would open connections endlessly to a server that closes each with GOAWAY.
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: fetchTime, ResponseHeaderTimeout: fetchTime, MaxResponseHeaderBytes: 16 << 10,
		DialContext: (&net.Dialer{Timeout: fetchTime}).DialContext, IdleConnTimeout: time.Minute,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if cfg.CA != "" {
		if transport.TLSClientConfig.RootCAs, err = pemfile.Pool(cfg.CA); err != nil {
			return nil, fmt.Errorf("jwks_ca_file: %w", err)
		}
	}
	f := &jwksCache{
		url: cfg.URL, shown: u.Scheme + "://" + u.Host + u.Path, interval: cfg.Interval, wake: make(chan struct{}, 1),
		client: &http.Client{
			Transport: transport, Timeout: fetchTime,
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return errors.New("redirects are not followed: write the final URL")
			},
		},
	}
	if f.interval <= 0 {
		f.interval = 5 * time.Minute
	}
	return f, nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

func (f *jwksCache) candidateKeys(r *http.Request, id, algorithm string) ([]any, error) {
	for again := false; ; again = true {
		live := f.live.Load()
		if live != nil {
			if keys, named := candidateKeys(*live, id, algorithm); named || again {
				return keys, nil
			}
		} else if again {
			return nil, ErrUnavailable
		}
		f.refresh(r.Context())
	}
}

// refresh requests a fetch, unless one has just ended, and waits for it at most fetchWait.
func (f *jwksCache) refresh(ctx context.Context) {
	f.mu.Lock()
	if f.under == nil {
		if !f.ended.IsZero() && time.Since(f.ended) < fetchRest {
			f.mu.Unlock()
			return
		}
		f.under = make(chan struct{})
		f.ask()
	}
	done := f.under
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, fetchWait)
	defer cancel()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// ask wakes Run to fetch now.
func (f *jwksCache) ask() {
	select {
	case f.wake <- struct{}{}:
	default: // already awake
	}
}

// Reload fetches the JWKS in the background.
func (f *jwksCache) Reload(*slog.Logger) { f.ask() }

// Run fetches the JWKS periodically and on request, until ctx is done.
func (f *jwksCache) Run(ctx context.Context, log *slog.Logger) {
	defer f.client.CloseIdleConnections()
	failed := time.Duration(0)
	for {
		err := f.fetch(ctx, log)
		wait := f.interval
		if err != nil {
			failed = min(max(2*failed, fetchFirst), maxFetchInterval)
			wait = min(failed, f.interval)
			if ctx.Err() == nil {
				event := "JWKS not fetched: last valid keys stay in use"
				if f.live.Load() == nil {
					event = "JWKS not fetched: there are no keys yet, and tokens cannot be verified"
				}
				log.Error(event, "url", f.shown, "error", err)
			}
		} else {
			failed = 0
		}
		timer := time.NewTimer(wait + rand.N(wait/5+1)) // jitter, so that instances do not fetch at the same time
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-f.wake:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// fetch fetches the JWKS once and wakes the waiting requests.
func (f *jwksCache) fetch(ctx context.Context, log *slog.Logger) error {
	f.mu.Lock()
	if f.under == nil {
		f.under = make(chan struct{})
	}
	f.mu.Unlock()
	keys, err := f.get(ctx)
	if err == nil {
		if old := f.live.Swap(&keys); old == nil || !sameKeys(*old, keys) {
			log.Info("JWKS changed", "url", f.shown, "keys", len(keys))
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = time.Now()
	close(f.under)
	f.under = nil
	return err
}

func (f *jwksCache) get(ctx context.Context) ([]publicKey, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := f.client.Do(req)
	if err != nil {
		var wrapped *url.Error // contains the URL, which may contain secrets
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %s", resp.Status)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxKeySetBytes+1))
	if err != nil {
		return nil, err
	}
	return parseKeySet(b)
}

// sameKeys reports whether two JWKS have the same key IDs.
func sameKeys(a, b []publicKey) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].id != b[i].id {
			return false
		}
	}
	return true
}
