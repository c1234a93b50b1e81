package listen

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice/internal/testenv/certtest"
)

// Certificate files are polled, and invalid ones do not replace valid ones.
func TestCertificatesAreWatched(t *testing.T) {
	a := certtest.New(t)
	d := t.TempDir()
	files := TLS{Cert: filepath.Join(d, "crt"), Key: filepath.Join(d, "key")}
	install := func(cert, key []byte) {
		for name, b := range map[string][]byte{files.Cert: cert, files.Key: key} {
			if err := os.WriteFile(name, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	pairs := []certtest.Pair{a.Issue(t, "one"), a.Issue(t, "two")}
	install(pairs[0].Cert, pairs[0].Key)
	synctest.Test(t, func(t *testing.T) {
		c, err := newCertificates(files)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.watch(ctx, slog.New(slog.NewTextHandler(io.Discard, nil)))
		}()
		expect := func(name string) {
			t.Helper()
			<-time.After(certificateInterval)
			synctest.Wait()
			if got := c.live.Load().Certificates[0].Leaf.DNSNames[0]; got != name {
				t.Errorf("the certificate of %s is live, want that of %s", got, name)
			}
		}
		expect("one")
		install(pairs[1].Cert, nil)
		expect("one")
		install(pairs[1].Cert, pairs[1].Key)
		expect("two")
		install([]byte("x"), nil)
		expect("two")
		stop()
		<-done
	})
}

// A server serves for DrainDelay after health checks fail.
func TestDrainWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{DrainDelay: 5 * time.Second, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		synctest.Wait()
		if !s.ready.Load() {
			t.Error("it is not ready")
		}
		began := time.Now()
		stop()
		synctest.Wait()
		if s.ready.Load() {
			t.Error("it is ready while it goes")
		}
		if err := <-done; err != nil || time.Since(began) != 5*time.Second {
			t.Errorf("it ends after %v with %v", time.Since(began), err)
		}
	})
}
