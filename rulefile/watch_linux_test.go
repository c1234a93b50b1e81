package rulefile_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/rulefile"
)

// unprivileged reports whether this process is not root, because root can read files of any mode. As root it runs the
// test again in a process of another user and returns false.
func unprivileged(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		return true
	}
	// Not by the binary's path, which may be in a directory that only root can enter.
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run", "^"+t.Name()+"$")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "TMPDIR=/tmp")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("as another user: %v\n%s", err, out)
	}
	return false
}

func TestReloadWithoutPermission(t *testing.T) {
	if !unprivileged(t) {
		return
	}
	dir := t.TempDir()
	putFile(t, dir+"/a.yaml", ruleText("1"))
	reported := 0
	w, err := rulefile.NewWatcher(rulefile.WatchConfig{
		Paths: []string{dir}, Debounce: time.Millisecond, OnError: func(error) { reported++ },
	})
	noError(t, err)
	denied := func(err error) bool { return err != nil && strings.Contains(err.Error(), "permission denied") }
	live := w.Current()
	noError(t, os.Chmod(dir+"/a.yaml", 0))
	for range 2 {
		if err := w.Reload(); !denied(err) {
			t.Errorf("got %v, want that permission is denied", err)
		}
	}
	if w.Current() != live || reported != 1 || !denied(w.Status().LastError) {
		t.Errorf("reported %d times; status %+v", reported, w.Status())
	}
	noError(t, os.Chmod(dir+"/a.yaml", 0o644))
	if err := w.Reload(); err != nil {
		t.Error(err)
	}
	if err := w.Status().LastError; err != nil {
		t.Errorf("the status still has %v", err)
	}
}
