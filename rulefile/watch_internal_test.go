package rulefile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
)

// The tests here run the watcher's loop on a virtual clock over real files, and decide which changes cause an event.

const (
	testEvery  = 5 * time.Second
	testSettle = 200 * time.Millisecond
)

// testRules returns a file with one rule, whose description identifies the version.
func testRules(version string) string {
	return fmt.Sprintf("rules:\n  - name: always\n    description: %s\n    limit: 10/s\n", version)
}

const brokenRules = "rules:\n  - name: always\n    limit: plenty\n"

// testLoop is a watcher whose loop runs in a synctest bubble.
type testLoop struct {
	*Watcher
	t       *testing.T
	file    string
	began   time.Time
	changed chan struct{}
	reads   atomic.Int64
	news    []string // "load VERSION" and "error", each with its time
	stop    context.CancelFunc
}

func inBubble(t *testing.T, f func(l *testLoop)) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLoop(t)
		ctx, stop := context.WithCancel(t.Context())
		l.stop = stop
		go l.loop(ctx, l.changed, func() {})
		synctest.Wait()
		f(l)
		stop() // the bubble checks that nothing is left
	})
}

func newTestLoop(t *testing.T) *testLoop {
	l := &testLoop{
		t: t, file: filepath.Join(t.TempDir(), "rules.yaml"), began: time.Now(), changed: make(chan struct{}, 1),
	}
	l.write(testRules("1"))
	w, err := NewWatcher(WatchConfig{
		Paths: []string{filepath.Dir(l.file)}, PollInterval: testEvery, Debounce: testSettle,
		OnReload: func(loaded *LoadResult) { l.note("load " + versionOf(loaded)) },
		OnError:  func(error) { l.note("error") },

		OnRecovered: func(live *LoadResult) { l.note("recover " + versionOf(live)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	w.read = func(paths ...string) ([]File, error) {
		l.reads.Add(1)
		return ReadFiles(paths...)
	}
	l.Watcher = w
	return l
}

func versionOf(loaded *LoadResult) string { return loaded.Set.Config().Rules[0].Description }

func (l *testLoop) note(what string) {
	l.news = append(l.news, fmt.Sprintf("%v %s", time.Since(l.began), what))
}

func (l *testLoop) write(content string) {
	l.t.Helper()
	if err := os.WriteFile(l.file, []byte(content), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// tell signals a change to the loop.
func (l *testLoop) tell() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
	synctest.Wait()
}

// at waits until d after the start.
func (l *testLoop) at(d time.Duration) {
	<-time.After(d - time.Since(l.began))
	synctest.Wait()
}

func (l *testLoop) wantNews(want ...string) {
	l.t.Helper()
	synctest.Wait()
	if !slices.Equal(l.news, want) {
		l.t.Errorf("after %v the news are %q, want %q", time.Since(l.began), l.news, want)
	}
	l.news = nil
}

func (l *testLoop) wantLive(want string) {
	l.t.Helper()
	if got := versionOf(l.Current()); got != want {
		l.t.Errorf("version %s is live, want %s", got, want)
	}
}

func TestWatchTakesAChangeWhenItHasSettled(t *testing.T) {
	inBubble(t, func(l *testLoop) {
		l.at(time.Second)
		l.write(testRules("2"))
		l.tell()
		l.at(time.Second + testSettle - 1)
		l.wantLive("1")
		l.at(3 * time.Second)
		l.wantNews("1.2s load 2")
		status := l.Status()
		if want := l.began.Add(time.Second + testSettle); !status.LoadedAt.Equal(want) || status.Reloads != 1 {
			t.Errorf("loaded %d times, last at %v, want once at %v", status.Reloads, status.LoadedAt, want)
		}
		if status.Digest != l.Current().Digest {
			t.Errorf("the status' digest is %s, that of the live set %s", status.Digest, l.Current().Digest)
		}
	})
}

func TestWatchFindsWhatNoEventToldOf(t *testing.T) {
	inBubble(t, func(l *testLoop) {
		l.at(time.Second)
		l.write(testRules("2"))
		l.at(time.Minute)
		l.wantNews("5.2s load 2")
	})
}

// Changes between the constructor and the loop are found at once.
func TestWatchFindsWhatChangedBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLoop(t)
		l.write(testRules("2"))
		ctx, stop := context.WithCancel(t.Context())
		go l.loop(ctx, l.changed, func() {})
		l.at(time.Second)
		l.wantNews("200ms load 2")
		stop()
	})
}

func TestWatchWaitsForTheOtherHalf(t *testing.T) {
	inBubble(t, func(l *testLoop) {
		whole := testRules("2") + "  - name: more\n    limit: 1/s\n"
		half := strings.Index(whole, "  - name: more") // the first half is a valid file too
		l.at(time.Second)
		l.write(whole[:half])
		l.tell()
		l.at(1150 * time.Millisecond)
		l.write(whole)
		l.tell()
		l.at(4 * time.Second)
		l.wantNews("1.4s load 2")
		if n := len(l.Set().Config().Rules); n != 2 {
			t.Errorf("%d rules are live, want both", n)
		}
	})
}

func TestWatchLoadsOnceAfterAStorm(t *testing.T) {
	inBubble(t, func(l *testLoop) {
		for i := range 100 {
			l.at(time.Second + time.Duration(i)*10*time.Millisecond)
			l.write(testRules(fmt.Sprint("storm-", i)))
			l.tell()
		}
		l.at(4 * time.Second)
		l.wantNews("2.2s load storm-99") // the last read that differs is at 2 s
		if n := l.reads.Load(); n > 10 {
			t.Errorf("the files were read %d times for one load", n)
		}
	})
}

// Events without a change cost little.
func TestWatchReadsNoMoreOftenThanItSettles(t *testing.T) {
	inBubble(t, func(l *testLoop) {
		for i := range 1000 {
			l.at(time.Second + time.Duration(i)*time.Millisecond)
			l.tell()
		}
		if n := l.reads.Load(); n > 7 {
			t.Errorf("the files were read %d times in a second", n)
		}
		l.wantNews()
	})
}

func TestWatchReportsABadSetOnce(t *testing.T) {
	inBubble(t, func(l *testLoop) {
		l.at(time.Second)
		l.write(brokenRules)
		l.tell()
		l.at(time.Hour)
		l.wantNews("1.2s error")
		l.wantLive("1")
		status := l.Status()
		if want := l.began.Add(time.Second + testSettle); status.LastError == nil || !status.FailingSince.Equal(want) {
			t.Errorf("status has the error %v since %v, want one since %v", status.LastError, status.FailingSince, want)
		}
		if err := l.Reload(); err == nil || err.Error() != status.LastError.Error() {
			t.Errorf("Reload returned %v, want %v", err, status.LastError)
		}

		l.write(brokenRules + "# still\n")
		l.at(2 * time.Hour)
		l.wantNews("1h0m5.2s error")
		if got := l.Status().FailingSince; !got.Equal(status.FailingSince) {
			t.Errorf("bad since %v, want %v: it was not good in between", got, status.FailingSince)
		}

		l.write(testRules("2"))
		l.at(3 * time.Hour)
		l.wantNews("2h0m5.2s load 2")
		if status := l.Status(); status.LastError != nil || !status.FailingSince.IsZero() {
			t.Errorf("after it was fixed the status has %v since %v", status.LastError, status.FailingSince)
		}
	})
}

func TestWatchBackToWhatIsLive(t *testing.T) {
	inBubble(t, func(l *testLoop) {
		live := l.Current()
		for i := range 2 {
			from := time.Duration(i) * time.Minute
			l.at(from + time.Second)
			l.write(brokenRules)
			l.tell()
			l.at(from + 10*time.Second)
			l.wantNews(fmt.Sprint(from+1200*time.Millisecond, " error")) // the second time too: it was valid in between
			l.write(testRules("1"))
			l.tell()
			l.at(from + 20*time.Second)
			l.wantNews(fmt.Sprint(from+10200*time.Millisecond, " recover 1"))
			if err := l.Status().LastError; err != nil || l.Current() != live || l.Status().Reloads != 0 {
				t.Errorf("back at the live files: error %v, %d reloads", err, l.Status().Reloads)
			}
		}
	})
}

func TestWatchDirectoryGoneForAMoment(t *testing.T) {
	inBubble(t, func(l *testLoop) {
		dir := filepath.Dir(l.file)
		l.at(time.Second)
		if err := os.Rename(dir, dir+".old"); err != nil {
			t.Fatal(err)
		}
		l.tell()
		l.at(time.Second + testSettle/2)
		if err := os.Rename(dir+".old", dir); err != nil {
			t.Fatal(err)
		}
		l.tell()
		l.at(time.Minute)
		l.wantNews()
	})
}

func TestWatchKeepsTheSetWhenFilesAreGone(t *testing.T) {
	inBubble(t, func(l *testLoop) {
		dir := filepath.Dir(l.file)
		l.at(time.Second)
		if err := os.Remove(l.file); err != nil {
			t.Fatal(err)
		}
		l.tell()
		l.at(time.Minute)
		l.wantNews("1.2s error")
		if err := l.Status().LastError; err == nil || !strings.Contains(err.Error(), "no rule files") {
			t.Errorf("an empty directory is the error %v", err)
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		l.at(2 * time.Minute)
		l.wantNews("1m5.2s error")
		l.wantLive("1")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		l.write(testRules("2"))
		l.at(3 * time.Minute)
		l.wantNews("2m5.2s load 2")
	})
}

func TestReloadWaitsUntilFilesHaveSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLoop(t)
		if err := l.Reload(); err != nil || time.Since(l.began) != 0 {
			t.Errorf("nothing changed: %v after %v, want a result at once", err, time.Since(l.began))
		}
		l.write(testRules("write-0"))
		read := l.read
		l.read = func(paths ...string) ([]File, error) {
			sources, err := read(paths...)
			if n := l.reads.Load(); n <= 5 {
				l.write(testRules(fmt.Sprint("write-", n)))
			}
			return sources, err
		}
		if err := l.Reload(); err != nil {
			t.Error(err)
		}
		l.wantNews("1s load write-5")
	})
}

