package main

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// A witness detects whether other processes used CPU time that a phase needed. On a shared machine that is the largest
// error of all, and the affected figures look like any others.
type witness struct {
	wall time.Time
	busy time.Duration // of all CPUs since the machine started
	self time.Duration // of this process
}

func watch() witness { return witness{time.Now(), busyTime(), selfTime()} }

// disturbed reports whether other processes used more CPU time than procs CPUs left over. Clock ticks are 10 ms, so
// that small amounts are not noticed.
func (w witness) disturbed(procs int) bool {
	const ticks = 40 * time.Millisecond
	wall := time.Since(w.wall)
	others := (busyTime() - w.busy) - (selfTime() - w.self)
	if w.busy == 0 {
		return false // unknown on this system
	}
	excess := others - time.Duration(runtime.NumCPU()-procs)*wall
	return excess > max(ticks, wall*time.Duration(procs)/8)
}

// disturbedBeside reports the same for a phase that needs all CPUs and in which another process did part of the work.
// It allows more, because the kernel's own network processing belongs to no process.
func (w witness) disturbedBeside(part time.Duration) bool {
	others := (busyTime() - w.busy) - (selfTime() - w.self) - part
	return w.busy != 0 && others > time.Since(w.wall)/4
}

// busyTime returns how long the machine's CPUs have been busy or taken by a hypervisor, or 0 if unknown.
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

// selfTime returns the CPU time of this process and of its child processes that have ended.
func selfTime() (sum time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}
