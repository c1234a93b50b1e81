package rulefile_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/rulefile"
)

// unprivileged runs f on a thread that reads files as nobody does, if this is root, whom no mode keeps from reading.
func unprivileged(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if os.Geteuid() == 0 {
			runtime.LockOSThread() // and not unlock it: the thread ends with the goroutine
			if err := syscall.Setfsuid(65534); err != nil {
				panic(err)
			}
		}
		f()
	}()
	<-done
}

func TestReloadWithoutPermission(t *testing.T) {
	dir := t.TempDir()
	noError(t, os.Chmod(filepath.Dir(dir), 0o755))
	noError(t, os.Chmod(dir, 0o755))
	putFile(t, dir+"/a.yaml", ruleText("1"))
	reported := 0
	w, err := rulefile.NewWatcher(rulefile.WatchConfig{
		Paths: []string{dir}, Settle: time.Millisecond, OnError: func(error) { reported++ },
	})
	noError(t, err)
	denied := func(err error) bool { return err != nil && strings.Contains(err.Error(), "permission denied") }
	live := w.Current()
	noError(t, os.Chmod(dir+"/a.yaml", 0))
	unprivileged(func() {
		for range 2 {
			if err := w.Reload(); !denied(err) {
				t.Errorf("got %v, want that permission is denied", err)
			}
		}
	})
	if w.Current() != live || reported != 1 || !denied(w.Status().Err) {
		t.Errorf("reported %d times; status %+v", reported, w.Status())
	}
	noError(t, os.Chmod(dir+"/a.yaml", 0o644))
	unprivileged(func() {
		if err := w.Reload(); err != nil {
			t.Error(err)
		}
	})
	if err := w.Status().Err; err != nil {
		t.Errorf("the status still has %v", err)
	}
}
