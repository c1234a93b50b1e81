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

// maxReads is the maximum number of times that [Watcher.Reload] reads files that keep changing. With the default
// Debounce that takes 2 s.
const maxReads = 11

var (
	errRunning   = errors.New("rulefile: the watcher is already running")
	errUnsettled = errors.New("rulefile: the rule files kept changing while they were read: keeping the last good set")
)

// WatchConfig configures a [Watcher]. Paths is required.
type WatchConfig struct {
	// Paths are files and directories, as for [ReadFiles].
	Paths   []string
	Options Options

	// Read replaces [ReadFiles], for directories that are read in another way. It is called with Paths.
	Read func(paths ...string) ([]File, error)

	// PollInterval is the interval at which the files are read even without a file event, because the system drops
	// events when there are many and sends none for network file systems. The default is 5 s.
	PollInterval time.Duration
	// Debounce is how long files must be unchanged before they are loaded; the default is 200 ms. It protects against
	// half-written files; slower writers should write to a temporary file and rename it.
	Debounce time.Duration

	// ReloadOnSIGHUP makes Run check the files on SIGHUP.
	ReloadOnSIGHUP bool

	// OnReload is called with each set after the first once it is live, OnError once for files that cannot be loaded,
	// and OnRecovered when such files are again those of the live set, which is unchanged.
	// They are called one after the other in the order of events, by Run or Reload, which continue when they return.
	// They may call the watcher. Each may be nil.
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
		return errors.New("rulefile: no paths to watch: set Paths to a file or a directory")
	case c.PollInterval < 0 || c.Debounce < 0:
		return fmt.Errorf("rulefile: PollInterval is %v and Debounce %v: use positive durations, or 0 for the defaults",
			c.PollInterval, c.Debounce)
	}
	return nil
}

// Watcher keeps a rule set up to date with its files. A set that cannot be loaded never replaces one that could: the
// last good set stays live until the files are valid again, without a restart.
//
// [Watcher.Run] watches for changes. Without it, only [Watcher.Reload] changes the set.
type Watcher struct {
	cfg           WatchConfig
	live          atomic.Pointer[LoadResult]
	running       atomic.Bool
	reloadSignals chan os.Signal                        // nil unless ReloadOnSIGHUP
	read          func(paths ...string) ([]File, error) // cfg.Read, except in tests

	// checking is held while the files are read and compiled, and guards the fields below. It is locked before mu.
	checking sync.Mutex
	good     fingerprint // of the live set
	bad      fingerprint // of the last rejected files
	badErr   error       // their error; nil: the live set is the last one read
	seen     fingerprint // of a change that is not yet Debounce old
	seenAt   time.Time   // time of its first read; zero: there is none

	mu      sync.Mutex // guards the fields below; held only briefly
	status  Status
	calls   []func() // pending calls of OnReload, OnError and OnRecovered
	calling bool
}

// Status is the state of a [Watcher].
type Status struct {
	Digest   string    // of the live set
	LoadedAt time.Time // time when it went live
	Reloads  int       // number of sets that have replaced another

	LastError    error     // why the files are not live; nil: they are
	FailingSince time.Time // since when they are not

	FileEvents    bool  // the system sends file events; else changes are found by polling
	FileEventsErr error // why it does not; nil also while Run is not running
}

// NewWatcher loads the rules. It returns an error if that fails or if there are no files, because a program should not
// start without its rules.
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

// contained converts a panic in read to an error, so that the last good set stays live.
func contained(read func(...string) ([]File, error)) func(...string) ([]File, error) {
	return func(paths ...string) (sources []File, err error) {
		defer panics.Recover(func(e *panics.Error) {
			sources, err = nil, panicked(e, rules.Position{File: strings.Join(paths, ", ")}, "")
		})
		return read(paths...)
	}
}

// Set returns the live rule set. It is never nil and takes no lock: call it once per request.
func (w *Watcher) Set() *rules.Set { return w.live.Load().Set }

// Current returns the live set with the files it was read from. It must not be changed.
func (w *Watcher) Current() *LoadResult { return w.live.Load() }

// Status returns the state of the watcher.
func (w *Watcher) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// Reload reads the files now, for example on a signal. It blocks until they have been unchanged for Debounce, and
// returns the error of loading them, or nil if they are live.
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

// Run keeps the set up to date until ctx is done, and then returns nil.
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

// signalled calls f while SIGHUP is delivered to the watcher, if configured.
func signalled(w *Watcher, f func()) {
	if w.reloadSignals != nil {
		signal.Notify(w.reloadSignals, syscall.SIGHUP)
		defer signal.Stop(w.reloadSignals)
	}
	f()
}

// loop checks the files at the start, after changes, and every PollInterval. Before each check it calls follow, so that
// later changes are signalled on changed.
func (w *Watcher) loop(ctx context.Context, changed <-chan struct{}, follow func()) {
	tick := time.NewTicker(w.cfg.PollInterval)
	defer tick.Stop()
	due := time.NewTimer(0)
	defer due.Stop()
	armed := true // due will fire; its check includes all changes until then
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			// A change is checked at once, but checks are at least Debounce apart.
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
		again, _ := w.check() // OnError gets the error
		w.call()
		last = time.Now()
		if armed = again > 0; armed {
			due.Reset(again)
		} else {
			due.Stop()
		}
	}
}

// check reads the files once and loads them if they are unchanged for Debounce. Otherwise it returns the time until the
// next check. If that is 0, err says why the files are not live.
//
// A failure to read the files is treated like a content: it too must last for Debounce, because directories are swapped
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
	case w.badErr != nil && seen == w.bad: // already reported
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

// call runs the pending calls in order and without a lock. Only one goroutine does so at a time; another leaves its
// calls to it, so that a callback may itself reload.
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

// fingerprint identifies contents. It is a whole hash; the Digest for people is a part of one.
type fingerprint [sha256.Size]byte

func fingerprintOf(sources []File, err error) (f fingerprint) {
	h := sha256.New()
	part := func(s []byte) { // with its length, so that different lists of parts differ
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
