//go:build unix && !aix && !solaris

package plainfile

import "syscall"

// writable returns an error unless this user may write the file, or create files in the directory.
func writable(path string) error {
	const write = 2 // W_OK
	return syscall.Access(path, write)
}
