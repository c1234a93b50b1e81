//go:build unix && !linux

package table

func advise([]byte, bool) {}
