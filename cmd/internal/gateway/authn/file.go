package authn

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/panics"
	"github.com/sluiceproject/sluice/internal/plainfile"
	"github.com/sluiceproject/sluice/rules"
)

// filesInterval is how often files are looked at. They are small, and a key that is switched off is to be off soon.
const filesInterval = time.Second

// files are read again when they change. What they hold is used only if all of it is sound.
type files struct {
	what     string // is in them, for the log
	paths    []string
	maxBytes int64                    // bytes of each
	use      func(all [][]byte) error // takes what they hold, all of it or nothing

	mu       sync.Mutex // guards the field below
	contents plainfile.Contents
}

// load reads the files, and reports whether they are others than last time.
func (f *files) load() (changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	read, changed, err := f.contents.Read(f.paths, func(path string) ([]byte, error) { return readFile(path, f.maxBytes) })
	if !changed || err != nil {
		return changed, err
	}
	return true, f.contained(read)
}

// contained calls use. A panic in it is a fault of the files.
func (f *files) contained(read [][]byte) (err error) {
	defer panics.Recover(func(e *panics.Error) {
		err = &rules.Error{Pos: rules.Position{File: strings.Join(f.paths, ", ")}, Msg: e.Error(), Err: e}
	})
	return f.use(read)
}

// Reload reads the files again if they changed. The last good ones stay if that fails.
func (f *files) Reload(log *slog.Logger) {
	switch changed, err := f.load(); {
	case err != nil:
		for _, fault := range leaves(err) {
			log.Error(f.what+" cannot be used: keeping the last good ones", append([]any{"fault", fault.Error()}, panics.LogArgs(fault)...)...)
		}
	case changed:
		log.Info(f.what+" changed", "files", f.paths)
	}
}

// Run reads the files when they change until the context ends.
func (f *files) Run(ctx context.Context, log *slog.Logger) {
	plainfile.Poll(ctx, filesInterval, func() { f.Reload(log) })
}

func readFile(path string, most int64) ([]byte, error) {
	fault := func(format string, args ...any) error {
		return &rules.Error{Pos: rules.Position{File: path}, Msg: fmt.Sprintf(format, args...)}
	}
	b, err := plainfile.Read(path, most)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fault("there is no such file")
	case errors.Is(err, plainfile.ErrTooLarge):
		return nil, fault("has more than %d bytes: split it", most)
	case err != nil:
		return nil, fault("cannot be read: %v", errors.Unwrap(err))
	}
	return b, nil
}

// leaves are the errors that were joined, or the one.
func leaves(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, leaves(e)...)
	}
	return all
}
