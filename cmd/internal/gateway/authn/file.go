package authn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/panics"
	"github.com/sluiceproject/sluice/internal/plainfile"
	"github.com/sluiceproject/sluice/rules"
)

// filesInterval is the interval of checks for changed files. It is short because a disabled key must be rejected soon, and cheap
// because the files are small.
const filesInterval = time.Second

// files are reloaded when they change. Their content is used only if all of it is valid.
type files struct {
	what     string // name of the content, for the log
	paths    []string
	maxBytes int64                    // maximum size of each
	use      func(all [][]byte) error // uses the content of all files, or returns an error

	mu       sync.Mutex // guards the field below
	contents plainfile.Contents
}

// load reads the files and returns whether they changed.
func (f *files) load() (changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	read, changed, err := f.contents.Read(f.paths, func(path string) ([]byte, error) { return readFile(path, f.maxBytes) })
	if !changed || err != nil {
		return changed, err
	}
	return true, f.contained(read)
}

// contained calls use and converts a panic in it to an error of the files.
func (f *files) contained(read [][]byte) (err error) {
	defer panics.Recover(func(e *panics.Error) {
		err = &rules.Error{Pos: rules.Position{File: strings.Join(f.paths, ", ")}, Msg: e.Error(), Err: e}
	})
	return f.use(read)
}

// Reload reloads the files if they changed. If that fails, the last valid content stays in use.
func (f *files) Reload(log *slog.Logger) {
	switch changed, err := f.load(); {
	case err != nil:
		for _, fault := range leaves(err) {
			log.Error(f.what+" invalid: last valid content stays in use", append([]any{"error", fault.Error()}, panics.LogArgs(fault)...)...)
		}
	case changed:
		log.Info(f.what+" changed", "paths", f.paths)
	}
}

// Run reloads the files when they change, until ctx is done.
func (f *files) Run(ctx context.Context, log *slog.Logger) {
	plainfile.Poll(ctx, filesInterval, func() { f.Reload(log) })
}

func readFile(path string, maxBytes int64) ([]byte, error) {
	fault := func(format string, args ...any) error {
		return &rules.Error{Pos: rules.Position{File: path}, Msg: fmt.Sprintf(format, args...)}
	}
	b, err := plainfile.Read(path, maxBytes)
	switch {
	case errors.Is(err, plainfile.ErrTooLarge):
		return nil, fault("has more than %d bytes: split it", maxBytes)
	case err != nil:
		return nil, fault("%s", plainfile.Reason(err))
	}
	return b, nil
}

// leaves returns the errors that err joins, or err itself.
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
