package memcachestore_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
	"github.com/sluiceproject/sluice/memcachestore"
)

// TestConfig checks that one error lists all configuration errors, each with a remedy.
func TestConfig(t *testing.T) {
	_, err := memcachestore.Open(memcachestore.Config{
		Addrs: []string{"a:1", "a:1", ":11211", ""}, KeyPrefix: "a b" + strings.Repeat("x", 200), Timeout: -1,
	})
	for _, want := range []string{
		`"a:1" is listed twice`, `":11211" has no host`, `"" has no host`, "203 bytes", "no spaces", "Timeout",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not contain %s", err, want)
		}
	}
	for _, c := range []memcachestore.Config{
		{}, {Addrs: []string{"localhost", "localhost:11212", "::1", "[::1]:11212", "/run/memcached.sock"}},
	} {
		s, err := memcachestore.Open(c)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		_ = s.Close()
	}
}

// TestUnixSocket connects through a Unix socket.
func TestUnixSocket(t *testing.T) {
	s := openStore(t, memcachestore.Config{Addrs: []string{memcachetest.StartUnix(t).Addr}})
	if err := s.Ping(ctx); err != nil {
		t.Error(err)
	}
	if d := apply(t, s, sluice.Take{Rule: newRule("r", window(5)), Key: "k", Cost: 1})[0]; d.Remaining != 4 {
		t.Errorf("%+v", d)
	}
}

// certificate writes a self-signed certificate for 127.0.0.1, and returns a pool that trusts it.
func certificate(t *testing.T) (cert, key string, trust *x509.CertPool) {
	t.Helper()
	private := sluice.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "memcached"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der := sluice.Must(x509.CreateCertificate(rand.Reader, about, about, &private.PublicKey, private))
	trust = x509.NewCertPool()
	trust.AddCert(sluice.Must(x509.ParseCertificate(der)))
	cert, key = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	for file, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: der},
		key:  {Type: "PRIVATE KEY", Bytes: sluice.Must(x509.MarshalPKCS8PrivateKey(private))},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key, trust
}

// TestTLS checks that the server's certificate is verified.
func TestTLS(t *testing.T) {
	help, err := exec.Command("memcached", "-h").Output()
	if err == nil && !strings.Contains(string(help), "--enable-ssl") && os.Getenv("CI") != "true" {
		t.Skip("this memcached was built without TLS")
	}
	cert, key, trust := certificate(t)
	server := memcachetest.Start(t, "-Z", "-o", "ssl_chain_cert="+cert+",ssl_key="+key)
	s := openStore(t, memcachestore.Config{Addrs: []string{server.Addr}, TLS: &tls.Config{RootCAs: trust}})
	take := sluice.Take{Rule: newRule("r", window(5)), Key: "k", Cost: 1}
	if d := apply(t, s, take)[0]; d.Remaining != 4 {
		t.Errorf("%+v", d)
	}
	for what, c := range map[string]*tls.Config{
		"unknown CA": {}, "another name": {RootCAs: trust, ServerName: "example.com"}, "no TLS": nil,
	} {
		s := openStore(t, memcachestore.Config{Addrs: []string{server.Addr}, TLS: c, Timeout: 5 * time.Second})
		refused(t, what, s, take)
	}
}

// TestInvalidRules resets and blocks buckets of rules that NewRule did not create.
func TestInvalidRules(t *testing.T) {
	s := openStore(t, memcachestore.Config{})
	for _, r := range []*sluice.Rule{nil, {Name: "r"}} {
		if err := s.Reset(ctx, sluice.Bucket{Rule: r, Key: "k"}); !errors.Is(err, sluice.ErrInvalid) {
			t.Errorf("reset: %v", err)
		}
		if err := s.Block(ctx, sluice.Bucket{Rule: r, Key: "k"}, time.Hour); !errors.Is(err, sluice.ErrInvalid) {
			t.Errorf("block: %v", err)
		}
	}
}
