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

// ACME is how certificates are had from an authority (RFC 8555), and renewed. Who uses it accepts the authority's terms.
//
// The authority asks whether a domain is ours on the listener itself, on port 443 as clients see it (TLS-ALPN-01), and on
// HTTP if there is such a listener, on port 80 (HTTP-01).
type ACME struct {
	Domains   []string
	Email     string // where the authority writes to; may be empty
	Directory string // URL; default Let's Encrypt's
	CA        string // who signs the directory's own certificate, PEM; default: those that the system trusts
	Cache     string // directory of the account's key, certificates and their keys; only its owner may read it
	HTTP      string // host:port of a listener that answers the authority, and sends all others to https; empty: none

	dry bool // nothing is created
}

// acmeManager has the certificates of an authority.
//
// Clients never wait for one, nor can they have one asked for: that is done in the background, for the domains that were
// configured. Until then there is none.
type acmeManager struct {
	cfg     ACME
	manager *autocert.Manager
	client  *stoppable
	ready   map[string]*atomic.Bool // domains that have one
}

func newACME(cfg ACME) (*acmeManager, error) {
	if len(cfg.Domains) == 0 {
		return nil, errors.New("acme: there are no domains: write those that certificates are for")
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

// ownDirectory makes a directory for keys, unless dry is set, and refuses one that others may read.
func ownDirectory(path string, dry bool) error {
	if path == "" {
		return errors.New("acme: there is no directory for keys and certificates: set cache")
	}
	create := func() error { return plainfile.Mkdir(path, 0o700) }
	if dry {
		create = func() error { return plainfile.CheckMkdir(path) }
	}
	if err := create(); err != nil {
		return fmt.Errorf("acme: cache: %w", err)
	}
	info, err := os.Stat(path)
	if dry && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("acme: cache: %w", err)
	}
	if readable := info.Mode().Perm() & 0o077; readable != 0 && runtime.GOOS != "windows" {
		return fmt.Errorf("acme: cache: others may read %s (mode %v), and keys are in it: chmod 700 it", path, fs.FileMode(info.Mode().Perm()))
	}
	return nil
}

// directoryClient speaks to the authority.
func directoryClient(ca string) (*stoppable, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if ca != "" {
		roots, err := pemfile.Pool(ca)
		if err != nil {
			return nil, fmt.Errorf("acme: ca: %w", err)
		}
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	}
	return &stoppable{next: transport, stopped: make(chan struct{})}, nil
}

// stoppable ends all requests once it is stopped: the manager would go on for minutes.
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

// isChallenge tells whether it is the authority that connects (RFC 8737).
func isChallenge(hello *tls.ClientHelloInfo) bool {
	return len(hello.SupportedProtos) == 1 && hello.SupportedProtos[0] == acme.ALPNProto
}

// challenge is how the authority is answered. It has no certificate to show, and no request: nobody serves this protocol.
func (a *acmeManager) challenge() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{acme.ALPNProto},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if a.ready[hello.ServerName] == nil {
				return nil, errors.New("acme: a challenge for a domain that is none of ours")
			}
			return a.manager.GetCertificate(hello)
		},
	}
}

// certificate is that of the domain that a client asks for. Without one the client gets one from files, if there are any.
func (a *acmeManager) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
	if ready := a.ready[name]; ready == nil || !ready.Load() {
		return nil, nil
	}
	return a.manager.GetCertificate(asked(name))
}

// asked is how certificates are asked for: with keys on elliptic curves, which all clients of this century's second decade
// can use, so that there is one for each domain.
func asked(name string) *tls.ClientHelloInfo {
	return &tls.ClientHelloInfo{ServerName: name, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}
}
