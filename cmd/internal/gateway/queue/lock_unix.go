//go:build unix

package queue

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lock locks a directory against other processes. The lock ends with the process, also after a crash.
func lock(directory string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(directory, "lock"), os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("queue: %s is in use by another process: set another queue.directory, or share a queue with queue.url", directory)
		}
		return nil, err
	}
	return f, nil
}

// isOurs reports whether the file belongs to the user of the process.
func isOurs(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return !ok || int(stat.Uid) == os.Geteuid()
}
