//go:build unix

package rulefile

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// SIGHUP makes the watcher check the files, even without a file event and long before the next poll.
func TestWatchHangup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("rules: [{name: a, limit: 1/s}]")
	loaded := make(chan *LoadResult, 1)
	w, err := NewWatcher(WatchConfig{
		Paths: []string{file}, PollInterval: time.Hour, Debounce: time.Millisecond, ReloadOnSIGHUP: true, OnReload: func(l *LoadResult) { loaded <- l },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	looked, ended := make(chan bool, 8), make(chan bool)
	go func() {
		defer close(ended)
		signalled(w, func() {
			w.loop(ctx, nil, func() { looked <- true })
		})
	}()
	<-looked // at the start, when nothing has changed
	write("rules: [{name: b, limit: 1/s}]")
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if l := <-loaded; l.Set.Config().Rules[0].Name != "b" {
		t.Errorf("rule %s is live", l.Set.Config().Rules[0].Name)
	}
	cancel()
	<-ended
}