func TestReloadGivesUpOnFilesThatNeverSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLoop(t)
		read := l.read
		l.read = func(paths ...string) ([]File, error) {
			l.write(testRules(fmt.Sprint("write-", l.reads.Load())))
			return read(paths...)
		}
		if err := l.Reload(); !errors.Is(err, errUnsettled) {
			t.Errorf("got %v, want %v", err, errUnsettled)
		}
		if took := time.Since(l.began); took != 2*time.Second {
			t.Errorf("gave up after %v, want 2s", took)
		}
		l.wantNews()
		l.wantLive("1")
	})
}

// However many callers check a change, it is loaded once, and all get the result.
func TestReloadsAtOnce(t *testing.T) {
	inBubble(t, func(l *testLoop) {
		for _, step := range []struct {
			content, news string
			good          bool
		}{{testRules("2"), "load 2", true}, {brokenRules, "error", false}, {testRules("3"), "load 3", true}} {
			l.write(step.content)
			const callers = 8
			answers := make(chan error, callers)
			for range callers {
				go func() { answers <- l.Reload() }()
			}
			l.tell()
			for range callers {
				if err := <-answers; (err == nil) != step.good {
					t.Errorf("%s: a caller got %v", step.news, err)
				}
			}
			l.wantNews(fmt.Sprint(time.Since(l.began), " ", step.news))
		}
	})
}

