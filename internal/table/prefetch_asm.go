//go:build amd64 || arm64

package table

import "unsafe"

//go:noescape
func prefetch(segment, slots unsafe.Pointer)
