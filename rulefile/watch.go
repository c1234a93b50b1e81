package rulefile

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sluiceproject/sluice/internal/panics"
	"github.com/sluiceproject/sluice/rules"
)

// Defaults of [WatchConfig].
const (
	defaultPollInterval = 5 * time.Second
	defaultDebounce     = 200 * time.Millisecond
)

// maxReads is how often [Watcher.Reload] reads files that keep changing. With the default Debounce that is two seconds.
const maxReads = 11

var (
	errRunning   = errors.New("rulefile: the watcher is running already")
	errUnsettled = errors.New("rulefile: the rule files kept changing while they were read: keeping the last good set")
)

// WatchConfig is how a [Watcher] is made. Paths is required.
type WatchConfig struct {
	// Paths are files and directories, as for [ReadFiles].
	Paths   []string
	Options Options

	// Read replaces [ReadFiles], for directories that are read in another way. It is given the paths.
	Read func(paths ...string) ([]File, error)

	// PollInterval is how often the files are read whether or not the system told of a change: it forgets to when there are
	// many, and for network file systems it never does. Default 5 s.
	PollInterval time.Duration
	// Debounce is how long the files must have stayed the same before a change counts, since they may be half written.
	// A writer that pauses for longer in the middle of a file should write another and rename it. Default 200 ms.
	Debounce time.Duration

	// ReloadOnSIGHUP has Run look at the files when the process is sent SIGHUP, as operators are used to.
	ReloadOnSIGHUP bool

	// OnReload is called with each set after the first as soon as it is live, OnError once for files that cannot be loaded,
	// and OnRecovered when such files are again those of the live set, which stays as it is.
	// They are called one after the other in the order of what happened, by Run or by Reload, which go on when they
	// return. They may call the watcher. Each may be nil.
	OnReload    func(*LoadResult)
	OnError     func(error)
	OnRecovered func(*LoadResult)
}

func (c *WatchConfig) setDefaults() {
	if c.PollInterval == 0 {
		c.PollInterval = defaultPollInterval
	}
	if c.Debounce == 0 {
		c.Debounce = defaultDebounce
	}
	if c.Read == nil {
		c.Read = ReadFiles
	}
	if c.OnReload == nil {
		c.OnReload = func(*LoadResult) {}
	}
	if c.OnError == nil {
		c.OnError = func(error) {}
	}
	if c.OnRecovered == nil {
		c.OnRecovered = func(*LoadResult) {}
	}
}

func (c *WatchConfig) validate() error {
	switch {
	case len(c.Paths) == 0:
		return errors.New("rulefile: nothing to watch: give a file or a directory in Paths")
	case c.PollInterval < 0 || c.Debounce < 0:
		return fmt.Errorf("rulefile: PollInterval is %v and Debounce %v: use positive durations, or 0 for the defaults",
			c.PollInterval, c.Debounce)
	}
	return nil
}

// Watcher keeps a rule set that is as its files say. A set that cannot be loaded never replaces one that could: the
// last good set stays live until the files are good again, which needs no restart.
//
// [Watcher.Run] notices changes. Without it the set changes on [Watcher.Reload] only.
type Watcher struct {
	cfg           WatchConfig
	live          atomic.Pointer[LoadResult]
	running       atomic.Bool
	reloadSignals chan os.Signal                        // nil unless asked for
	read          func(paths ...string) ([]File, error) // cfg.Read, but for tests

	// checking is held while the files are read and compiled, and guards the fields below. It is taken before mu.
	checking sync.Mutex
	good     fingerprint // of what is live
	bad      fingerprint // of what was refused last
	badErr   error       // why; nil: what is live is what was seen last
	seen     fingerprint // of a change that is not yet Debounce old
	seenAt   time.Time   // when it was first read; zero: there is none

	mu      sync.Mutex // guards the fields below, and is held for moments only
	status  Status
	calls   []func() // of OnReload, OnError and OnRecovered that are due
	calling bool
}

