package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/pemfile"
	"github.com/sluiceproject/sluice/internal/plainfile"
)

// TLS are the files of a listener's certificates. They are read again when they change. The zero TLS is none.
type TLS struct {
	Cert, Key string // PEM
	// Certificates are further ones. A client is shown the first that has the name it asks for and that it can use, and
	// the first of all if none has.
	Certificates []Pair
	ACME         *ACME // certificates from an authority; nil: none
	// ClientCA is who signs the certificates of clients. With it, clients without one are turned away.
	ClientCA string
	// ClientNames are names of which a client's certificate must have one. Empty: any name.
	ClientNames []string
}

// Pair is the files of a certificate and its key, PEM.
type Pair struct{ Cert, Key string }

// On reports whether there is TLS at all.
func (t *TLS) On() bool {
	return t.Cert != "" || t.Key != "" || t.ClientCA != "" || len(t.Certificates) > 0 || t.ACME != nil
}

// pairs are all certificates from files.
func (t *TLS) pairs() []Pair {
	if t.Cert == "" && t.Key == "" {
		return t.Certificates
	}
	return append([]Pair{{t.Cert, t.Key}}, t.Certificates...)
}

// certificates are those of one listener. The last that were good stay until others are.
type certificates struct {
	files     TLS
	protocols []string
	acme      *acmeManager // nil: there are only files
	live      atomic.Pointer[tls.Config]

	mu       sync.Mutex // guards the fields below
	contents plainfile.Contents
	said     string // which certificates are not valid, as it was logged last
}

// certificateInterval is how often the files are looked at, which are small.
const certificateInterval = 5 * time.Second

func newCertificates(files TLS, protocols ...string) (*certificates, error) {
	c := &certificates{files: files, protocols: protocols}
	if files.ACME != nil {
		// Servers of HTTP hang up on who negotiated another protocol. Elsewhere the authority's, which needs no certificate
		// of the client, would be a way around client_ca.
		if !slices.Contains(protocols, "http/1.1") {
			return nil, errors.New("ACME is for listeners of HTTP: set cert and key")
		}
		var err error
		if c.acme, err = newACME(*files.ACME); err != nil {
			return nil, err
		}
	}
	if _, err := c.reload(); err != nil {
		return nil, err
	}
	return c, nil
}

// secure returns how a listener speaks TLS, and has its certificates read again when they change. It is nil without TLS.
func (s *Server) secure(files TLS, protocols ...string) (*tls.Config, error) {
	if !files.On() {
		return nil, nil
	}
	c, err := newCertificates(files, protocols...)
	if err != nil {
		return nil, err
	}
	s.certificates = append(s.certificates, c)
	return c.config(), nil
}

// config asks for the live certificates once a connection.
func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: c.protocols,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if c.acme != nil && isChallenge(hello) {
				return c.acme.challenge(), nil
			}
			return c.live.Load(), nil
		},
	}
}

// watch reads the files when they change until the context ends.
func (c *certificates) watch(ctx context.Context, log *slog.Logger) {
	c.logInvalid(log)
	plainfile.Poll(ctx, certificateInterval, func() { c.log(log) })
}

// log reads the files if they changed, and says what came of it.
func (c *certificates) log(log *slog.Logger) {
	switch changed, err := c.reload(); {
	case err != nil:
		log.Error("certificates cannot be used: keeping the last good ones", "error", err)
	case changed:
		log.Info("certificates changed", "certs", len(c.files.pairs()))
	}
	c.logInvalid(log)
}

// logInvalid logs which certificates are not valid at this time, if they are others than were logged last.
func (c *certificates) logInvalid(log *slog.Logger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var texts []string
	for _, err := range c.invalid(time.Now()) {
		texts = append(texts, err.Error())
	}
	said := strings.Join(texts, "\n")
	if said == c.said {
		return
	}
	c.said = said
	for _, text := range texts {
		log.Warn("certificate not valid", "fault", text)
	}
}

// invalid returns an error for each certificate from files that clients do not accept at a time.
func (c *certificates) invalid(now time.Time) (faults []error) {
	for i, cert := range c.live.Load().Certificates {
		name := c.files.pairs()[i].Cert
		switch leaf := leaf(&cert); {
		case now.After(leaf.NotAfter):
			faults = append(faults, fmt.Errorf("%s: the certificate expired at %s, and clients do not accept it: renew it", name, leaf.NotAfter.UTC().Format(time.RFC3339)))
		case now.Before(leaf.NotBefore):
			faults = append(faults, fmt.Errorf("%s: the certificate is valid from %s on, and clients do not accept it before: check the clock of this machine, or use another certificate",
				name, leaf.NotBefore.UTC().Format(time.RFC3339)))
		}
	}
	return faults
}

// reload reads the files, and reports whether they are others than last time.
func (c *certificates) reload() (changed bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := []string{c.files.ClientCA}
	for _, p := range c.files.pairs() {
		names = append(names, p.Cert, p.Key)
	}
	read, changed, err := c.contents.Read(names, func(name string) ([]byte, error) {
		if name == "" {
			return nil, nil
		}
		return pemfile.Read(name)
	})
	if !changed || err != nil {
		return changed, err
	}
	config, err := c.build(read[0], read[1:])
	if err != nil {
		return true, err
	}
	c.live.Store(config)
	return true, nil
}

// build makes the configuration of connections. Pairs are certificates and their keys by turns.
func (c *certificates) build(ca []byte, pairs [][]byte) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: c.protocols}
	for i, p := range c.files.pairs() {
		if p.Cert == "" || p.Key == "" {
			return nil, errors.New("TLS needs both a certificate and its key: set cert and key")
		}
		pair, err := pemfile.ParsePair(p.Cert, p.Key, pairs[2*i], pairs[2*i+1])
		if err != nil {
			return nil, err
		}
		config.Certificates = append(config.Certificates, pair)
	}
	switch {
	case c.acme != nil:
		config.GetCertificate = c.acme.certificate
	case len(config.Certificates) == 0:
		return nil, errors.New("TLS needs both a certificate and its key: set cert and key")
	}
	if c.files.ClientCA != "" {
		var err error
		if config.ClientCAs, err = pemfile.ParsePool(c.files.ClientCA, ca); err != nil {
			return nil, err
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	if len(c.files.ClientNames) > 0 {
		if c.files.ClientCA == "" {
			return nil, errors.New("names of clients are believed only if somebody signs them: set client_ca")
		}
		config.VerifyConnection = c.verifyName
	}
	return config, nil
}

// verifyName turns away clients whose certificate has none of the names.
func (c *certificates) verifyName(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the client shows no certificate")
	}
	cert := state.PeerCertificates[0]
	names := slices.Clone(cert.DNSNames)
	for _, uri := range cert.URIs {
		names = append(names, uri.String())
	}
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	for _, name := range names {
		if slices.Contains(c.files.ClientNames, name) {
			return nil
		}
	}
	return fmt.Errorf("the client's certificate has none of the names that may connect, but %q", names)
}
