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

// TLS is the TLS configuration of a listener. Its files are reloaded when they change. The zero value disables TLS.
type TLS struct {
	Cert, Key string // PEM files
	// Certificates are additional certificates. A client gets the first one that matches the requested server name and that it
	// supports, or the first of all if none matches.
	Certificates []Pair
	ACME         *ACME // certificates from a CA; nil: none
	// ClientCA is the PEM file of the CAs of client certificates. If it is set, clients without such a certificate are rejected.
	ClientCA string
	// ClientNames are the accepted names in client certificates. Empty: any name.
	ClientNames []string
}

// Pair are the PEM files of a certificate and its private key.
type Pair struct{ Cert, Key string }

// On reports whether TLS is enabled.
func (t *TLS) On() bool {
	return t.Cert != "" || t.Key != "" || t.ClientCA != "" || len(t.Certificates) > 0 || t.ACME != nil
}

// pairs returns the files of all certificates.
func (t *TLS) pairs() []Pair {
	if t.Cert == "" && t.Key == "" {
		return t.Certificates
	}
	return append([]Pair{{t.Cert, t.Key}}, t.Certificates...)
}

// certificates are the certificates of one listener. If reloading fails, the last valid ones stay in use.
type certificates struct {
	files     TLS
	protocols []string
	acme      *acmeManager // nil: only files
	live      atomic.Pointer[tls.Config]

	mu       sync.Mutex // guards the fields below
	contents plainfile.Contents
	said     string // last logged text about invalid certificates
}

// certificateInterval is the interval of checks for changed files. They are small, so reading them is cheap.
const certificateInterval = 5 * time.Second

func newCertificates(files TLS, protocols ...string) (*certificates, error) {
	c := &certificates{files: files, protocols: protocols}
	if files.ACME != nil {
		// HTTP servers close connections with another negotiated protocol. Other servers would serve clients that negotiate the
		// protocol of challenges, which needs no client certificate, and so bypass client_ca_file.
		if !slices.Contains(protocols, "http/1.1") {
			return nil, errors.New("ACME is for HTTP listeners only: set cert_file and key_file")
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

// secure returns the TLS configuration of a listener, or nil without TLS. Its certificates are reloaded while the server runs.
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

// config returns a TLS configuration that uses the current certificates for each connection.
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

// watch reloads the files when they change, until ctx is done.
func (c *certificates) watch(ctx context.Context, log *slog.Logger) {
	c.logInvalid(log)
	plainfile.Poll(ctx, certificateInterval, func() { c.log(log) })
}

// log reloads the files if they changed, and logs the result.
func (c *certificates) log(log *slog.Logger) {
	switch changed, err := c.reload(); {
	case err != nil:
		log.Error("certificate reload failed: previous certificates stay in use", "error", err)
	case changed:
		log.Info("certificates reloaded", "certificates", len(c.files.pairs()))
	}
	c.logInvalid(log)
}

// logInvalid logs the certificates that are not valid now, unless the last log line named the same.
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
		log.Warn("certificate not valid", "error", text)
	}
}

// invalid returns an error for each certificate from files that is expired or not yet valid.
func (c *certificates) invalid(now time.Time) (faults []error) {
	for i, cert := range c.live.Load().Certificates {
		name := c.files.pairs()[i].Cert
		switch leaf := leaf(&cert); {
		case now.After(leaf.NotAfter):
			faults = append(faults, fmt.Errorf("%s: the certificate expired at %s, and clients do not accept it: renew it", name, leaf.NotAfter.UTC().Format(time.RFC3339)))
		case now.Before(leaf.NotBefore):
			faults = append(faults, fmt.Errorf("%s: the certificate is valid from %s on, and clients do not accept it before: check the clock of this host, or use another certificate",
				name, leaf.NotBefore.UTC().Format(time.RFC3339)))
		}
	}
	return faults
}

// reload reads the files and returns whether they changed.
func (c *certificates) reload() (changed bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := []string{c.files.ClientCA}
	for _, p := range c.files.pairs() {
		names = append(names, p.Cert, p.Key)
	}
	next := 0 // index of the file that is read
	read, changed, err := c.contents.Read(names, func(name string) ([]byte, error) {
		next++
		if name == "" {
			return nil, nil
		}
		data, err := pemfile.Read(name)
		if err != nil {
			err = fmt.Errorf("%s: %w", c.setting(next-1), err)
		}
		return data, err
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

// setting returns the name of the setting with the file of an index in reload.
func (c *certificates) setting(index int) string {
	if index == 0 {
		return "tls.client_ca_file"
	}
	return c.pairSetting((index-1)/2, []string{"cert_file", "key_file"}[(index-1)%2])
}

// pairSetting returns the name of a setting of a pair.
func (c *certificates) pairSetting(pair int, name string) string {
	if pair == 0 && c.files.Cert != "" {
		return "tls." + name
	}
	return "certificates." + name
}

// build returns the TLS configuration of connections. Pairs contains certificates and their keys alternately.
func (c *certificates) build(ca []byte, pairs [][]byte) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: c.protocols}
	for i, p := range c.files.pairs() {
		if p.Cert == "" || p.Key == "" {
			return nil, errors.New("TLS needs both a certificate and its key: set cert_file and key_file")
		}
		pair, err := pemfile.ParsePair(p.Cert, p.Key, pairs[2*i], pairs[2*i+1])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.pairSetting(i, pemfile.PairSetting(err, p.Key)), err)
		}
		config.Certificates = append(config.Certificates, pair)
	}
	switch {
	case c.acme != nil:
		config.GetCertificate = c.acme.certificate
	case len(config.Certificates) == 0:
		return nil, errors.New("TLS needs both a certificate and its key: set cert_file and key_file")
	}
	if c.files.ClientCA != "" {
		var err error
		if config.ClientCAs, err = pemfile.ParsePool(c.files.ClientCA, ca); err != nil {
			return nil, fmt.Errorf("tls.client_ca_file: %w", err)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	if len(c.files.ClientNames) > 0 {
		if c.files.ClientCA == "" {
			return nil, errors.New("client names are trusted only in verified certificates: set client_ca_file")
		}
		config.VerifyConnection = c.verifyName
	}
	return config, nil
}

// verifyName returns an error for clients whose certificate has none of ClientNames.
func (c *certificates) verifyName(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("no client certificate")
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
	return fmt.Errorf("the names in the client certificate are not accepted: %q", names)
}
