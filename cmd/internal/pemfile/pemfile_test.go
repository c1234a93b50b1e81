package pemfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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

// Without files there is no TLS to configure.
func TestClientOfNothing(t *testing.T) {
	if c, err := Client("", "", ""); c != nil || err != nil {
		t.Errorf("%v, %v", c, err)
	}
}
