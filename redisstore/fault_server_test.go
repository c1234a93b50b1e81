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

// crowd is a set of callers that use up the limits of several keys while something happens to the servers.
type crowd struct {
	limiter  *sluice.Limiter
	stop     context.CancelFunc
	work     sync.WaitGroup
	admitted []atomic.Int64 // by key
	denied   []atomic.Int64 // by the store
	stored   atomic.Int64   // decisions of the store
	closed   atomic.Int64   // decisions of the fail mode
}

// gather starts a crowd. Every key has the given limit. The store timeout is long, because this tests decisions, not
// latency.
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
					t.Errorf("Allow: %v", err)
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

// wait waits until seen returns true.
func (c *crowd) wait(t *testing.T, what string, seen func() bool) {
	t.Helper()
	late, tick := time.After(2*time.Minute), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !seen() {
		select {
		case <-late:
			t.Fatalf("timeout waiting for %s: %d decisions of the store, %d of the fail mode", what, c.stored.Load(), c.closed.Load())
		case <-tick.C:
		}
	}
}

// more waits for n further decisions of a kind.
func (c *crowd) more(t *testing.T, what string, count *atomic.Int64, n int64) {
	t.Helper()
	from := count.Load()
	c.wait(t, what, func() bool { return count.Load() >= from+n })
}

// most waits until the store has denied every key, stops the crowd, and returns the largest number admitted for one
// key.
func (c *crowd) most(t *testing.T) (most int64) {
	t.Helper()
	c.wait(t, "all keys to be denied", func() bool {
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

// TestReshard moves hash slots between primaries under load. All calls must return a decision, no key may exceed its
// limit, and all keys must be found in their new place.
func TestReshard(t *testing.T) {
	cluster := redistest.StartCluster(t, "--cluster-node-timeout", "30000") // no failover during the test
	const limit = 1000                                                      // enough for the duration of the moves
	c := gather(t, cluster.URL(), limit, 24)
	c.more(t, "decisions of the store", &c.stored, 200)
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
	t.Logf("%d slots moved, %d decisions of the store, %d of the fail mode", moved, c.stored.Load(), c.closed.Load())
	if most > limit || moved < 20 {
		t.Errorf("%d of %d were admitted on a key while %d slots moved", most, limit, moved)
	}
}

// TestScriptFlushUnderLoad flushes the script repeatedly, which callers must not notice.
func TestScriptFlushUnderLoad(t *testing.T) {
	server := redistest.Start(t)
	const limit = 300
	c := gather(t, server.URL(), limit, 3)
	for range 30 {
		c.more(t, "decisions of the store", &c.stored, 10)
		do(t, server, "SCRIPT", "FLUSH")
	}
	if most := c.most(t); most != limit || c.closed.Load() != 0 {
		t.Errorf("admitted %d of %d, the fail mode decided %d calls", most, limit, c.closed.Load())
	}
}

// TestTroubleUnderLoad: while a server is out of memory or paused, the fail mode decides. Afterwards the server is
// called again, and no usage is lost.
func TestTroubleUnderLoad(t *testing.T) {
	for name, trouble := range map[string]struct{ begin, end []string }{
		"memory": {[]string{"CONFIG", "SET", "maxmemory", "1"}, []string{"CONFIG", "SET", "maxmemory", "0"}},
		"pause":  {[]string{"CLIENT", "PAUSE", "60000", "WRITE"}, []string{"CLIENT", "UNPAUSE"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t, "--maxmemory-policy", "noeviction")
			const limit = 200
			c := gather(t, server.URL(), limit, 3)
			c.more(t, "decisions of the store", &c.stored, 100)
			do(t, server, trouble.begin...)
			c.more(t, "decisions of the fail mode", &c.closed, 100)
			do(t, server, trouble.end...)
			c.more(t, "decisions of the store after the failure", &c.stored, 100)
			if most := c.most(t); most > limit {
				t.Errorf("%d of %d were admitted", most, limit)
			}
		})
	}
}

// TestSplitBrain: a primary is paused, another is promoted, then the old one resumes and is demoted. At most one loss
// of the last writes may be admitted in excess.
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
