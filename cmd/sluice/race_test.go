//go:build race

package main

// raceEnabled reports whether the race detector is enabled in this binary, which is also the program under test.
const raceEnabled = true
