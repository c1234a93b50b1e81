//go:build !linux

package queue

// freeBytes is not supported on this platform: a full disk is detected when a write fails.
func freeBytes(string) (n int64, ok bool) { return 0, false }
