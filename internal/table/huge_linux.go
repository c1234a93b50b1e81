package table

import "syscall"

// Advice to the kernel, which may not follow: then pages stay as they are. The numbers are the same on all Linux.
const (
	madvHugePage   = 14
	madvNoHugePage = 15
	madvCollapse   = 25 // since Linux 6.1
)

// noHuge keeps what is not written from becoming resident along with what is.
func noHuge(b []byte) { _ = syscall.Madvise(b, madvNoHugePage) }

// makeHuge turns pages that are all in use into huge ones.
func makeHuge(b []byte) {
	if syscall.Madvise(b, madvHugePage) == nil {
		_ = syscall.Madvise(b, madvCollapse)
	}
}
