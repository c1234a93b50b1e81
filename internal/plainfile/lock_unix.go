//go:build unix

package plainfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Retry interval and timeout of a lock.
const (
	lockEvery = 10 * time.Millisecond
	lockWait  = 10 * time.Second
)

// LockDirectory locks the directory of a file against other processes that lock it, until unlock is called or the
// process ends. The file itself cannot be locked, because it is replaced.
func LockDirectory(ctx context.Context, file string) (unlock func(), err error) {
	if target, err := filepath.EvalSymlinks(file); err == nil {
		file = target
	}
	directory, err := os.Open(filepath.Dir(file))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lockWait, fmt.Errorf("another process has locked %s for %v", filepath.Dir(file), lockWait))
	defer cancel()
	for {
		err := syscall.Flock(int(directory.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { directory.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			directory.Close()
			return nil, err
		}
		select {
		case <-ctx.Done():
			directory.Close()
			return nil, context.Cause(ctx)
		case <-time.After(lockEvery):
		}
	}
}
