//go:build unix

package table

import "syscall"

// mapMemory reserves address space that becomes resident page by page.
func mapMemory(n int64) []byte {
	b, err := syscall.Mmap(-1, 0, int(n), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil
	}
	noHuge(b)
	return b
}

func unmapMemory(b []byte) { _ = syscall.Munmap(b) }
