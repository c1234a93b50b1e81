package table

import "syscall"

// advise asks for huge pages or for none. That the kernel may not follow is all right.
func advise(b []byte, huge bool) {
	const hugePages, noHugePages = 14, 15 // MADV_HUGEPAGE, MADV_NOHUGEPAGE
	advice := noHugePages
	if huge {
		advice = hugePages
	}
	_ = syscall.Madvise(b, advice)
}
