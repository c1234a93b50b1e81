package redisstore_test

import (
	"context"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

// crowd is callers that spend the limits of some keys while something is done to the servers.
type crowd struct {
	limiter  *sluice.Limiter
	stop     context.CancelFunc
	work     sync.WaitGroup
	admitted []atomic.Int64 // by key
	denied   []atomic.Int64 // by the store
	stored   atomic.Int64   // answers of the store
	closed   atomic.Int64   // of the fail mode
}

// gather has a crowd begin. Every key may be spent limit times. The budget is generous: this is about what is answered.
func gather(t *testing.T, url string, limit int64, keys int) *crowd {
	t.Helper()
	rule := sluice.Must(sluice.NewRule(sluice.Rule{
		Name: "r", OnFailure: sluice.FailClosed, Limit: sluice.Limit{
			Count: limit, Window: 24 * time.Hour, Algorithm: sluice.FixedWindow, Align: sluice.AlignFirstRequest,
		},
	}))
	ctx, stop := context.WithCancel(t.Context())
	c := &crowd{
		limiter: sluice.Must(sluice.NewWithRules(openURL(t, url), []*sluice.Rule{rule}, sluice.WithStoreTimeout(250*time.Millisecond))),
		stop:    stop, admitted: make([]atomic.Int64, keys), denied: make([]atomic.Int64, keys),
	}
	for caller := range 6 {
		c.work.Go(func() {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for i := caller; ctx.Err() == nil; i++ {
				d, err := c.limiter.Allow(context.WithoutCancel(ctx), string(rune('A'+i%keys)))
				switch {
				case err != nil:
					t.Errorf("a call was not answered: %v", err)
					return
				case d.Source == sluice.SourceFailClosed:
					c.closed.Add(1)
				case d.Allowed:
					c.stored.Add(1)
					c.admitted[i%keys].Add(1)
				default:
					c.stored.Add(1)
					c.denied[i%keys].Add(1)
				}
				<-tick.C
			}
		})
	}
	t.Cleanup(func() {
		stop()
		c.work.Wait()
	})
	return c
}

// wait waits until the crowd has seen something.
func (c *crowd) wait(t *testing.T, what string, seen func() bool) {
	t.Helper()
	late, tick := time.After(2*time.Minute), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !seen() {
		select {
		case <-late:
			t.Fatalf("waited in vain for %s: %d answers of the store, %d of the fail mode", what, c.stored.Load(), c.closed.Load())
		case <-tick.C:
		}
	}
}

// more waits for further answers of a kind.
func (c *crowd) more(t *testing.T, what string, count *atomic.Int64, n int64) {
	t.Helper()
	from := count.Load()
	c.wait(t, what, func() bool { return count.Load() >= from+n })
}

// most waits until the store has denied every key, ends the crowd, and returns the most that was admitted on one.
func (c *crowd) most(t *testing.T) (most int64) {
	t.Helper()
	c.wait(t, "all keys to be spent", func() bool {
		for i := range c.denied {
			if c.denied[i].Load() == 0 {
				return false
			}
		}
		return true
	})
	c.stop()
	c.work.Wait()
	for i := range c.admitted {
		most = max(most, c.admitted[i].Load())
	}
	return most
}

// Slots move between primaries under load. All calls are answered, nobody is admitted too much, and all keys are found
// where they are now.
func TestReshard(t *testing.T) {
	cluster := redistest.StartCluster(t, "--cluster-node-timeout", "30000") // no failover meanwhile
	const limit = 1000                                                      // enough to last while slots move
	c := gather(t, cluster.URL(), limit, 24)
	c.more(t, "the store's answers", &c.stored, 200)
	slots, err := cluster.Slots()
	if err != nil {
		t.Fatal(err)
	}
	primaries := cluster.Primaries()
	moved := 0
	for slot, owner := range slots {
		to := primaries[moved%len(primaries)]
		if to == owner {
			to = primaries[(moved+1)%len(primaries)]
		}
		if err := cluster.Move(slot, to); err != nil {
			t.Fatal(err)
		}
		moved++
	}
	most := c.most(t)
	t.Logf("%d slots moved, %d answers of the store, %d of the fail mode", moved, c.stored.Load(), c.closed.Load())
	if most > limit || moved < 20 {
		t.Errorf("%d of %d were admitted on a key while %d slots moved", most, limit, moved)
	}
}

// Scripts are flushed again and again: nobody notices.
func TestScriptFlushUnderLoad(t *testing.T) {
	server := redistest.Start(t)
	const limit = 300
	c := gather(t, server.URL(), limit, 3)
	for range 30 {
		c.more(t, "the store's answers", &c.stored, 10)
		do(t, server, "SCRIPT", "FLUSH")
	}
	if most := c.most(t); most != limit || c.closed.Load() != 0 {
		t.Errorf("%d of %d were admitted, %d calls were answered by the fail mode", most, limit, c.closed.Load())
	}
}

// A server that runs out of memory, or is told to pause, is answered for by the fail mode, and asked again when it can
// answer. Nothing that was counted is lost.
func TestTroubleUnderLoad(t *testing.T) {
	for name, trouble := range map[string]struct{ begin, end []string }{
		"memory": {[]string{"CONFIG", "SET", "maxmemory", "1"}, []string{"CONFIG", "SET", "maxmemory", "0"}},
		"pause":  {[]string{"CLIENT", "PAUSE", "60000", "WRITE"}, []string{"CLIENT", "UNPAUSE"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t, "--maxmemory-policy", "noeviction")
			const limit = 200
			c := gather(t, server.URL(), limit, 3)
			c.more(t, "the store's answers", &c.stored, 100)
			do(t, server, trouble.begin...)
			c.more(t, "the fail mode's answers", &c.closed, 100)
			do(t, server, trouble.end...)
			c.more(t, "the store's answers again", &c.stored, 100)
			if most := c.most(t); most > limit {
				t.Errorf("%d of %d were admitted", most, limit)
			}
		})
	}
}

// A primary stands still, another takes its place, and then the old one goes on and is demoted: what was admitted is
// within what losing the last writes once allows.
func TestSplitBrain(t *testing.T) {
	t.Parallel()
	rounds := 1
	if os.Getenv("SLUICE_SOAK") != "" {
		rounds = 10
	}
	for range rounds {
		s := redistest.StartSentinels(t)
		old, other := s.Servers[0], s.Servers[1]
		is := func(server *redistest.Server, role string) bool {
			info, err := server.Do("INFO", "replication")
			return err == nil && strings.Contains(info, role)
		}
		resumed := false
		failover(t, primaries{
			url: s.URL(),
			kill: func() {
				if err := old.Stop(); err != nil {
					t.Error(err)
				}
			},
			ready: func() bool {
				if !resumed && is(other, "role:master") {
					resumed = true
					if err := old.Continue(); err != nil {
						t.Error(err)
					}
				}
				return resumed && is(old, "role:slave")
			},
		})
	}
}
