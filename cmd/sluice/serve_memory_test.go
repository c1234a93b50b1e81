package main

import (
	"os"
	"runtime/debug"
	"testing"
)

// Little in use gets room, and much no more than ever.
func TestRoomPercent(t *testing.T) {
	for used, want := range map[uint64]int{0: 1600, 1 << 20: 1600, 2 << 20: 800, 4 << 20: 400, 8 << 20: 200, 16 << 20: 100, 1 << 30: 100} {
		if got := roomPercent(used); got != want {
			t.Errorf("%d bytes: %d %%, want %d", used, got, want)
		}
	}
}

func TestKeepRoom(t *testing.T) {
	if os.Getenv("GOGC") != "" {
		t.Setenv("GOGC", "") // for those who run tests with it
	}
	defer debug.SetGCPercent(debug.SetGCPercent(150))
	percent := func() int {
		now := debug.SetGCPercent(150)
		debug.SetGCPercent(now)
		return now
	}
	stop := keepRoom()
	if inUse() == 0 {
		t.Error("nothing is in use")
	}
	if got, want := percent(), roomPercent(inUse()); got < want*3/4 || got > want*5/4 {
		t.Errorf("GOGC is %d, want about %d", got, want)
	}
	stop()
	if got := percent(); got != 150 {
		t.Errorf("afterwards GOGC is %d", got)
	}
	t.Setenv("GOGC", "50")
	defer keepRoom()()
	if got := percent(); got != 150 {
		t.Errorf("somebody else has set it, and it is %d", got)
	}
}

// What is in use may grow: then there is no more room than Go gives.
func TestRoomShrinks(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	k := &roomy{percent: 1600, before: 100}
	debug.SetGCPercent(1600)
	k.collected()
	defer k.stop()
	want := roomPercent(inUse())
	if got := debug.SetGCPercent(100); got < want*3/4 || got > want*5/4 {
		t.Errorf("GOGC is %d, want about %d", got, want)
	}
}
