package overload

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

const (
	sampleInterval  = 250 * time.Millisecond // time between samples
	maxSchedDelay   = 10 * time.Millisecond  // tolerated 90th percentile of the time that goroutines wait for a processor
	minWakeups      = 100                    // minimum number of goroutine wakeups of a sample
	maxPressureStep = 0.05                   // rise per sample is maxPressureStep × min(2, log2(delay/maxSchedDelay) + 0.5)
	pressureDecay   = 0.025                  // fall per sample
)

// CPUPressure measures the CPU pressure of this process and decides which requests to shed. It is safe for concurrent use.
// The zero CPUPressure sheds no requests until Run is called.
type CPUPressure struct {
	// Wait returns the 90th percentile of the time that goroutines have waited for a processor since the last call, and the
	// number of wakeups. The default reads it from runtime/metrics.
	Wait func() (time.Duration, uint64)

	pressure atomic.Uint64 // bits of a float64, 0 to 1
}

// Run samples the process until ctx is done.
func (p *CPUPressure) Run(ctx context.Context) {
	wait := p.Wait
	if wait == nil {
		wait = new(schedDelay).wait
	}
	wait() // discard the time before Run
	ticker := time.NewTicker(sampleInterval)
	defer ticker.Stop()
	defer p.pressure.Store(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			p.sample(wait())
		}
	}
}

// sample updates the pressure. It rises with the logarithm of the excess delay and falls more slowly, so that it converges to
// the share that must be shed instead of oscillating.
func (p *CPUPressure) sample(wait time.Duration, woken uint64) {
	pressure := p.Pressure()
	if over := float64(wait) / float64(maxSchedDelay); woken >= minWakeups && over > 1 {
		pressure += maxPressureStep * min(2, math.Log2(over)+0.5)
	} else {
		pressure -= pressureDecay
	}
	p.pressure.Store(math.Float64bits(min(1, max(0, pressure))))
}

// Pressure returns the CPU pressure: 0 is none, at 1 only requests of priority Critical are admitted.
func (p *CPUPressure) Pressure() float64 { return math.Float64frombits(p.pressure.Load()) }

// Admits reports whether a request of the priority is admitted. The share of shed requests rises from 0 to 1 for Low at
// pressures of 0 to 1/3, for Normal at 1/3 to 2/3, and for High at 2/3 to 1. Critical requests are always admitted.
func (p *CPUPressure) Admits(priority Priority) bool {
	pressure := p.Pressure()
	if pressure == 0 || priority >= Critical {
		return true
	}
	shed := pressure*float64(Critical) - float64(priority)
	return shed <= 0 || shed < 1 && rand.Float64() >= shed
}

// schedDelay reads the time that goroutines wait for a processor from runtime/metrics.
type schedDelay struct {
	sample [1]metrics.Sample
	before []uint64
}

func (s *schedDelay) wait() (time.Duration, uint64) {
	s.sample[0].Name = "/sched/latencies:seconds"
	metrics.Read(s.sample[:])
	if s.sample[0].Value.Kind() != metrics.KindFloat64Histogram { // not supported by this runtime
		return 0, 0
	}
	h := s.sample[0].Value.Float64Histogram()
	if len(s.before) != len(h.Counts) {
		s.before = make([]uint64, len(h.Counts))
	}
	total := uint64(0)
	for i, n := range h.Counts {
		n, s.before[i] = n-s.before[i], n
		h.Counts[i] = n
		total += n
	}
	rest := total / 10
	for i := len(h.Counts) - 1; i >= 0; i-- {
		if h.Counts[i] > rest {
			return time.Duration(max(0, h.Buckets[i]) * float64(time.Second)), total // the bucket's lower end
		}
		rest -= h.Counts[i]
	}
	return 0, total
}
