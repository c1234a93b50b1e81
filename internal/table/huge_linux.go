package table

import "syscall"

// Advice to the kernel, which may ignore it: then the pages stay as they are. The numbers are the same on all Linux
// platforms.
const (
	madvHugePage   = 14
	madvNoHugePage = 15
	madvCollapse   = 25 // since Linux 6.1
)

// noHuge prevents unwritten pages from becoming resident together with written ones.
func noHuge(b []byte) { _ = syscall.Madvise(b, madvNoHugePage) }

// makeHuge turns pages that are all in use into huge pages.
func makeHuge(b []byte) {
	if syscall.Madvise(b, madvHugePage) == nil {
		_ = syscall.Madvise(b, madvCollapse)
	}
}
