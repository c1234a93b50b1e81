//go:build !linux

package table

func noHuge([]byte) {}

func makeHuge([]byte) {}
