package overload

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// An overloaded process sheds low priorities first, no more than necessary, no critical requests, and some time after the
// overload none.
func TestCPUPressure(t *testing.T) {
	for _, c := range []struct {
		name string
		load [priorities]float64 // as fractions of the capacity of the process
	}{
		{"low is enough", [priorities]float64{0.8, 0.5, 0.2, 0.1}},
		{"normal too", [priorities]float64{0.5, 1.2, 0.3, 0.2}},
		{"high too", [priorities]float64{0.5, 1, 1, 0.2}},
		{"nothing to do", [priorities]float64{0.2, 0.3, 0.2, 0.1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &CPUPressure{}
				busy := func() (sum float64, served [priorities]float64) { // fractions of each priority

					for i, limit := range c.load {
						in := 0
						for range 1000 {
							if p.Admits(Priority(i)) {
								in++
							}
						}
						served[i] = float64(in) / 1000
						sum += limit * served[i]
					}
					return sum, served
				}
				idle := atomic.Bool{}
				p.Wait = func() (time.Duration, uint64) {
					if b, _ := busy(); b > 1 && !idle.Load() {
						return time.Duration(b * float64(20*time.Millisecond)), 1000
					}
					return time.Millisecond, 1000
				}
				ctx, stop := context.WithCancel(t.Context())
				var wait sync.WaitGroup
				wait.Go(func() { p.Run(ctx) })
				<-time.After(15 * time.Second)
				b, served := busy()
				if b > 1.35 || b < 0.65 {
					t.Errorf("utilization %.2f at pressure %.2f, served %v", b, p.Pressure(), served)
				}
				for i := Low; i < Critical; i++ {
					if served[i] > served[i+1] {
						t.Errorf("more of %v than of %v: %v", i, i+1, served)
					}
				}
				if served[Critical] < 1 {
					t.Error("critical requests are shed")
				}
				idle.Store(true)
				<-time.After(12 * time.Second)
				if p.Pressure() != 0 {
					t.Errorf("pressure %v after the overload", p.Pressure())
				}
				stop()
				wait.Wait()
			})
		})
	}
}

// Few waiting goroutines are no overload.
func TestCPUPressureNeedsWakeups(t *testing.T) {
	p := &CPUPressure{}
	for range 100 {
		p.sample(time.Second, minWakeups-1)
	}
	if p.Pressure() != 0 {
		t.Errorf("the pressure is %v", p.Pressure())
	}
}

// runtime/metrics has the scheduling latency in this version of Go.
func TestSchedDelay(t *testing.T) {
	s := new(schedDelay)
	s.wait()
	var wait sync.WaitGroup
	for range 1000 {
		wait.Go(func() {
			for range 20 {
				runtime.Gosched()
			}
		})
	}
	wait.Wait()
	took, woken := s.wait()
	if woken == 0 || took < 0 || took > time.Minute {
		t.Errorf("%d goroutines waited up to %v", woken, took)
	}
	if _, again := s.wait(); again >= woken && woken > 500 {
		t.Errorf("%d, and then %d: wakeups are counted twice", woken, again)
	}
}
