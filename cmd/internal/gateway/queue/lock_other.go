//go:build !unix

package queue

import (
	"os"
	"path/filepath"
)

// lock opens the lock file. It does not lock it, because this platform is not supported.
func lock(directory string) (*os.File, error) {
	return os.OpenFile(filepath.Join(directory, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
}

// isOurs reports whether the file belongs to the user of the process. On this platform it is always true.
func isOurs(os.FileInfo) bool { return true }
