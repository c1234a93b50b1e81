package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"time"
)

// memory is the memory that keys take.
type memory struct {
	Keys     int
	Resident float64       // bytes of resident memory per key, for any kind of state
	Heap     float64       // bytes of Go heap per key
	GC       time.Duration // one full garbage collection with all keys live, median
}

const (
	collections = 7
	// patience bounds the time for repeated collections: one of a store with 5M pointers may take seconds.
	patience = 4 * time.Second
)

// weigh fills the contender with keys and measures the memory. Every key is a separate string without other references,
// as in a server: a contender that stores keys pays for them.
func weigh(c *contender, s *scenario) (*result, error) {
	sp := spec{burst: spare, every: 10 * time.Minute, slide: longWindow, keys: s.keys}
	before, err := weight()
	if err != nil {
		return nil, err
	}
	l, err := c.open(sp)
	if err != nil {
		return nil, err
	}
	if c.role != roleEmpty {
		for i := range s.keys {
			if !l.allow(keyName(i)) {
				return nil, failf("%s was denied its first hit", keyName(i))
			}
		}
	}
	after, err := weight()
	if err != nil {
		return nil, err
	}
	m := &memory{
		Keys:     s.keys,
		Resident: float64(after.resident-before.resident) / float64(s.keys),
		Heap:     float64(after.heap-before.heap) / float64(s.keys),
	}
	if s.name == mem5m {
		m.GC = collect()
	}
	res := &result{Memory: m}
	if c.role == roleEmpty {
		return res, nil
	}
	if err := census(l, s.keys); err != nil {
		return res, err
	}
	for _, k := range []int{0, s.keys / 2, s.keys - 1} { // all must still be stored; this also keeps the contender alive
		if err := drain(l, keyName(k), spare-1, spare-1, spare); err != nil {
			return res, err
		}
	}
	return res, limits(l, "fresh", spare)
}

func collect() time.Duration {
	var took []time.Duration
	for begin := time.Now(); len(took) < collections && (len(took) == 0 || time.Since(begin) < patience); {
		start := time.Now()
		runtime.GC()
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

type footprint struct{ resident, heap int64 }

// weight returns the memory in use after garbage collection.
func weight() (footprint, error) {
	debug.FreeOSMemory()
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return footprint{}, fmt.Errorf("resident memory is available on Linux only: %w", err)
	}
	fields := bytes.Fields(statm)
	if len(fields) < 2 {
		return footprint{}, fmt.Errorf("cannot read %q", statm)
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return footprint{}, err
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return footprint{pages * int64(os.Getpagesize()), int64(m.HeapAlloc)}, nil
}
