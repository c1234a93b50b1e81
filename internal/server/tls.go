package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// TLS are the files of a listener's certificates. They are read again when they change. The zero TLS is none.
type TLS struct {
	Cert, Key string // PEM
	// ClientCA is who signs the certificates of clients. With it, clients without one are turned away.
	ClientCA string
	// ClientNames are names of which a client's certificate must have one. Empty: any name.
	ClientNames []string
}

// On tells whether there is TLS at all.
func (t *TLS) On() bool { return t.Cert != "" || t.Key != "" || t.ClientCA != "" }

// certificates are those of one listener. The last that were good stay until others are.
type certificates struct {
	files     TLS
	protocols []string
	live      atomic.Pointer[tls.Config]

	mu   sync.Mutex // guards the fields below
	read [][]byte   // what the files held when they were read last
}

// certificatesEvery is how often the files are looked at. They are small, and replaced in ways that no notifier tells of
// everywhere.
const certificatesEvery = 5 * time.Second

func newCertificates(files TLS, protocols ...string) (*certificates, error) {
	c := &certificates{files: files, protocols: protocols}
	if _, err := c.reload(); err != nil {
		return nil, err
	}
	return c, nil
}

// config asks for the live certificates once a connection.
func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: c.protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return c.live.Load(), nil
		},
	}
}

// watch reads the files when they change until the context ends.
func (c *certificates) watch(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(certificatesEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.log(log)
		}
	}
}

// log reads the files if they changed, and says what came of it.
func (c *certificates) log(log *slog.Logger) {
	switch changed, err := c.reload(); {
	case err != nil:
		log.Error("certificates cannot be used: keeping the last good ones", "error", err)
	case changed:
		log.Info("certificates changed", "cert", c.files.Cert)
	}
}

// reload reads the files, and tells whether they are others than last time.
func (c *certificates) reload() (changed bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var faults []error
	read := make([][]byte, 3)
	for i, name := range []string{c.files.Cert, c.files.Key, c.files.ClientCA} {
		if name == "" {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			faults = append(faults, err)
			b = []byte(err.Error())
		}
		read[i] = b
	}
	if slices.EqualFunc(read, c.read, bytes.Equal) {
		return false, nil
	}
	c.read = read
	if len(faults) > 0 {
		return true, errors.Join(faults...)
	}
	config, err := c.build(read[0], read[1], read[2])
	if err != nil {
		return true, err
	}
	c.live.Store(config)
	return true, nil
}

func (c *certificates) build(cert, key, ca []byte) (*tls.Config, error) {
	if c.files.Cert == "" || c.files.Key == "" {
		return nil, errors.New("TLS needs both a certificate and its key: set cert and key")
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", c.files.Cert, c.files.Key, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: c.protocols, Certificates: []tls.Certificate{pair}}
	if c.files.ClientCA != "" {
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("%s: there is no certificate in it", c.files.ClientCA)
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