// Status is how a [Watcher] is doing.
type Status struct {
	Digest   string    // of the live set
	LoadedAt time.Time // when it went live
	Reloads  int       // how many sets have replaced another

	LastError    error     // why the live set is not what the files say; nil: it is
	FailingSince time.Time // since when it is not

	FileEvents    bool  // the system tells of changes; else they are found by reading the files every so often
	FileEventsErr error // why it does not; nil also while Run is not running
}

// NewWatcher loads the rules. It fails if that fails, and if there are no files: a program should not start without its
// rules.
func NewWatcher(c WatchConfig) (*Watcher, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	c.setDefaults()
	c.Paths = slices.Clone(c.Paths)
	w := &Watcher{cfg: c, read: contained(c.Read)}
	if c.ReloadOnSIGHUP {
		w.reloadSignals = make(chan os.Signal, 1)
	}
	sources, err := w.read(c.Paths...)
	if err != nil {
		return nil, err
	}
	if len(sources) == 0 {
		return nil, fmt.Errorf("rulefile: no rule files in %s", strings.Join(c.Paths, ", "))
	}
	loaded, err := load(c.Options, sources)
	if err != nil {
		return nil, err
	}
	w.live.Store(loaded)
	w.good = fingerprintOf(sources, nil)
	w.status.Digest, w.status.LoadedAt = loaded.Digest, time.Now()
	return w, nil
}

// contained makes an error of a panic in read, so that the last good set stays live.
func contained(read func(...string) ([]File, error)) func(...string) ([]File, error) {
	return func(paths ...string) (sources []File, err error) {
		defer panics.Recover(func(e *panics.Error) {
			sources, err = nil, panicked(e, rules.Position{File: strings.Join(paths, ", ")}, "")
		})
		return read(paths...)
	}
}

// Set is the live rule set. It is never nil and takes no lock: ask for it once a request.
func (w *Watcher) Set() *rules.Set { return w.live.Load().Set }

// Current is what is live, with the files it was read from. It must not be changed.
func (w *Watcher) Current() *LoadResult { return w.live.Load() }

// Status tells how the watcher is doing.
func (w *Watcher) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// Reload has the files looked at now, without waiting for news of them: on a SIGHUP, say. It waits until they have
// settled and returns why what they say is not live, or nil if it is.
func (w *Watcher) Reload() error {
	for n := 1; ; n++ {
		again, err := w.check()
		w.call()
		switch {
		case again == 0:
			return err
		case n == maxReads:
			return errUnsettled
		}
		<-time.After(again)
	}
}

// Run keeps the set up to date until the context ends, and then returns nil.
func (w *Watcher) Run(ctx context.Context) error {
	return w.run(ctx, newNotifier(w.cfg.Paths))
}

func (w *Watcher) run(ctx context.Context, n *notifier) error {
	if !w.running.CompareAndSwap(false, true) {
		return errRunning
	}
	defer w.running.Store(false)
	defer func() {
		n.close()
		w.mu.Lock()
		w.status.FileEvents, w.status.FileEventsErr = false, nil
		w.mu.Unlock()
	}()
	signalled(w, func() {
		w.loop(ctx, n.changed, func() {
			err := n.follow()
			w.mu.Lock()
			w.status.FileEvents, w.status.FileEventsErr = err == nil, err
			w.mu.Unlock()
		})
	})
	return nil
}

// signalled calls f while SIGHUP comes to the watcher, if that was asked for.
func signalled(w *Watcher, f func()) {
	if w.reloadSignals != nil {
		signal.Notify(w.reloadSignals, syscall.SIGHUP)
		defer signal.Stop(w.reloadSignals)
	}
	f()
}

// loop checks the files at the start, when they changed, and every so often. Before each check it calls follow, so that
// what comes after the check is told of through changed.
func (w *Watcher) loop(ctx context.Context, changed <-chan struct{}, follow func()) {
	tick := time.NewTicker(w.cfg.PollInterval)
	defer tick.Stop()
	due := time.NewTimer(0)
	defer due.Stop()
	armed := true // due will fire, and what it finds includes all that changes until then
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			// A change is looked at when it is heard of, but a thousand of them are not looked at a thousand times.
			if !armed {
				due.Reset(max(0, w.cfg.Debounce-time.Since(last)))
				armed = true
			}
			continue
		case <-tick.C:
		case <-due.C:
		case <-w.reloadSignals:
		}
		follow()
		again, _ := w.check() // OnError has the error
		w.call()
		last = time.Now()
		if armed = again > 0; armed {
			due.Reset(again)
		} else {
			due.Stop()
		}
	}
}

