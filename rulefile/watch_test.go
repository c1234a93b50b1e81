package rulefile_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/rulefile"
)

// The tests here use real file events: polling is once an hour.

// settle is longer than a busy machine delays a test between two system calls.
const settle = 100 * time.Millisecond

// patience is the maximum time to wait for an event that should come in milliseconds.
const patience = 30 * time.Second

// watching is a running watcher.
type watching struct {
	*rulefile.Watcher
	t     *testing.T
	loads chan string // descriptions of the first rule
	errs  chan error
}

func watch(t *testing.T, paths ...string) *watching {
	t.Helper()
	w := &watching{t: t, loads: make(chan string, 1000), errs: make(chan error, 1000)}
	var err error
	w.Watcher, err = rulefile.NewWatcher(rulefile.WatchConfig{
		Paths: paths, PollInterval: time.Hour, Debounce: settle,
		OnReload: func(l *rulefile.LoadResult) { w.loads <- described(l) },
		OnError:  func(err error) { w.errs <- err },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	w.until("it hears of changes", func() bool { return w.Status().FileEvents })
	return w
}

func described(l *rulefile.LoadResult) string {
	if all := l.Set.Config().Rules; len(all) > 0 {
		return all[0].Description
	}
	return "without rules"
}

// until waits for a condition without a channel.
func (w *watching) until(what string, true func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); !true(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("waited in vain until %s; status %+v", what, w.Status())
		}
	}
}

func (w *watching) wantLoad(want string) {
	w.t.Helper()
	select {
	case got := <-w.loads:
		if got != want {
			w.t.Fatalf("loaded version %q, want %q", got, want)
		}
		if live := described(w.Current()); live != want {
			w.t.Errorf("version %q is live after %q was loaded", live, want)
		}
	case err := <-w.errs:
		w.t.Fatalf("got the error %v, want version %q", err, want)
	case <-time.After(patience):
		w.t.Fatalf("version %q was not loaded; status %+v", want, w.Status())
	}
}

func (w *watching) wantError(part string) {
	w.t.Helper()
	before := w.Set()
	select {
	case got := <-w.loads:
		w.t.Fatalf("loaded version %q, want an error", got)
	case err := <-w.errs:
		if !strings.Contains(err.Error(), part) {
			w.t.Errorf("got the error %v, want one with %q", err, part)
		}
		if w.Set() != before || w.Status().LastError == nil {
			w.t.Error("an invalid set has changed the live set, or was not reported")
		}
	case <-time.After(patience):
		w.t.Fatalf("no error was reported; status %+v", w.Status())
	}
}

func ruleText(version string) string {
	return fmt.Sprintf("rules:\n  - name: first\n    description: %s\n    limit: 10/s\n", version)
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func putFile(t *testing.T, file, content string) {
	t.Helper()
	noError(t, os.WriteFile(file, []byte(content), 0o600))
}

// eachWay runs a test of a directory with a file a.yaml twice: with the directory and with the file as path.
func eachWay(t *testing.T, f func(t *testing.T, dir string, paths ...string)) {
	for _, way := range []string{".", "a.yaml"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			f(t, dir, filepath.Join(dir, way))
		})
	}
}

func TestWatchWrites(t *testing.T) {
	eachWay(t, func(t *testing.T, dir string, paths ...string) {
		putFile(t, dir+"/a.yaml", ruleText("1"))
		w := watch(t, paths...)
		for _, version := range []string{"2", "3", "4"} {
			putFile(t, dir+"/a.yaml", ruleText(version))
			w.wantLoad(version)
		}
	})
}

// Some editors write another file and rename it; some first rename the old one.
func TestWatchEditors(t *testing.T) {
	eachWay(t, func(t *testing.T, dir string, paths ...string) {
		file := dir + "/a.yaml"
		putFile(t, file, ruleText("1"))
		w := watch(t, paths...)
		for _, version := range []string{"2", "3"} {
			putFile(t, dir+"/.a.yaml.swp", ruleText(version))
			noError(t, os.Rename(dir+"/.a.yaml.swp", file))
			w.wantLoad(version)
		}
		for _, version := range []string{"4", "5"} {
			noError(t, os.Rename(file, file+"~"))
			putFile(t, file, ruleText(version))
			w.wantLoad(version)
		}
	})
}

