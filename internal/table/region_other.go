//go:build !unix

package table

func mapMemory(int64, bool) []byte { return nil }

func unmapMemory([]byte) {}
