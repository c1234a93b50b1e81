//go:build unix

package queue

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lock keeps other processes out of a directory. It ends with the process, however that ends.
func lock(directory string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(directory, "lock"), os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("queue: %s is in use by another process: give each its own directory, or share a queue by url", directory)
		}
		return nil, err
	}
	return f, nil
}

// isOurs reports whether a file belongs to the user that the process runs as.
func isOurs(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return !ok || int(stat.Uid) == os.Geteuid()
}
