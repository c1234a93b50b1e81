package queue

import "syscall"

// freeBytes is how much room a directory's disk has; ok is false if that is not known.
func freeBytes(directory string) (n int64, ok bool) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(directory, &fs); err != nil {
		return 0, false
	}
	return int64(fs.Bavail) * fs.Bsize, true
}
