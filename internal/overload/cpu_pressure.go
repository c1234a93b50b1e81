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
	sampleInterval  = 250 * time.Millisecond // between two samples
	maxSchedDelay   = 10 * time.Millisecond  // a tenth of all goroutines may wait longer than this for a processor
	minWakeups      = 100                    // goroutines that were woken; fewer are no sample
	maxPressureStep = 0.05                   // how much the pressure rises in one sample, if goroutines wait twice as long
	pressureDecay   = 0.025
)

// CPUPressure measures how overloaded this process is, and sheds requests by it. It is safe for concurrent use.
// The zero CPUPressure sheds nothing before Run is called.
type CPUPressure struct {
	// Wait returns how long all but a tenth of the goroutines have waited for a processor since the last call, and how
	// many there were. The default asks the runtime.
	Wait func() (time.Duration, uint64)

	pressure atomic.Uint64 // bits of a float64, 0 to 1
}

// Run samples the process until the context ends.
func (p *CPUPressure) Run(ctx context.Context) {
	wait := p.Wait
	if wait == nil {
		wait = new(schedDelay).wait
	}
	wait() // what came before counts for nothing
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

// sample updates the pressure. It rises by how much too long goroutines wait, and falls slower, so that
// it finds the part that must be shed instead of swinging about it.
func (p *CPUPressure) sample(wait time.Duration, woken uint64) {
	pressure := p.Pressure()
	if over := float64(wait) / float64(maxSchedDelay); woken >= minWakeups && over > 1 {
		pressure += maxPressureStep * min(2, math.Log2(over)+0.5)
	} else {
		pressure -= pressureDecay
	}
	p.pressure.Store(math.Float64bits(min(1, max(0, pressure))))
}

// Pressure is 0 if all is well and 1 if only what is critical is to be served.
func (p *CPUPressure) Pressure() float64 { return math.Float64frombits(p.pressure.Load()) }

// Admits reports whether a request may go on. Up to a third of the pressure more and more of the low priority may not, up
// to two thirds of the normal one, and then of the high one.
func (p *CPUPressure) Admits(priority Priority) bool {
	pressure := p.Pressure()
	if pressure == 0 || priority >= Critical {
		return true
	}
	refused := pressure*float64(Critical) - float64(priority)
	return refused <= 0 || refused < 1 && rand.Float64() >= refused
}

// schedDelay reads how long goroutines have waited for a processor.
type schedDelay struct {
	sample [1]metrics.Sample
	before []uint64
}

func (s *schedDelay) wait() (time.Duration, uint64) {
	s.sample[0].Name = "/sched/latencies:seconds"
	metrics.Read(s.sample[:])
	if s.sample[0].Value.Kind() != metrics.KindFloat64Histogram { // a runtime that does not tell
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
