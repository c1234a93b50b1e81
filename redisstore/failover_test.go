package redisstore_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/redisstore"
	"github.com/sluiceproject/sluice/storetest"
)

func openURL(t testing.TB, url string) *redisstore.Store {
	t.Helper()
	s, err := redisstore.Open(redisstore.Config{URL: url, KeyPrefix: prefix()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// TestCluster runs storetest on a Cluster, where calls over keys of several hash slots are not isolated. The tests that need a
// virtual clock run with SLUICE_SOAK: the script is the one that TestConformance tests.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	client := clusterClient(t, cluster)
	soak := os.Getenv("SLUICE_SOAK") != ""
	storetest.Run(t, storetest.Harness{
		Open: func(_ testing.TB, clock *storetest.Clock) sluice.Store {
			c := redisstore.Config{Client: client, KeyPrefix: prefix()}
			if soak {
				c.Now = clock.Now
			}
			return sluice.Must(redisstore.Open(c))
		},
		Caps: storetest.Caps{NonAtomicKeys: true, RealClock: !soak},
	})
}

// TestClusterGivesBack checks that a call over several hash slots, one of which denies, leaves nothing charged and
// returns the refunded quota.
func TestClusterGivesBack(t *testing.T) {
	s := openURL(t, redistest.StartCluster(t).URL())
	wide := sluice.Must(sluice.NewRule(sluice.Rule{Name: "wide", Limit: sluice.PerHour(1000).WithAlgorithm(sluice.FixedWindow)}))
	narrow := sluice.Must(sluice.NewRule(sluice.Rule{Name: "narrow", Limit: sluice.PerHour(3).WithAlgorithm(sluice.FixedWindow)}))
	var takes []sluice.Take
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		takes = append(takes, sluice.Take{Rule: wide, Key: key, Cost: 2})
	}
	takes = append(takes, sluice.Take{Rule: narrow, Key: "z", Cost: 1})
	out := make([]sluice.Decision, len(takes))
	for i := range 10 {
		if err := s.Apply(t.Context(), takes, out); err != nil {
			t.Fatal(err)
		}
		if denied := i >= 3; out[5].Allowed == denied {
			t.Fatalf("call %d: %+v", i, out[5])
		}
		for j := range 5 {
			if want := int64(1000 - 2*min(i+1, 3)); out[j].Remaining != want || i >= 3 && out[j].Granted != 0 {
				t.Errorf("call %d, take %d: %+v, want Remaining %d", i, j, out[j], want)
			}
		}
	}
	parts := map[int]bool{}
	for i := range takes {
		parts[s.Shard(&takes[i])] = true
	}
	if s.Shards() != 16 || len(parts) < 2 {
		t.Errorf("%d shards, of which six keys use %d", s.Shards(), len(parts))
	}
}

// primaries describes the servers of a failover test.
type primaries struct {
	url    string
	all    []*redistest.Server
	victim func() *redistest.Server // returns a primary, which will lose writes and be killed
	kill   func()                   // kills it; if set, the old primary may come back
	ready  func() bool              // there is another primary that accepts writes
}

// TestFailovers kills a primary under load that has not replicated for a while. Every call must return a decision, and
// the limiters must use the new primary without help. Per failover the limit may be admitted once more, and with hints
// only the calls in flight plus the usage that the first caller of the new primary had not seen.
func TestFailovers(t *testing.T) {
	t.Parallel()
	rounds := 1
	if os.Getenv("SLUICE_SOAK") != "" {
		rounds = 20
	}
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		for i := range rounds {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				s := redistest.StartSentinels(t)
				failover(t, primaries{
					url: s.URL(), all: s.Servers, victim: s.Primary, ready: func() bool { return s.Primary() != nil },
				})
			})
		}
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		for i := range rounds {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				c := redistest.StartCluster(t)
				failover(t, primaries{
					url: c.URL(), all: c.Servers,
					victim: func() *redistest.Server { return c.Primaries()[0] },
					ready:  func() bool { return len(c.Primaries()) == 3 },
				})
			})
		}
	})
}