// Callbacks hold no lock: they may query the watcher, and even reload. Their own events follow when they are done, in
// order.
func TestReloadFromOnLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLoop(t)
		l.cfg.OnReload = func(loaded *LoadResult) {
			l.note("begin " + versionOf(loaded) + " of " + fmt.Sprint(l.Status().Reloads))
			if versionOf(loaded) == "2" {
				for _, next := range []string{"3", "4"} {
					l.write(testRules(next))
					if err := l.Reload(); err != nil {
						t.Error(err)
					}
					l.wantLive(next)
				}
			}
			l.note("end " + versionOf(loaded))
		}
		l.write(testRules("2"))
		if err := l.Reload(); err != nil {
			t.Error(err)
		}
		l.wantNews("200ms begin 2 of 1", "600ms end 2",
			"600ms begin 3 of 3", "600ms end 3", "600ms begin 4 of 3", "600ms end 4")
	})
}

// A callback that panics affects only its caller.
func TestReloadAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLoop(t)
		note := l.cfg.OnReload
		l.cfg.OnReload = func(*LoadResult) { panic("of the callback") }
		l.write(testRules("2"))
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_ = l.Reload()
		}()
		l.cfg.OnReload = note
		l.write(testRules("3"))
		if err := l.Reload(); err != nil {
			t.Error(err)
		}
		l.wantNews("400ms load 3")
	})
}

// Where the system has no more watches, polling finds changes.
func TestWatchWithoutEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLoop(t)
		n := newNotifier(l.cfg.Paths)
		n.open = func() (*fsnotify.Watcher, error) { return nil, syscall.EMFILE }
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- l.run(ctx, n) }()
		l.at(time.Second)
		if status := l.Status(); status.FileEvents || !errors.Is(status.FileEventsErr, syscall.EMFILE) {
			t.Errorf("status has events %v, error %v", status.FileEvents, status.FileEventsErr)
		}
		if err := l.Run(ctx); !errors.Is(err, errRunning) {
			t.Errorf("a second Run returned %v", err)
		}
		l.write(testRules("2"))
		l.at(time.Minute)
		l.wantNews("5.2s load 2")
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

func TestWatchConfigIsChecked(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte(brokenRules), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		cfg  WatchConfig
		want string
	}{
		{"no paths", WatchConfig{}, "Paths"},
		{"a negative duration", WatchConfig{Paths: []string{dir}, Debounce: -1}, "Debounce"},
		{"no such file", WatchConfig{Paths: []string{filepath.Join(dir, "none.yaml")}}, "none.yaml"},
		{"no files", WatchConfig{Paths: []string{empty}}, "no rule files"},
		{"bad rules", WatchConfig{Paths: []string{bad}}, "plenty"},
	} {
		if _, err := NewWatcher(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
	}
}
