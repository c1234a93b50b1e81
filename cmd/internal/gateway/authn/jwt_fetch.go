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

// KeySetURL is where a set of keys is fetched from.
type KeySetURL struct {
	URL           string        // https, or http on this machine
	CA            string        // who signs the server's certificate, PEM; default: those that the system trusts
	Interval      time.Duration // how often it is fetched; default 5 minutes
	AllowInsecure bool          // http is allowed: whoever is on the way can then sign tokens
}

const (
	fetchTime        = 10 * time.Second // for all of it
	fetchFirst       = time.Second      // after a failure; then twice as long each time
	maxFetchInterval = time.Minute
	// A token with a key that is not known may have been signed with a new one: the set is fetched again, but no more often
	// than this, lest somebody with invented names has us fetch all day.
	fetchRest = 10 * time.Second
	// fetchWait is how long such a token waits for it.
	fetchWait = 2 * time.Second
)

// jwksCache is a set of keys from a URL.
type jwksCache struct {
	url      string
	shown    string // in logs
	interval time.Duration
	client   *http.Client
	live     atomic.Pointer[[]publicKey] // nil: there were none yet
	wake     chan struct{}

	mu    sync.Mutex    // guards the fields below
	under chan struct{} // closed when the fetch that is wanted or under way is done; nil: none is
	ended time.Time     // when the last was
}

func newJWKSCache(cfg KeySetURL) (*jwksCache, error) {
	u, err := url.Parse(cfg.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("jwks_url: write a URL such as https://example.com/.well-known/jwks.json")
	case u.Scheme == "http" && !cfg.AllowInsecure && !isLoopback(u.Hostname()):
		return nil, errors.New("jwks_url: whoever is on the way to http:// could sign tokens: write https://, or allow it with jwks_plain: true")
	}
	// HTTP/1.1 alone: for HTTP/2 the transport makes connections without end to a server that answers each with GOAWAY.
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: fetchTime, ResponseHeaderTimeout: fetchTime, MaxResponseHeaderBytes: 16 << 10,
		DialContext: (&net.Dialer{Timeout: fetchTime}).DialContext, IdleConnTimeout: time.Minute,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if cfg.CA != "" {
		if transport.TLSClientConfig.RootCAs, err = pemfile.Pool(cfg.CA); err != nil {
			return nil, fmt.Errorf("jwks_ca: %w", err)
		}
	}
	f := &jwksCache{
		url: cfg.URL, shown: u.Scheme + "://" + u.Host + u.Path, interval: cfg.Interval, wake: make(chan struct{}, 1),
		client: &http.Client{
			Transport: transport, Timeout: fetchTime,
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return errors.New("it leads elsewhere: write the address that it leads to")
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

// refresh has the set fetched, unless it just was, and waits for it a while.
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

// ask wakes who fetches.
func (f *jwksCache) ask() {
	select {
	case f.wake <- struct{}{}:
	default: // it is awake
	}
}

// Reload has the set fetched, in the background.
func (f *jwksCache) Reload(*slog.Logger) { f.ask() }

// Run fetches the set until the context ends.
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
				log.Error("the keys of tokens cannot be fetched: keeping the last good ones", "url", f.shown, "error", err)
			}
		} else {
			failed = 0
		}
		timer := time.NewTimer(wait + rand.N(wait/5+1)) // so that not all ask at once
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

// fetch gets the set once, and tells those who wait.
func (f *jwksCache) fetch(ctx context.Context, log *slog.Logger) error {
	f.mu.Lock()
	if f.under == nil {
		f.under = make(chan struct{})
	}
	f.mu.Unlock()
	keys, err := f.get(ctx)
	if err == nil {
		if old := f.live.Swap(&keys); old == nil || !sameKeys(*old, keys) {
			log.Info("the keys of tokens changed", "url", f.shown, "keys", len(keys))
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
		var wrapped *url.Error // which names the URL, and so what may be secret in it
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers %s", resp.Status)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxKeySetBytes+1))
	if err != nil {
		return nil, err
	}
	return parseKeySet(b)
}

// sameKeys tells whether two sets have the same names.
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
