package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"

	"github.com/sluiceproject/sluice/cmd/internal/edge/domainname"
	"github.com/sluiceproject/sluice/cmd/internal/pemfile"
	"github.com/sluiceproject/sluice/internal/plainfile"
)

// ACME obtains and renews certificates from a CA (RFC 8555). Using it accepts the CA's terms of service.
//
// The CA verifies domains on the listener itself, which it must reach on port 443 (TLS-ALPN-01), and on the listener of HTTP, if
// set, which it must reach on port 80 (HTTP-01).
type ACME struct {
	Domains   []string
	Email     string // contact address; may be empty
	Directory string // URL; default: Let's Encrypt
	CA        string // PEM file of CAs that verify the ACME server; default: the system's
	Cache     string // directory of the account key, certificates and private keys, mode 0700
	HTTP      string // host:port of a listener for HTTP-01 that redirects other requests to https; empty: none

	dry bool // check only: create nothing
}

// acmeManager manages the certificates of a CA.
//
// Certificates are requested in the background and only for configured domains. Clients never wait for one and cannot cause a
// request for one.
type acmeManager struct {
	cfg     ACME
	manager *autocert.Manager
	client  *stoppable
	ready   map[string]*atomic.Bool // domains with a certificate
}

func newACME(cfg ACME) (*acmeManager, error) {
	if len(cfg.Domains) == 0 {
		return nil, errors.New("acme: there are no domains: write the domains of the certificates")
	}
	a := &acmeManager{cfg: cfg, ready: map[string]*atomic.Bool{}}
	for _, d := range cfg.Domains {
		if err := domainname.CheckACME(d); err != nil {
			return nil, fmt.Errorf("acme: %w", err)
		}
		a.ready[d] = new(atomic.Bool)
	}
	if err := ownDirectory(cfg.Cache, cfg.dry); err != nil {
		return nil, err
	}
	var err error
	if a.client, err = directoryClient(cfg.CA); err != nil {
		return nil, err
	}
	a.manager = &autocert.Manager{
		Prompt: autocert.AcceptTOS, Cache: autocert.DirCache(cfg.Cache), HostPolicy: autocert.HostWhitelist(cfg.Domains...),
		Email: cfg.Email,
		Client: &acme.Client{
			DirectoryURL: cfg.Directory, UserAgent: "sluice", HTTPClient: &http.Client{Transport: a.client, Timeout: time.Minute},
		},
	}
	if cfg.Directory == "" {
		a.manager.Client.DirectoryURL = autocert.DefaultACMEDirectory
	}
	return a, nil
}

// ownDirectory creates a directory for keys, unless dry is set. A directory that other users can access is an error.
func ownDirectory(path string, dry bool) error {
	if path == "" {
		return errors.New("acme: there is no directory for keys and certificates: set cache_dir")
	}
	create := func() error { return plainfile.Mkdir(path, 0o700) }
	if dry {
		create = func() error { return plainfile.CheckMkdir(path) }
	}
	if err := create(); err != nil {
		return fmt.Errorf("acme.cache_dir: %w", err)
	}
	info, err := os.Stat(path)
	if dry && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("acme.cache_dir: %w", err)
	}
	if readable := info.Mode().Perm() & 0o077; readable != 0 && runtime.GOOS != "windows" {
		return fmt.Errorf("acme.cache_dir: other users can access %s (mode %v), which contains private keys: chmod 700 it", path, fs.FileMode(info.Mode().Perm()))
	}
	return nil
}

// directoryClient returns the HTTP client for the CA.
func directoryClient(ca string) (*stoppable, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if ca != "" {
		roots, err := pemfile.Pool(ca)
		if err != nil {
			return nil, fmt.Errorf("acme.ca_file: %w", err)
		}
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	}
	return &stoppable{next: transport, stopped: make(chan struct{})}, nil
}

// stoppable aborts all requests when it is stopped. Otherwise the manager would retry for minutes after shutdown.
type stoppable struct {
	next    *http.Transport
	stopped chan struct{}
}

// RoundTrip implements [http.RoundTripper].
func (s *stoppable) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	go func() {
		select {
		case <-s.stopped:
			cancel()
		case <-ctx.Done():
		}
	}()
	resp, err := s.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel()
	}
	return resp, err
}

// isChallenge reports whether a connection is a TLS-ALPN-01 challenge of the CA (RFC 8737).
func isChallenge(hello *tls.ClientHelloInfo) bool {
	return len(hello.SupportedProtos) == 1 && hello.SupportedProtos[0] == acme.ALPNProto
}

// challenge returns the TLS configuration for challenges. It needs no client certificate; no requests are served on such a
// connection, because no server speaks its protocol.
func (a *acmeManager) challenge() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{acme.ALPNProto},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if a.ready[hello.ServerName] == nil {
				return nil, errors.New("acme: challenge for an unknown domain")
			}
			return a.manager.GetCertificate(hello)
		},
	}
}

// certificate returns the certificate of the server name that a client requests, or nil: a certificate from files is then used.
func (a *acmeManager) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
	if ready := a.ready[name]; ready == nil || !ready.Load() {
		return nil, nil
	}
	return a.manager.GetCertificate(asked(name))
}

// asked returns the ClientHello for requesting a certificate of the manager. It selects ECDSA, which all clients since about 2010
// support, so that there is one certificate per domain.
func asked(name string) *tls.ClientHelloInfo {
	return &tls.ClientHelloInfo{ServerName: name, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}
}
