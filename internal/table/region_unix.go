//go:build unix

package table

import (
	"runtime"
	"syscall"
)

// mapMemory reserves address space that becomes resident page by page, or returns nil.
func mapMemory(n int64) []byte {
	b, err := syscall.Mmap(-1, 0, int(n), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil
	}
	if runtime.GOOS == "linux" {
		const noHugePages = 15 // MADV_NOHUGEPAGE: huge pages would make the gaps between segments resident
		_ = syscall.Madvise(b, noHugePages)
	}
	return b
}

func unmapMemory(b []byte) { _ = syscall.Munmap(b) }