// project updates a volume of a config map like a kubelet.
func project(t *testing.T, dir, version string) {
	t.Helper()
	data := "..2026_" + version
	noError(t, os.Mkdir(filepath.Join(dir, data), 0o700))
	putFile(t, filepath.Join(dir, data, "a.yaml"), ruleText(version))
	old, err := os.Readlink(dir + "/..data")
	noError(t, os.Symlink(data, dir+"/..data_tmp"))
	noError(t, os.Rename(dir+"/..data_tmp", dir+"/..data"))
	if err != nil {
		noError(t, os.Symlink("..data/a.yaml", dir+"/a.yaml"))
		return
	}
	noError(t, os.RemoveAll(filepath.Join(dir, old)))
}

func TestWatchConfigMaps(t *testing.T) {
	eachWay(t, func(t *testing.T, dir string, paths ...string) {
		project(t, dir, "1")
		w := watch(t, paths...)
		for _, version := range []string{"2", "3", "4"} {
			project(t, dir, version)
			w.wantLoad(version)
		}
	})
}

// A path may contain a link that switches releases.
func TestWatchLinks(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, version := range []string{"1", "2", "3"} {
		noError(t, os.MkdirAll(root+"/releases/"+version+"/rules", 0o700))
		putFile(t, root+"/releases/"+version+"/rules/a.yaml", ruleText(version))
	}
	noError(t, os.Symlink("releases/1", root+"/current"))
	w := watch(t, root+"/current/rules")
	for _, version := range []string{"2", "3"} {
		noError(t, os.Symlink("releases/"+version, root+"/next"))
		noError(t, os.Rename(root+"/next", root+"/current"))
		w.wantLoad(version)
	}
	putFile(t, root+"/releases/3/rules/a.yaml", ruleText("3b"))
	w.wantLoad("3b")
	putFile(t, root+"/linked.yaml", ruleText("0"))
	noError(t, os.Symlink("../../../linked.yaml", root+"/releases/3/rules/0.yaml"))
	w.wantError("first") // the rule is there twice
	noError(t, os.Remove(root+"/releases/3/rules/a.yaml"))
	w.wantLoad("0")
	putFile(t, root+"/linked.yaml", ruleText("00"))
	w.wantLoad("00")
}

func TestWatchFilesThatComeAndGo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	putFile(t, dir+"/b.yaml", ruleText("b"))
	w := watch(t, dir)
	putFile(t, dir+"/a.yaml", strings.Replace(ruleText("a"), "first", "zeroth", 1))
	w.wantLoad("a")
	noError(t, os.Remove(dir+"/a.yaml"))
	w.wantLoad("b")
	noError(t, os.Remove(dir+"/b.yaml"))
	w.wantError("no rule files")
	putFile(t, dir+"/c.yaml", ruleText("c"))
	w.wantLoad("c")
}

func TestWatchDirectoryDeletedAndMadeAgain(t *testing.T) {
	eachWay(t, func(t *testing.T, root string, _ ...string) {
		for _, deep := range []string{"rules", "etc/sluice/rules"} {
			dir := filepath.Join(root, deep)
			noError(t, os.MkdirAll(dir, 0o700))
			putFile(t, dir+"/a.yaml", ruleText("1"))
			path := dir
			if strings.HasSuffix(t.Name(), "a.yaml") {
				path += "/a.yaml"
			}
			w := watch(t, path)
			for _, version := range []string{"2", "3"} {
				noError(t, os.RemoveAll(filepath.Join(root, strings.Split(deep, "/")[0])))
				w.wantError("no such file")
				noError(t, os.MkdirAll(dir, 0o700))
				putFile(t, dir+"/a.yaml", ruleText(version))
				w.wantLoad(version)
			}
		}
	})
}

