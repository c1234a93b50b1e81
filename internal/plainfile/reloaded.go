package plainfile

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Reloaded is a file whose content is used again when it changes. If it cannot be read or is invalid, the last valid content
// stays in use. Its methods are safe for concurrent use.
type Reloaded struct {
	What     string // name of the content in the log
	Path     string
	MaxBytes int64
	Use      func(content []byte) error // uses the content, or returns an error

	mu       sync.Mutex // guards the field below
	contents Contents
}

// reloadInterval is the interval of checks for a changed file. It is short because a revoked token must be rejected soon.
const reloadInterval = time.Second

// Load reads the file and reports whether it changed. An error is returned once, and again when the file changes.
func (r *Reloaded) Load() (changed bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	data, changed, err := r.contents.Read([]string{r.Path}, func(path string) ([]byte, error) { return Read(path, r.MaxBytes) })
	if !changed || err != nil {
		return changed, err
	}
	return true, r.Use(data[0])
}

// Reload loads the file and logs a change or an error.
func (r *Reloaded) Reload(log *slog.Logger) {
	switch changed, err := r.Load(); {
	case err != nil:
		log.Error(r.What+" invalid: last valid content stays in use", "error", err)
	case changed:
		log.Info(r.What+" changed", "path", r.Path)
	}
}

// Run reloads the file when it changes, until ctx is done.
func (r *Reloaded) Run(ctx context.Context, log *slog.Logger) {
	Poll(ctx, reloadInterval, func() { r.Reload(log) })
}
