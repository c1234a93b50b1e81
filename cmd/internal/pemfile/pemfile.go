// Package pemfile reads certificates and keys from PEM files: the one place where the program does so. What a service reads
// is a regular file, as package plainfile reads files; commands read pipes too, with [StreamPool] and [StreamPair].
package pemfile

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"

	"github.com/sluiceproject/sluice/internal/plainfile"
)

// MaxBytes is how large a file of certificates or of a key may be. All authorities that systems trust have 250 KB.
const MaxBytes = 4 << 20

// Read reads a file of certificates or of a key, for [ParsePool] and [ParsePair].
func Read(file string) ([]byte, error) { return plainfile.Read(file, MaxBytes) }

// Pool reads the certificates of authorities.
func Pool(file string) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	return pool, AddTo(pool, file)
}

// AddTo adds the certificates of authorities to those in the pool.
func AddTo(pool *x509.CertPool, file string) error {
	pem, err := Read(file)
	if err != nil {
		return err
	}
	return add(pool, file, pem)
}

// ParsePool reads the certificates of authorities from what a file holds.
func ParsePool(file string, pem []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	return pool, add(pool, file, pem)
}

// StreamPool is [Pool] for commands: the file may be a pipe, which is read until the context ends.
func StreamPool(ctx context.Context, file string) (*x509.CertPool, error) {
	pem, err := plainfile.ReadStream(ctx, file, MaxBytes)
	if err != nil {
		return nil, err
	}
	return ParsePool(file, pem)
}

func add(pool *x509.CertPool, file string, pem []byte) error {
	if !pool.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s: there is no certificate in it: it must be PEM, which begins with -----BEGIN CERTIFICATE-----", file)
	}
	return nil
}

// Pair reads a certificate and its key.
func Pair(cert, key string) (tls.Certificate, error) {
	return pair(cert, key, Read)
}

// StreamPair is [Pair] for commands: the files may be pipes, which are read until the context ends.
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

// ParsePair reads a certificate and its key from what their files hold.
func ParsePair(cert, key string, certificate, private []byte) (tls.Certificate, error) {
	pair, err := tls.X509KeyPair(certificate, private)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s and %s: %w", cert, key, err)
	}
	return pair, nil
}

// Client is how a client speaks TLS that trusts an authority and shows a certificate, each of which may be empty. The
// certificate is read for each connection, so that it can be replaced. Errors name the setting. It is nil if all are empty.
func Client(ca, cert, key string) (*tls.Config, error) {
	if ca == "" && cert == "" && key == "" {
		return nil, nil
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		var err error
		if secure.RootCAs, err = Pool(ca); err != nil {
			return nil, fmt.Errorf("tls.ca: %w", err)
		}
	}
	if cert != "" {
		if _, err := Pair(cert, key); err != nil {
			return nil, fmt.Errorf("tls.cert: %w", err)
		}
		secure.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := Pair(cert, key)
			return &pair, err
		}
	}
	return secure, nil
}
