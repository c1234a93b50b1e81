package pemfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/internal/testenv/certtest"
)

// A file without a certificate says which file it is and what it should begin with, however it is read.
func TestNoCertificate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string]func() error{
		"pool":   func() error { _, err := Pool(file); return err },
		"parsed": func() error { _, err := ParsePool(file, []byte("hello")); return err },
		"stream": func() error { _, err := StreamPool(t.Context(), file); return err },
		"client": func() error { _, err := Client(file, "", ""); return err },
	} {
		err := read()
		if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "BEGIN CERTIFICATE") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A key that is not the certificate's names both files, however they are read.
func TestPairDoesNotMatch(t *testing.T) {
	ca, dir := certtest.New(t), t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certificate, private := ca.Issue(t, "a").Cert, ca.Issue(t, "b").Key
	for name, data := range map[string][]byte{cert: certificate, key: private} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, read := range map[string]func() error{
		"pair":   func() error { _, err := Pair(cert, key); return err },
		"parsed": func() error { _, err := ParsePair(cert, key, certificate, private); return err },
		"stream": func() error { _, err := StreamPair(t.Context(), cert, key); return err },
		"client": func() error { _, err := Client("", cert, key); return err },
	} {
		want := cert + " and " + key + ": tls: private key does not match public key"
		if name == "client" { // whose errors name the setting
			want = "tls.cert: " + want
		}
		if err := read(); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}

// Without files there is no TLS to configure.
func TestClientOfNothing(t *testing.T) {
	if c, err := Client("", "", ""); c != nil || err != nil {
		t.Errorf("%v, %v", c, err)
	}
}
