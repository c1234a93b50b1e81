//go:build !race

package main

// raceEnabled reports whether the race detector watches, in this binary and in the program that it runs as.
const raceEnabled = false