// Another directory may replace a watched one.
func TestWatchDirectoryReplaced(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, version := range []string{"1", "2"} {
		noError(t, os.Mkdir(root+"/"+version, 0o700))
		putFile(t, root+"/"+version+"/a.yaml", ruleText(version))
	}
	noError(t, os.Rename(root+"/1", root+"/rules"))
	w := watch(t, root+"/rules")
	noError(t, os.Rename(root+"/rules", root+"/old"))
	noError(t, os.Rename(root+"/2", root+"/rules"))
	w.wantLoad("2")
	putFile(t, root+"/rules/a.yaml", ruleText("3"))
	w.wantLoad("3")
}

func TestWatchBadThenFixed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	putFile(t, dir+"/a.yaml", ruleText("1"))
	w := watch(t, dir)
	for _, version := range []string{"2", "3"} {
		putFile(t, dir+"/a.yaml", strings.Replace(ruleText(version), "10/s", "plenty", 1))
		w.wantError("plenty")
		putFile(t, dir+"/a.yaml", ruleText(version))
		w.wantLoad(version)
		if err := w.Status().LastError; err != nil {
			t.Errorf("the status still has %v", err)
		}
	}
}

func TestWatchStorm(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	putFile(t, dir+"/a.yaml", ruleText("1"))
	w := watch(t, dir)
	began := time.Now()
	for i := range 100 {
		putFile(t, dir+"/a.yaml", ruleText(fmt.Sprint("storm-", i)))
	}
	took := time.Since(began)
	w.until("the last is live", func() bool { return described(w.Current()) == "storm-99" })
	if most := 1 + int(took/settle); w.Status().Reloads > most {
		t.Errorf("100 writes in %v were loaded %d times, want %d at most", took, w.Status().Reloads, most)
	}
}

func TestWatchLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	putFile(t, dir+"/a.yaml", ruleText("1"))
	w, err := rulefile.NewWatcher(rulefile.WatchConfig{Paths: []string{dir}, Debounce: time.Millisecond})
	noError(t, err)
	count := func() int {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return strings.Count(string(stacks), "created by github.com/fsnotify/") +
			strings.Count(string(stacks), "created by github.com/sluiceproject/sluice/rulefile.(")
	}
	before := count()
	for range 10 {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		for deadline := time.Now().Add(patience); !w.Status().FileEvents; <-time.After(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("no file event arrived")
			}
		}
		if count() == before {
			t.Error("the goroutines of Run are not seen")
		}
		stop()
		noError(t, <-ended)
		if w.Status().FileEvents {
			t.Error("there are events after the end of Run")
		}
	}
	// A goroutine still exists for a moment after its last statement.
	for deadline := time.Now().Add(patience); count() > before; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines before, %d after", before, count())
		}
	}
}

func TestReloadWithoutRun(t *testing.T) {
	dir := t.TempDir()
	putFile(t, dir+"/a.yaml", ruleText("1"))
	var told []string
	w, err := rulefile.NewWatcher(rulefile.WatchConfig{
		Paths: []string{dir}, Debounce: time.Millisecond,
		OnReload:    func(l *rulefile.LoadResult) { told = append(told, described(l)) },
		OnError:     func(error) { told = append(told, "error") },
		OnRecovered: func(l *rulefile.LoadResult) { told = append(told, "recovered "+described(l)) },
	})
	noError(t, err)
	noError(t, w.Reload())
	putFile(t, dir+"/a.yaml", ruleText("2"))
	noError(t, w.Reload())
	noError(t, w.Reload())
	putFile(t, dir+"/a.yaml", "rules: [")
	for range 2 {
		if w.Reload() == nil {
			t.Error("a broken file was loaded")
		}
	}
	putFile(t, dir+"/a.yaml", ruleText("2"))
	for range 2 {
		noError(t, w.Reload())
	}
	if got := fmt.Sprint(told); got != "[2 error recovered 2]" {
		t.Errorf("the callbacks were %s", got)
	}
	if s := w.Status(); s.Reloads != 1 || s.LastError != nil || s.Digest != w.Current().Digest || s.FileEvents {
		t.Errorf("status %+v", s)
	}
}
