package permit

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// counter records its calls.
type counter struct {
	mu     sync.Mutex // guards the fields below
	down   bool
	local  int64 // permits in the local count
	renews int
	gives  int
}

func (c *counter) ApplyOrFail(_ context.Context, ops []group.Op, out []group.Answer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return errors.New("down")
	}
	for i := range ops {
		if ops[i].Request.Cost < 0 {
			c.gives++
		} else {
			c.renews++
		}
		out[i] = group.Answer{Allowed: true, Granted: ops[i].Request.Cost, At: ops[i].At + 1}
	}
	return nil
}

func (*counter) Shard(*group.Op) int { return 0 }

func (c *counter) LocalPermit(_ *group.Op, receipt, cost int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if receipt <= noReceipt || cost < 0 {
		c.local += cost
	}
	return 7
}

func (c *counter) set(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
}

func (c *counter) counts() (renews, gives int, local int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.renews, c.gives, c.local
}

func hold(k *Renewal) *Permit {
	params := step.Compile(step.Params{Kind: step.Permits, Count: 1, Length: 30_000_000})
	op := (&group.Rule{Name: "r"}).Op(&params, "k", "", 1)
	answer := group.Answer{Allowed: true, Granted: 1, At: 5}
	if !Holds(&op, &answer) {
		panic("nothing is held")
	}
	p := new(Permit)
	k.Add(p, op, &answer)
	k.Start(p)
	return p
}

// A permit is renewed every TTL/3 until it is released, and released once.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, k := new(counter), new(Renewal)
		k.Init(c, true)
		defer k.Close()
		p := hold(k)
		<-time.After(31 * time.Second)
		synctest.Wait()
		if renews, gives, local := c.counts(); renews != 3 || gives != 0 || local != 1 {
			t.Errorf("renewed %d times, released %d times, %d held locally", renews, gives, local)
		}
		for range 2 {
			p.Release(t.Context())
		}
		if _, gives, local := c.counts(); gives != 1 || local != 0 {
			t.Errorf("released %d times, %d held locally", gives, local)
		}
	})
}

// Calls that fail are retried, releases included.
func TestRenewalRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, k := new(counter), new(Renewal)
		k.Init(c, false)
		defer k.Close()
		p := hold(k)
		c.set(true)
		p.Release(t.Context())
		<-time.After(5 * time.Second)
		synctest.Wait()
		if _, gives, _ := c.counts(); gives != 0 {
			t.Fatal("released at an unavailable store")
		}
		c.set(false)
		<-time.After(5 * time.Second)
		synctest.Wait()
		if _, gives, _ := c.counts(); gives != 1 {
			t.Errorf("released %d times", gives)
		}
	})
}

// Close stops renewals; held permits can still be released.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, k := new(counter), new(Renewal)
		k.Init(c, false)
		before := hold(k)
		k.Close()
		after := hold(k)
		<-time.After(time.Hour)
		synctest.Wait()
		if renews, _, _ := c.counts(); renews != 0 {
			t.Errorf("renewed %d times after Close", renews)
		}
		before.Release(t.Context())
		after.Release(t.Context())
		if _, gives, _ := c.counts(); gives != 2 {
			t.Errorf("released %d times", gives)
		}
	})
}