const (
	fleetLimit   = 400
	fleetKeys    = 12
	fleetCallers = 6
	fleetNodes   = 3 // limiters with their own stores, like instances
)

// fleet is a set of limiters that are offered more than the limit all the time.
type fleet struct {
	stores   []*redisstore.Store
	limiters []*sluice.Limiter
	prefix   string

	admitted [fleetKeys]atomic.Int64
	spent    [fleetKeys]atomic.Bool // denied by a server after the failover
	gone     [fleetKeys]atomic.Bool // the key was on the server that was killed
	asked    atomic.Int64
	answered atomic.Int64
	closed   atomic.Int64 // decided by the fail mode
	back     atomic.Int64 // time of the first decision about such a key, in Unix nanoseconds
	reached  chan int64   // admitted requests of a key, sent at 1/8 and 3/4 of the limit
}

func newFleet(t *testing.T, url string, hints bool) *fleet {
	c := &fleet{prefix: prefix(), reached: make(chan int64, 2*fleetKeys)}
	rule := sluice.Must(sluice.NewRule(sluice.Rule{
		Name: "r", Limit: sluice.PerDay(fleetLimit).WithAlgorithm(sluice.FixedWindow).WithAlign(sluice.AlignFirstRequest),
		OnFailure: sluice.FailClosed,
	}))
	for range fleetNodes {
		s := open(t, redisstore.Config{URL: url, KeyPrefix: c.prefix})
		if !hints {
			s.WithoutHints()
		}
		c.stores = append(c.stores, s)
		// The store timeout is long, because this tests decisions, not latency on a busy machine.
		c.limiters = append(c.limiters,
			sluice.Must(sluice.NewWithRules(s, []*sluice.Rule{rule}, sluice.WithStoreTimeout(250*time.Millisecond))))
	}
	return c
}

func fleetKey(i int) string { return string(rune('a' + i)) }

// call runs one caller, which uses the limiters in turn until stop is set.
func (c *fleet) call(t *testing.T, caller int, killed, stop *atomic.Bool) {
	for i := caller; !stop.Load(); i++ {
		key := i % fleetKeys
		c.asked.Add(1)
		d, err := c.limiters[i%fleetNodes].Allow(t.Context(), fleetKey(key))
		if err != nil {
			t.Errorf("Allow: %v", err)
			return
		}
		c.answered.Add(1)
		if !d.Allowed {
			<-time.After(time.Millisecond) // leave CPU time to the servers
		}
		if d.Source.Degraded() {
			c.closed.Add(1)
			continue
		}
		if c.gone[key].Load() {
			c.back.CompareAndSwap(0, time.Now().UnixNano())
		}
		if !d.Allowed {
			c.spent[key].Store(killed.Load())
			continue
		}
		if n := c.admitted[key].Add(1); n == fleetLimit/8 || n == fleetLimit*3/4 {
			c.reached <- n
		}
	}
}

// done reports whether the current primaries have denied every key, so that all of them were called again. The test
// cannot wait until all of the limit is admitted: when the server was killed, replies to some charges were lost.
func (c *fleet) done() bool {
	for i := range c.spent {
		if !c.spent[i].Load() {
			return false
		}
	}
	return true
}

// lose marks the keys that a server had.
func (c *fleet) lose(stored string) {
	for i := range c.gone {
		for _, name := range strings.Fields(stored) {
			if strings.HasPrefix(name, c.prefix) && strings.HasSuffix(name, ":"+fleetKey(i)) {
				c.gone[i].Store(true)
			}
		}
	}
}

func (c *fleet) most() (most int64) {
	for i := range c.admitted {
		most = max(most, c.admitted[i].Load())
	}
	return most
}

