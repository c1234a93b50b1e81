// Package certtest creates certificates for tests.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"
)

// Authority is a certificate authority.
type Authority struct {
	PEM  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair is a certificate and its key, in PEM format.
type Pair struct{ Cert, Key []byte }

// New creates an authority with a self-signed certificate.
func New(t testing.TB) *Authority {
	t.Helper()
	template := template()
	template.Subject = pkix.Name{CommonName: "an authority"}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	a := &Authority{key: newKey(t)}
	der := sign(t, template, template, a.key, a.key)
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.PEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

// Issue creates a certificate for servers and clients with these names: DNS names, and URIs.
func (a *Authority) Issue(t testing.TB, names ...string) Pair {
	t.Helper()
	return a.issue(t, template(), names...)
}

// IssueAt creates a certificate that is valid for an hour from a time on.
func (a *Authority) IssueAt(t testing.TB, from time.Time, names ...string) Pair {
	t.Helper()
	template := template()
	template.NotBefore, template.NotAfter = from, from.Add(time.Hour)
	return a.issue(t, template, names...)
}

func (a *Authority) issue(t testing.TB, template *x509.Certificate, names ...string) Pair {
	t.Helper()
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, name := range names {
		if !strings.Contains(name, "://") {
			template.DNSNames = append(template.DNSNames, name)
			continue
		}
		u, err := url.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = append(template.URIs, u)
	}
	key := newKey(t)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: sign(t, template, a.cert, key, a.key)}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}),
	}
}

func template() *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62)) // never fails
	return &x509.Certificate{
		SerialNumber: serial, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t testing.TB, template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	return der
}
