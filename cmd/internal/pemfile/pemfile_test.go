package pemfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/internal/testenv/certtest"
)

// The error for a file without a certificate names the file and how it should begin, for all functions that read it.
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

// The error for a key that does not match its certificate names both files, for all functions that read them.
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
		want := key + " does not belong to the certificate " + cert + ": write the key of the first certificate in that file"
		if name == "client" { // its errors name the setting
			want = "tls.key_file: " + want
		}
		if err := read(); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}

// Without files the TLS configuration is nil.
func TestClientOfNothing(t *testing.T) {
	if c, err := Client("", "", ""); c != nil || err != nil {
		t.Errorf("%v, %v", c, err)
	}
}
