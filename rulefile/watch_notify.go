package rulefile

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fsnotify/fsnotify"
)

// notifier has the system tell of changes to files.
//
// It watches directories, never files: a file that is replaced takes its watch away with it. Which directories decide
// what the paths lead to changes with what happens in them, so follow is called again and again.
type notifier struct {
	paths   []string
	open    func() (*fsnotify.Watcher, error) // fsnotify.NewWatcher, but for tests
	changed chan struct{}                     // holds one: that there was news, not what
	wanted  atomic.Pointer[places]

	fs      *fsnotify.Watcher // nil until it could be opened
	hearing sync.WaitGroup
}

func newNotifier(paths []string) *notifier {
	return &notifier{paths: paths, open: fsnotify.NewWatcher, changed: make(chan struct{}, 1)}
}

// follow watches what the paths lead to by now. An error means that changes may go unheard; the next call tries again.
func (n *notifier) follow() error {
	if n.fs == nil {
		w, err := n.open()
		if err != nil {
			return err
		}
		n.fs = w
		n.hearing.Go(n.hear)
	}
	// A link that changes after it was followed and before its directory is watched goes unheard: look again until
	// nothing has changed. What never rests is left to the content check.
	const tries = 4
	var err error
	next := placesOf(n.paths)
	for range tries {
		now := next
		n.wanted.Store(&now)
		err = n.watch(now)
		if next = placesOf(n.paths); next.equal(now) {
			break
		}
	}
	return err
}

func (n *notifier) watch(wanted places) error {
	for _, dir := range n.fs.WatchList() {
		if _, ok := wanted[dir]; !ok {
			_ = n.fs.Remove(dir) // fails only if the directory went away, and its watch with it
		}
	}
	var faults []error
	for dir := range wanted {
		// Also those that are watched: it may be another directory of that name. Adding one twice does nothing.
		if err := n.fs.Add(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			faults = append(faults, &fs.PathError{Op: "watch", Path: dir, Err: err})
		}
	}
	return errors.Join(faults...)
}

// hear passes news on until the notifier is closed.
func (n *notifier) hear() {
	events, errs := n.fs.Events, n.fs.Errors
	for events != nil || errs != nil {
		select {
		case e, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			if !n.wanted.Load().decidedBy(e.Name) {
				continue
			}
		case _, ok := <-errs: // events were lost
			if !ok {
				errs = nil
				continue
			}
		}
		select {
		case n.changed <- struct{}{}:
		default: // there is news already
		}
	}
}

// close returns when all that follow started has ended.
func (n *notifier) close() {
	if n.fs != nil {
		_ = n.fs.Close() // nothing was written that could be lost
		n.hearing.Wait()
	}
}

// places are the directories that decide what some paths lead to, each with the names in it that matter; nil: all do.
// The directories are named without symbolic links, so that none is there twice.
type places map[string]map[string]bool

func placesOf(paths []string) places {
	p := make(places)
	for _, path := range paths {
		dir, ok := p.follow(path)
		if !ok {
			continue
		}
		p[dir] = nil
		entries, _ := os.ReadDir(dir) // if it cannot be read the check says so
		for _, e := range entries {
			if e.Type()&fs.ModeSymlink != 0 && !strings.HasPrefix(e.Name(), ".") {
				p.follow(filepath.Join(dir, e.Name()))
			}
		}
	}
	return p
}

// maxLinks is how many symbolic links a path may lead through, as in Linux.
const maxLinks = 40

// follow walks a path as the system does, and adds each entry that would lead elsewhere if it changed: the links, the
// file at the end, or the first entry that is not there. If a directory is at the end it returns its name.
//
// Directories on the way are not watched for being renamed. They seldom are, and the content check finds it.
func (p places) follow(path string) (dir string, ok bool) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", false
	}
	dir, rest := fromRoot(path)
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			dir = filepath.Dir(dir)
			continue
		}
		next := filepath.Join(dir, name)
		info, err := os.Lstat(next)
		if err == nil && info.IsDir() {
			dir = next
			continue
		}
		p.add(dir, name)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			return "", false
		}
		target, err := os.Readlink(next)
		if links++; err != nil || links > maxLinks {
			return "", false
		}
		if filepath.IsAbs(target) {
			root, parts := fromRoot(target)
			dir, rest = root, append(parts, rest...)
		} else {
			rest = append(strings.Split(filepath.ToSlash(target), "/"), rest...)
		}
	}
	return dir, true
}

func fromRoot(path string) (root string, parts []string) {
	volume := filepath.VolumeName(path)
	return volume + string(filepath.Separator), strings.Split(filepath.ToSlash(path[len(volume):]), "/")
}

func (p places) add(dir, name string) {
	names, ok := p[dir]
	if ok && names == nil {
		return
	}
	if !ok {
		names = make(map[string]bool)
		p[dir] = names
	}
	names[name] = true
}

// decidedBy tells whether what happened to the file of this name may matter.
func (p places) decidedBy(name string) bool {
	if _, ok := p[name]; ok { // the directory itself
		return true
	}
	names, ok := p[filepath.Dir(name)]
	return ok && (names == nil || names[filepath.Base(name)])
}

func (p places) equal(q places) bool {
	return maps.EqualFunc(p, q, func(a, b map[string]bool) bool {
		return (a == nil) == (b == nil) && maps.Equal(a, b)
	})
}
