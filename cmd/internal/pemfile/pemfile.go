// Package pemfile reads certificates and keys from PEM files. All other packages use it for that. Services read regular files
// only, with package plainfile; commands read pipes too, with [StreamPool] and [StreamPair].
package pemfile

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	"github.com/sluiceproject/sluice/internal/plainfile"
)

// MaxBytes is the maximum size of a PEM file. The CA bundle of a system has about 250 KB.
const MaxBytes = 4 << 20

// Read reads a PEM file, for [ParsePool] and [ParsePair].
func Read(file string) ([]byte, error) { return plainfile.Read(file, MaxBytes) }

// Pool reads CA certificates.
func Pool(file string) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	return pool, AddTo(pool, file)
}

// AddTo reads CA certificates and adds them to a pool.
func AddTo(pool *x509.CertPool, file string) error {
	data, err := Read(file)
	if err != nil {
		return err
	}
	return add(pool, file, data)
}

// ParsePool parses CA certificates. File is the name in errors.
func ParsePool(file string, data []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	return pool, add(pool, file, data)
}

// StreamPool is [Pool] for commands: the file may be a pipe. Reading it ends when ctx is done.
func StreamPool(ctx context.Context, file string) (*x509.CertPool, error) {
	data, err := plainfile.ReadStream(ctx, file, MaxBytes)
	if err != nil {
		return nil, err
	}
	return ParsePool(file, data)
}

func add(pool *x509.CertPool, file string, data []byte) error {
	if !pool.AppendCertsFromPEM(data) {
		return noCertificate(file)
	}
	return nil
}

func noCertificate(file string) error {
	return fmt.Errorf("%s: no certificate found: it must be a PEM file, which begins with -----BEGIN CERTIFICATE-----", file)
}

// Pair reads a certificate and its private key.
func Pair(cert, key string) (tls.Certificate, error) {
	return pair(cert, key, Read)
}

// StreamPair is [Pair] for commands: the files may be pipes. Reading them ends when ctx is done.
func StreamPair(ctx context.Context, cert, key string) (tls.Certificate, error) {
	return pair(cert, key, func(file string) ([]byte, error) { return plainfile.ReadStream(ctx, file, MaxBytes) })
}

func pair(cert, key string, read func(file string) ([]byte, error)) (tls.Certificate, error) {
	certificate, err := read(cert)
	if err != nil {
		return tls.Certificate{}, err
	}
	private, err := read(key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return ParsePair(cert, key, certificate, private)
}

// ParsePair parses a certificate and its private key. Cert and key are the names of the files in errors.
func ParsePair(cert, key string, certificate, private []byte) (tls.Certificate, error) {
	kinds := func(data []byte) (all []string) {
		for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
			if strings.HasPrefix(block.Headers["Proc-Type"], "4,ENCRYPTED") {
				block.Type = encrypted
			}
			all = append(all, block.Type)
		}
		return all
	}
	if !slices.Contains(kinds(certificate), "CERTIFICATE") {
		return tls.Certificate{}, noCertificate(cert)
	}
	switch found := kinds(private); {
	case slices.Contains(found, encrypted):
		return tls.Certificate{}, fmt.Errorf("%s is encrypted: write it without a passphrase", key)
	case !slices.ContainsFunc(found, func(kind string) bool { return strings.HasSuffix(kind, "PRIVATE KEY") }):
		return tls.Certificate{}, fmt.Errorf("%s: no private key found: it must be a PEM file, which begins with -----BEGIN PRIVATE KEY-----", key)
	}
	pair, err := tls.X509KeyPair(certificate, private)
	switch {
	case err == nil:
		return pair, nil
	case strings.Contains(err.Error(), "does not match public key"):
		return pair, fmt.Errorf("%s does not belong to the certificate %s: write the key of the first certificate in that file", key, cert)
	}
	return tls.Certificate{}, fmt.Errorf("%s and %s: invalid certificate or key: %w", cert, key, err)
}

// encrypted is the type of PEM blocks with an encrypted key.
const encrypted = "ENCRYPTED PRIVATE KEY"

// PairSetting returns the name of the setting that an error of [Pair] or [ParsePair] is about: key_file or cert_file.
func PairSetting(err error, key string) string {
	if strings.HasPrefix(err.Error(), key) {
		return "key_file"
	}
	return "cert_file"
}

// Client returns the TLS configuration of a client with a CA file and a client certificate, each of which may be empty; it is nil
// if all are. The certificate is read for each connection, so that it can be replaced. Errors name the setting.
func Client(ca, cert, key string) (*tls.Config, error) {
	if ca == "" && cert == "" && key == "" {
		return nil, nil
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		var err error
		if secure.RootCAs, err = Pool(ca); err != nil {
			return nil, fmt.Errorf("tls.ca_file: %w", err)
		}
	}
	if cert != "" {
		if _, err := Pair(cert, key); err != nil {
			return nil, fmt.Errorf("tls.%s: %w", PairSetting(err, key), err)
		}
		secure.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := Pair(cert, key)
			return &pair, err
		}
	}
	return secure, nil
}