// check reads the files once and makes of them what can be made. If they may be half written it returns in how long to
// check again. Else it returns 0, and why what they say is not live.
//
// A failure to read them is treated like a content: it too must last before it counts, because directories are swapped
// and files are replaced in more than one step.
func (w *Watcher) check() (again time.Duration, err error) {
	w.checking.Lock()
	defer w.checking.Unlock()
	began := time.Now()
	sources, err := w.read(w.cfg.Paths...)
	if err == nil && len(sources) == 0 {
		err = fmt.Errorf("rulefile: no rule files in %s: keeping the last good set", strings.Join(w.cfg.Paths, ", "))
	}
	seen := fingerprintOf(sources, err)
	switch {
	case seen == w.good:
		w.seenAt, w.badErr = time.Time{}, nil
		w.clearError()
		return 0, nil
	case w.badErr != nil && seen == w.bad: // which has been reported
		w.seenAt = time.Time{}
		return 0, w.badErr
	case w.seenAt.IsZero() || seen != w.seen:
		w.seen, w.seenAt = seen, time.Now()
		return w.cfg.Debounce, nil
	}
	if early := w.cfg.Debounce - began.Sub(w.seenAt); early > 0 {
		return early, nil
	}
	w.seenAt = time.Time{}
	var loaded *LoadResult
	if err == nil {
		loaded, err = load(w.cfg.Options, sources)
	}
	if err != nil {
		w.bad, w.badErr = seen, err
		w.reject(err)
		return 0, err
	}
	w.good, w.badErr = seen, nil
	w.adopt(loaded)
	return 0, nil
}

func (w *Watcher) adopt(loaded *LoadResult) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live.Store(loaded)
	w.status.Digest, w.status.LoadedAt = loaded.Digest, time.Now()
	w.status.Reloads++
	w.status.LastError, w.status.FailingSince = nil, time.Time{}
	w.calls = append(w.calls, func() { w.cfg.OnReload(loaded) })
}

func (w *Watcher) reject(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.status.LastError == nil {
		w.status.FailingSince = time.Now()
	}
	w.status.LastError = err
	w.calls = append(w.calls, func() { w.cfg.OnError(err) })
}

func (w *Watcher) clearError() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.status.LastError != nil {
		live := w.live.Load()
		w.calls = append(w.calls, func() { w.cfg.OnRecovered(live) })
	}
	w.status.LastError, w.status.FailingSince = nil, time.Time{}
}

// call makes the calls that are due, in order and without a lock. One goroutine does at a time; another that has calls
// to make leaves them to it, so that a callback may itself reload.
func (w *Watcher) call() {
	for {
		f := w.nextCall()
		if f == nil {
			return
		}
		func() {
			defer func() { // also if it panics, which a caller of Reload may survive
				w.mu.Lock()
				w.calling = false
				w.mu.Unlock()
			}()
			f()
		}()
	}
}

func (w *Watcher) nextCall() func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calling || len(w.calls) == 0 {
		return nil
	}
	f := w.calls[0]
	w.calls = slices.Delete(w.calls, 0, 1)
	w.calling = true
	return f
}

// fingerprint tells contents apart. It is all of a hash where a Digest, which is for people, is a part.
type fingerprint [sha256.Size]byte

func fingerprintOf(sources []File, err error) (f fingerprint) {
	h := sha256.New()
	part := func(s []byte) { // with its length, so that no two lists of parts look alike
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(s))))
		h.Write(s)
	}
	if err != nil {
		part([]byte(err.Error()))
		h.Sum(f[:0])
		return f
	}
	for i := range sources {
		part([]byte(sources[i].Name))
		part(sources[i].Data)
	}
	h.Sum(f[:0])
	return f
}
