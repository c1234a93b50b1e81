package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// leastRoom is how much is allocated before the garbage is collected, however little is in use. By default that is as much
// as is in use, and a service that uses a few megabytes would spend a tenth of its time collecting, dozens of times a
// second.
const leastRoom = 16 << 20

// roomy is the collector while a service runs.
type roomy struct {
	mu      sync.Mutex // guards the following
	stopped bool
	before  int // GOGC
	percent int
}

// keepRoom has the collector leave room until it is stopped. Who sets GOGC knows better.
func keepRoom() (stop func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	k := &roomy{percent: roomPercent(inUse())}
	k.before = debug.SetGCPercent(k.percent)
	k.watch()
	return k.stop
}

// watch has the next collection be noticed.
func (k *roomy) watch() {
	runtime.AddCleanup(new([64]byte), (*roomy).collected, k)
}

func (k *roomy) collected() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return
	}
	// A change stops the world for a moment, so small ones are left.
	if want := roomPercent(inUse()); want < k.percent*3/4 || want > k.percent*5/4 || want == leastPercent && k.percent != want {
		k.percent = want
		debug.SetGCPercent(want)
	}
	k.watch()
}

func (k *roomy) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = true
	debug.SetGCPercent(k.before)
}

// leastPercent is Go's default.
const leastPercent = 100

// roomPercent is the GOGC that leaves room beside what is in use.
func roomPercent(used uint64) int {
	return int(min(max(leastRoom*100/max(used, 1), leastPercent), 1600))
}

// inUse is what the last collection found.
func inUse() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(s)
	sum := uint64(0)
	for i := range s {
		if s[i].Value.Kind() == metrics.KindUint64 {
			sum += s[i].Value.Uint64()
		}
	}
	return sum
}
