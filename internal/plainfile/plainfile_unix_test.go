//go:build unix

package plainfile_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/internal/plainfile"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestRead checks that regular files are read, and that other files are rejected at once, also behind a link.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.WriteFile(at("file"), []byte("content"), 0o600))
	must(t, os.WriteFile(at("empty"), nil, 0o600))
	must(t, os.WriteFile(at("large"), make([]byte, 101), 0o600))
	must(t, os.Mkdir(at("directory"), 0o700))
	must(t, syscall.Mkfifo(at("fifo"), 0o600))
	l, err := net.Listen("unix", at("socket"))
	must(t, err)
	defer l.Close()
	must(t, os.Mkdir(at("..data"), 0o700)) // the layout of Kubernetes volumes
	must(t, os.WriteFile(at("..data/rules"), []byte("linked"), 0o600))
	must(t, os.Symlink("..data/rules", at("rules")))
	must(t, os.Symlink("fifo", at("link-to-fifo")))
	for name, want := range map[string]string{
		"file": "content", "empty": "", "rules": "linked", "large": "! too large", "directory": "! is a directory", "fifo": "! is a FIFO",
		"link-to-fifo": "! is a FIFO", "socket": "! is a socket", "/dev/null": "! is a device", "/dev/zero": "! is a device", "nothing": "! no such file",
	} {
		path := name
		if !filepath.IsAbs(name) {
			path = at(name)
		}
		began := time.Now()
		got, err := plainfile.Read(path, 100)
		fault, refused := strings.CutPrefix(want, "! ")
		switch {
		case refused && (err == nil || !strings.Contains(err.Error(), fault)):
			t.Errorf("%s: %q, %v: want an error with %q", name, got, err, fault)
		case !refused && (err != nil || string(got) != want):
			t.Errorf("%s: %q, %v: want %q", name, got, err, want)
		}
		if took := time.Since(began); took > plainfile.Timeout/2 {
			t.Errorf("%s: took %v", name, took)
		}
	}
	if _, err := plainfile.Read(at("large"), 100); !errors.Is(err, plainfile.ErrTooLarge) {
		t.Errorf("large file: error %v", err)
	}
}

// TestReadStreamEndsWithContext checks that reading a pipe without data ends with the context, with and without a
// writer.
func TestReadStreamEndsWithContext(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	must(t, syscall.Mkfifo(fifo, 0o600))
	for _, writer := range []bool{false, true} {
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := plainfile.ReadStream(ctx, fifo, 100)
			done <- err
		}()
		if writer {
			w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
			must(t, err)
			defer w.Close()
		}
		interrupted := errors.New("interrupted")
		cancel(interrupted)
		if err := <-done; !errors.Is(err, interrupted) {
			t.Errorf("with a writer %v: %v", writer, err)
		}
	}
}

func TestReadStream(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	must(t, syscall.Mkfifo(fifo, 0o600))
	for size, fits := range map[int]bool{10: true, 100: true, 101: false} {
		go func() { _ = os.WriteFile(fifo, make([]byte, size), 0) }()
		if data, err := plainfile.ReadStream(t.Context(), fifo, 100); fits != (err == nil) || fits && len(data) != size {
			t.Errorf("%d bytes: %d, %v", size, len(data), err)
		}
	}
}
