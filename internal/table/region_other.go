//go:build !unix

package table

func mapMemory(int64) []byte { return nil }

func unmapMemory([]byte) {}
