package queue

import "syscall"

// freeBytes returns the free space of the disk of a directory in bytes; ok is false if it is unknown.
func freeBytes(directory string) (n int64, ok bool) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(directory, &fs); err != nil {
		return 0, false
	}
	return int64(fs.Bavail) * fs.Bsize, true
}