func failover(t *testing.T, p primaries) {
	t.Helper()
	with, without := newFleet(t, p.url, true), newFleet(t, p.url, false)
	fleets := []*fleet{with, without}
	var killed, stop atomic.Bool
	var work sync.WaitGroup
	for _, c := range fleets {
		for i := range fleetCallers {
			work.Go(func() { c.call(t, i, &killed, &stop) })
		}
	}
	defer func() {
		stop.Store(true)
		work.Wait()
	}()
	for _, c := range fleets {
		for <-c.reached != fleetLimit/8 {
		}
	}
	lossy := p.kill == nil
	if lossy {
		victim := p.victim()
		stopReplication(t, p.all)
		p.kill = func() {
			for _, c := range fleets {
				c.lose(do(t, victim, "KEYS", "*"))
			}
			victim.Kill()
		}
	}
	for _, c := range fleets {
		for <-c.reached != fleetLimit*3/4 {
		}
	}
	p.kill()
	// Replies of the killed server may still be on their way to callers.
	with.back.Store(0)
	without.back.Store(0)
	killed.Store(true)
	var ready time.Time
	deadline := time.After(2 * time.Minute)
	for tick := time.NewTicker(10 * time.Millisecond); ready.IsZero() || !with.done() || !without.done(); {
		if ready.IsZero() && p.ready() {
			ready = time.Now()
		}
		select {
		case <-tick.C:
		case <-deadline:
			if ready.IsZero() {
				t.Fatal("no replica was promoted")
			}
			t.Fatal("the limiters did not use the new primary")
		}
	}
	stop.Store(true)
	work.Wait()
	for _, c := range fleets {
		c.report(t, ready, c == with, lossy)
	}
}

// report checks a fleet against the bounds of one failover.
func (c *fleet) report(t *testing.T, ready time.Time, hints, lossy bool) {
	t.Helper()
	var restored int64
	for _, s := range c.stores {
		restored += s.FailoverRestores()
	}
	late, soon := max(0, time.Unix(0, c.back.Load()).Sub(ready)), "OK"
	if late > 2*time.Second {
		soon = "LATE"
	}
	t.Logf("hints %v: at most %d of %d admitted on a key, %d restored; %d calls, %d decided by the fail mode; "+
		"first call of the new primary after %v %s", hints, c.most(), fleetLimit, restored, c.answered.Load(), c.closed.Load(),
		late.Round(time.Millisecond), soon)
	bound := int64(2 * fleetLimit)
	if hints && lossy {
		bound = fleetLimit + fleetNodes - 1 + fleetCallers
	}
	switch {
	case c.most() > bound:
		t.Errorf("hints %v: %d admitted of %d over one failover, at most %d are allowed", hints, c.most(), fleetLimit, bound)
	case !lossy:
	case !hints && c.most() < fleetLimit+fleetLimit/4:
		t.Errorf("%d admitted of %d without hints: the failover lost nothing", c.most(), fleetLimit)
	case hints != (restored > 0):
		t.Errorf("hints %v: %d restored", hints, restored)
	}
	if c.closed.Load() == 0 {
		t.Error("the fail mode decided no call: the failover was not under load")
	}
	if c.answered.Load() != c.asked.Load() {
		t.Errorf("%d calls, %d decisions", c.asked.Load(), c.answered.Load())
	}
}

// stopReplication disconnects the replicas from their primaries, which then reject them.
func stopReplication(t *testing.T, servers []*redistest.Server) {
	t.Helper()
	for _, s := range servers {
		do(t, s, "CONFIG", "SET", "masteruser", "nobody")
		do(t, s, "CONFIG", "SET", "masterauth", "nothing")
	}
	for _, s := range servers {
		do(t, s, "CLIENT", "KILL", "TYPE", "replica")
	}
}

func clusterClient(t testing.TB, c *redistest.Cluster) rueidis.Client {
	t.Helper()
	option := rueidis.MustParseURL(c.URL())
	option.DisableCache, option.DisableRetry = true, true
	client, err := rueidis.NewClient(option)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}
