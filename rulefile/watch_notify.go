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

// notifier receives file events from the system.
//
// It watches directories, never files: replacing a file removes its watch. The directories that determine the target of
// a path change with their contents, so follow is called again and again.
type notifier struct {
	paths   []string
	open    func() (*fsnotify.Watcher, error) // fsnotify.NewWatcher, except in tests
	changed chan struct{}                     // has room for one: that there was an event, not which
	wanted  atomic.Pointer[places]

	fs      *fsnotify.Watcher // nil until it could be opened
	hearing sync.WaitGroup
}

func newNotifier(paths []string) *notifier {
	return &notifier{paths: paths, open: fsnotify.NewWatcher, changed: make(chan struct{}, 1)}
}

// follow watches the current targets of the paths. An error means that events may be missed; the next call tries again.
func (n *notifier) follow() error {
	if n.fs == nil {
		w, err := n.open()
		if err != nil {
			return err
		}
		n.fs = w
		n.hearing.Go(n.hear)
	}
	// A link that changes after it was followed and before its directory is watched causes no event: repeat until
	// nothing has changed. Links that never stop changing are left to polling.
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
			_ = n.fs.Remove(dir) // fails only if the directory was removed, and its watch with it
		}
	}
	var faults []error
	for dir := range wanted {
		// Also those that are already watched: it may be another directory with that name. Adding one twice does
		// nothing.
		if err := n.fs.Add(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			faults = append(faults, &fs.PathError{Op: "watch", Path: dir, Err: err})
		}
	}
	return errors.Join(faults...)
}

// hear forwards events until the notifier is closed.
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
		default: // an event is already pending
		}
	}
}

// close returns when all goroutines of follow have ended.
func (n *notifier) close() {
	if n.fs != nil {
		_ = n.fs.Close() // nothing was written that could be lost
		n.hearing.Wait()
	}
}

// places contains the directories that determine the targets of some paths, each with the names in it that matter; nil:
// all. The directories are named without symbolic links, so that none occurs twice.
type places map[string]map[string]bool

func placesOf(paths []string) places {
	p := make(places)
	for _, path := range paths {
		dir, ok := p.follow(path)
		if !ok {
			continue
		}
		p[dir] = nil
		entries, _ := os.ReadDir(dir) // the check reports it if it cannot be read
		for _, e := range entries {
			if e.Type()&fs.ModeSymlink != 0 && !strings.HasPrefix(e.Name(), ".") {
				p.follow(filepath.Join(dir, e.Name()))
			}
		}
	}
	return p
}

// maxLinks is the maximum number of symbolic links in a path, as in Linux.
const maxLinks = 40

// follow walks a path like the system, and adds each entry whose change would change the target: the links, the file at
// the end, or the first entry that does not exist. If the target is a directory, it returns its name.
//
// Directories on the way are not watched for renames. These are rare, and polling finds them.
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

// decidedBy reports whether an event of the file with this name may change a target.
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
