package redisstore_test

import (
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/redistest"
	"github.com/sluiceproject/sluice/redisstore"
	"github.com/sluiceproject/sluice/storetest"
)

func openURL(t testing.TB, url string) *redisstore.Store {
	t.Helper()
	s, err := redisstore.Open(redisstore.Config{URL: url, Prefix: prefix()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// TestCluster holds the store to what it promises in a Cluster: calls over keys of several slots are seen in parts.
func TestCluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	client := clusterClient(t, cluster)
	storetest.Run(t, storetest.Harness{
		Open: func(_ testing.TB, clock *storetest.Clock) sluice.Store {
			return sluice.Must(redisstore.Open(redisstore.Config{Client: client, Prefix: prefix(), Now: clock.Now}))
		},
		Caps: storetest.Caps{SplitKeys: true},
	})
}

// A call over several slots that one of them denies leaves nothing charged, and whom it concerns is told so.
func TestClusterGivesBack(t *testing.T) {
	s := openURL(t, redistest.StartCluster(t).URL())
	wide := sluice.Must(sluice.NewRule(sluice.Rule{Name: "wide", Limit: sluice.PerHour(1000).With(sluice.FixedWindow)}))
	narrow := sluice.Must(sluice.NewRule(sluice.Rule{Name: "narrow", Limit: sluice.PerHour(3).With(sluice.FixedWindow)}))
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
				t.Errorf("call %d, take %d: %+v, want %d to remain", i, j, out[j], want)
			}
		}
	}
	parts := map[int]bool{}
	for i := range takes {
		parts[s.Server(&takes[i])] = true
	}
	if s.Servers() != 16 || len(parts) < 2 {
		t.Errorf("%d parts, of which six keys use %d", s.Servers(), len(parts))
	}
}

// primaries are what a failover test knows of its servers.
type primaries struct {
	url   string
	kill  func()      // a primary, under load
	ready func() bool // there is another, and it can be written to
}

// Under load a primary dies. Every call is answered, the limiter goes back to the new primary by itself, and what was
// admitted stays within what losing the last writes allows: the limit once more for each failover.
func TestFailovers(t *testing.T) {
	rounds := 1
	if os.Getenv("SLUICE_SOAK") != "" {
		rounds = 20
	}
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		for range rounds {
			s := redistest.StartSentinels(t)
			failover(t, primaries{s.URL(), func() { s.Primary().Kill() }, func() bool { return s.Primary() != nil }})
		}
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		for range rounds {
			c := redistest.StartCluster(t)
			failover(t, primaries{c.URL(), func() { c.Primaries()[0].Kill() }, func() bool { return len(c.Primaries()) == 3 }})
		}
	})
}

func failover(t *testing.T, p primaries) {
	t.Helper()
	const limit, keys, callers = 400, 24, 8
	rule := sluice.Must(sluice.NewRule(sluice.Rule{
		Name: "r", Limit: sluice.PerHour(limit).With(sluice.FixedWindow), OnFailure: sluice.FailClosed,
	}))
	// The budget is generous: this is about what is answered, not how soon on a busy machine.
	l := sluice.Must(sluice.NewRules(openURL(t, p.url), []*sluice.Rule{rule}, sluice.WithBudget(250*time.Millisecond)))
	var (
		admitted [keys]atomic.Int64
		spent    [keys]atomic.Bool // a server said so after the failover
		killed   atomic.Bool
		closed   atomic.Int64
		stop     atomic.Bool
		work     sync.WaitGroup
		half     = make(chan bool)
		once     sync.Once
	)
	for c := range callers {
		work.Go(func() {
			for i := c; !stop.Load(); i++ {
				d, err := l.Allow(t.Context(), string(rune('a'+i%keys)))
				if err != nil {
					t.Errorf("a call was not answered: %v", err)
					return
				}
				switch {
				case d.Source.Degraded():
					closed.Add(1)
					<-time.After(time.Millisecond) // let the servers have the processors
				case !d.Allowed && killed.Load():
					spent[i%keys].Store(true)
				}
				if d.Allowed && admitted[i%keys].Add(1) == limit/2 {
					once.Do(func() { close(half) })
				}
			}
		})
	}
	<-half
	p.kill()
	killed.Store(true)
	// Every key is spent at the primaries of now, so all of them were asked again. That all of the limit was admitted
	// cannot be waited for: of what was charged when the server died some answers were lost.
	full := func() bool {
		for i := range spent {
			if !spent[i].Load() {
				return false
			}
		}
		return p.ready()
	}
	deadline := time.After(2 * time.Minute)
	for tick := time.NewTicker(10 * time.Millisecond); !full(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("the limiter did not go back to the new primary")
		}
	}
	stop.Store(true)
	work.Wait()
	most := int64(0)
	for i := range admitted {
		most = max(most, admitted[i].Load())
	}
	t.Logf("at most %d of %d admitted on a key over one failover; %d calls were answered while the server was away", most, limit, closed.Load())
	if most > 2*limit {
		t.Errorf("%d admitted of %d over one failover", most, limit)
	}
	if closed.Load() == 0 {
		t.Error("no call was answered by the fail mode: the failover was not under load")
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
