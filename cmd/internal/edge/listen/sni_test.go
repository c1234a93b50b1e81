package listen_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/edge/listen"
	"github.com/sluiceproject/sluice/internal/testenv/certtest"
)

// shown returns the first name of the certificate that a client gets for a server name, and the negotiated protocol.
func shown(t *testing.T, address, name string, protocols ...string) (certificate, protocol string) {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{
		ServerName: name, InsecureSkipVerify: true, NextProtos: protocols, //nolint:gosec // the test checks the certificate
	})
	if err != nil {
		return "refused: " + err.Error(), ""
	}
	defer conn.Close()
	state := conn.ConnectionState()
	return state.PeerCertificates[0].DNSNames[0], state.NegotiatedProtocol
}

func install(t *testing.T, p listen.Pair, pair certtest.Pair) {
	t.Helper()
	for name, b := range map[string][]byte{p.Cert: pair.Cert, p.Key: pair.Key} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A client gets the certificate of the requested server name, and each certificate is reloaded when it changes.
func TestCertificatesByName(t *testing.T) {
	ca, d := certtest.New(t), t.TempDir()
	pair := func(name string) listen.Pair {
		return listen.Pair{Cert: filepath.Join(d, name+".crt"), Key: filepath.Join(d, name+".key")}
	}
	first, second, third := pair("first"), pair("second"), pair("third")
	install(t, first, ca.Issue(t, "a.example.com"))
	install(t, second, ca.Issue(t, "b.example.com", "b2.example.com"))
	install(t, third, ca.Issue(t, "*.wild.example.com"))
	r := start(t, listen.Config{HTTP: listen.HTTP{Endpoint: listen.Endpoint{Address: "127.0.0.1:0", TLS: listen.TLS{
		Cert: first.Cert, Key: first.Key, Certificates: []listen.Pair{second, third},
	}}}})
	address := r.HTTPAddr().String()
	for name, want := range map[string]string{
		"a.example.com": "a.example.com", "b.example.com": "b.example.com", "B2.Example.Com": "b.example.com",
		"x.wild.example.com": "*.wild.example.com", "x.y.wild.example.com": "a.example.com", "elsewhere.example.org": "a.example.com",
		"": "a.example.com",
	} {
		if got, protocol := shown(t, address, name, "h2", "http/1.1"); got != want || protocol != "h2" {
			t.Errorf("who asks for %q is shown %s (%s), want %s", name, got, protocol, want)
		}
	}
	if _, protocol := shown(t, address, "a.example.com", "acme-tls/1"); protocol != "" {
		t.Errorf("without ACME, its protocol is spoken: %s", protocol)
	}
	install(t, second, ca.Issue(t, "c.example.com"))
	if err := os.WriteFile(third.Cert, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Reload()
	if got, _ := shown(t, address, "c.example.com"); got != "a.example.com" || !r.logs.has("certificate reload failed") {
		t.Errorf("one of the files is bad, and %s is shown", got)
	}
	install(t, third, ca.Issue(t, "d.example.com"))
	r.Reload()
	for _, name := range []string{"a.example.com", "c.example.com", "d.example.com"} {
		if got, _ := shown(t, address, name); got != name {
			t.Errorf("after the change who asks for %s is shown %s", name, got)
		}
	}
}

// Old versions of TLS are rejected.
func TestOldTLSIsRefused(t *testing.T) {
	ca, to := certtest.New(t), files(t)
	to.ClientCA = ""
	write(t, to, ca.Issue(t, "localhost"), ca)
	r := start(t, listen.Config{HTTP: listen.HTTP{Endpoint: listen.Endpoint{Address: "127.0.0.1:0", TLS: to}}})
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.PEM)
	for version, want := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		conn, err := tls.Dial("tcp", r.HTTPAddr().String(), &tls.Config{
			RootCAs: pool, ServerName: "localhost", MinVersion: version, MaxVersion: version,
		})
		if err == nil {
			conn.Close()
		}
		if (err == nil) != want {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
	}
}
