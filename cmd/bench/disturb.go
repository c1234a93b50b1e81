package main

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// A witness watches whether other processes took processor time that a phase wanted. On a shared machine that is the
// largest error of all, and figures taken meanwhile look like any others.
type witness struct {
	wall time.Time
	busy time.Duration // of all processors since the machine started
	self time.Duration // of this process
}

func watch() witness { return witness{time.Now(), busyTime(), selfTime()} }

// disturbed tells whether others took more than what procs of the processors left over. Clock ticks are 10 ms, so
// little is not noticed.
func (w witness) disturbed(procs int) bool {
	const ticks = 40 * time.Millisecond
	wall := time.Since(w.wall)
	others := (busyTime() - w.busy) - (selfTime() - w.self)
	if w.busy == 0 {
		return false // cannot be known on this system
	}
	excess := others - time.Duration(runtime.NumCPU()-procs)*wall
	return excess > max(ticks, wall*time.Duration(procs)/8)
}

// disturbedBeside tells the same of a phase that wants all processors, and of which another process did a part. The
// kernel's own work for the network is nobody's, so more is allowed.
func (w witness) disturbedBeside(part time.Duration) bool {
	others := (busyTime() - w.busy) - (selfTime() - w.self) - part
	return w.busy != 0 && others > time.Since(w.wall)/4
}

// busyTime is how long the machine's processors have been at work, or taken away by a hypervisor. 0 is unknown.
func busyTime() time.Duration {
	const tick = time.Second / 100 // fixed for user space on Linux
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	fields := bytes.Fields(line) // cpu user nice system idle iowait irq softirq steal …
	var sum time.Duration
	for i, f := range fields[:min(9, len(fields))] {
		if n, err := strconv.ParseInt(string(f), 10, 64); err == nil && i != 4 && i != 5 {
			sum += time.Duration(n) * tick
		}
	}
	return sum
}

// selfTime is what this process has used, and those that it started and that have ended.
func selfTime() (sum time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}
