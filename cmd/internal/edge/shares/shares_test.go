package shares

import (
	"net/netip"
	"sync"
	"testing"
)

func TestCounter(t *testing.T) {
	c := NewCounter[string](2)
	for i, want := range []bool{true, true, false, false} {
		if c.Enter("a") != want {
			t.Errorf("a, %d: not %v", i, want)
		}
	}
	if !c.Enter("b") {
		t.Error("b does not have its own share")
	}
	c.Leave("a")
	if !c.Enter("a") || c.Enter("a") {
		t.Error("Leave does not free exactly one")
	}
}

// No count exceeds the maximum, and names with a count of 0 are removed.
func TestCounterConcurrent(t *testing.T) {
	c := NewCounter[netip.Prefix](3)
	p := netip.MustParsePrefix("2001:db8::/64")
	var mu sync.Mutex
	have := 0
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				if !c.Enter(p) {
					continue
				}
				mu.Lock()
				if have++; have > 3 {
					t.Errorf("%d at once", have)
				}
				mu.Unlock()
				mu.Lock()
				have--
				mu.Unlock()
				c.Leave(p)
			}
		})
	}
	all.Wait()
	for i := range c.shards {
		if n := len(c.shards[i].have); n > 0 {
			t.Errorf("%d names are left", n)
		}
	}
}

func TestCounterAllocates(t *testing.T) {
	c := NewCounter[netip.Prefix](3)
	p := netip.MustParsePrefix("192.0.2.1/32")
	if n := testing.AllocsPerRun(1000, func() {
		c.Enter(p)
		c.Leave(p)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
