// Package pemfile reads certificates from files, as package plainfile reads files.
package pemfile

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"

	"github.com/sluiceproject/sluice/internal/plainfile"
)

// MaxBytes is how large a file of certificates or of a key may be. All authorities that systems trust have 250 KB.
const MaxBytes = 4 << 20

// Pair reads a certificate and its key, PEM.
func Pair(cert, key string) (tls.Certificate, error) {
	certificate, err := plainfile.Read(cert, MaxBytes)
	if err != nil {
		return tls.Certificate{}, err
	}
	private, err := plainfile.Read(key, MaxBytes)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(certificate, private)
}

// Pool reads the certificates of authorities, PEM.
func Pool(file string) (*x509.CertPool, error) {
	data, err := plainfile.Read(file, MaxBytes)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, &fs.PathError{Op: "read", Path: file, Err: errors.New("there is no certificate in it: it begins with -----BEGIN CERTIFICATE-----")}
	}
	return pool, nil
}

// Client is how a client speaks TLS that trusts an authority and shows a certificate, each of which may be empty. The
// certificate is read for each connection, so that it can be replaced. It is nil if all are empty.
func Client(ca, cert, key string) (*tls.Config, error) {
	if ca == "" && cert == "" && key == "" {
		return nil, nil
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		b, err := plainfile.Read(ca, MaxBytes)
		if err != nil {
			return nil, err
		}
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("%s: there is no certificate in it", ca)
		}
	}
	if cert != "" {
		if _, err := Pair(cert, key); err != nil {
			return nil, err
		}
		secure.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := Pair(cert, key)
			return &pair, err
		}
	}
	return secure, nil
}
