package serve_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/serve"
)

// A change of a token or password file is logged, also without requests: an operator who revokes a token sees whether
// that succeeded.
func TestTokenFilesAreReloaded(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{"admin tokens": filepath.Join(dir, "admin"), "refund tokens": filepath.Join(dir, "refund"), "RESP password": filepath.Join(dir, "resp")}
	write := func(text string) {
		t.Helper()
		for _, file := range files {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("the-first-token-of-ours\n")
	cfg := parse(t, "listeners: {grpc: {address: off}, http: {address: '127.0.0.1:0'}, admin: {address: '127.0.0.1:0'}, resp: {address: '127.0.0.1:0'}}\n"+
		"admin: {token_file: "+files["admin tokens"]+"}\ncheck_api: {refund_token_file: "+files["refund tokens"]+"}\nresp: {password_file: "+files["RESP password"]+"}\n")
	ctx, cancel := context.WithCancel(t.Context())
	lines := &lineLog{changed: make(chan struct{}, 1)}
	s, err := serve.New(ctx, cfg, serve.Options{Log: lines})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	write("")
	for what := range files {
		lines.await(t, "level=ERROR msg=\""+what+" invalid: last valid content stays in use\" error=")
	}
	write("the-second-token-of-ours\n")
	for what := range files {
		lines.await(t, "level=INFO msg=\""+what+" changed\" path=")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// lineLog is a log that a test waits for.
type lineLog struct {
	mu      sync.Mutex // guards text
	text    strings.Builder
	changed chan struct{} // holds a value after a write
}

func (l *lineLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.changed <- struct{}{}:
	default:
	}
	return l.text.Write(b)
}

func (l *lineLog) await(t *testing.T, want string) {
	t.Helper()
	late := time.NewTimer(20 * time.Second)
	defer late.Stop()
	for {
		l.mu.Lock()
		text := l.text.String()
		l.mu.Unlock()
		if strings.Contains(text, want) {
			return
		}
		select {
		case <-l.changed:
		case <-late.C:
			t.Fatalf("the log lacks %s:\n%s", want, text)
		}
	}
}
