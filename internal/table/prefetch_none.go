//go:build !(amd64 || arm64)

package table

import "unsafe"

// prefetch does nothing here: we know of no such instruction.
func prefetch(segment, slots unsafe.Pointer) {}
