package memcachestore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
	"github.com/sluiceproject/sluice/memcachestore"
)

// TestLimiterSurvivesAServer checks that a limiter decides every call while a server is unavailable, those for keys of
// other servers as usual, and uses the server again when it is back.
func TestLimiterSurvivesAServer(t *testing.T) {
	servers := []*memcachetest.Server{memcachetest.Start(t), memcachetest.Start(t)}
	s := openStore(t, memcachestore.Config{Addrs: []string{servers[0].Addr, servers[1].Addr}})
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerHour(1_000_000)}))
	l := sluice.Must(sluice.NewWithRules(s, []*sluice.Rule{rule}, sluice.WithStoreTimeout(patient)))
	keys := [2]string{}
	for i := 0; keys[0] == "" || keys[1] == ""; i++ {
		k := fmt.Sprint("key", i)
		keys[s.Shard(&sluice.Take{Rule: rule, Key: k})] = k
	}
	sources := func() (got [2]sluice.Source) {
		for i, k := range keys {
			d, err := l.Allow(t.Context(), k)
			if err != nil || !d.Allowed {
				t.Fatalf("%s: %+v %v", k, d, err)
			}
			got[i] = d.Source
		}
		return got
	}
	if got := sources(); got != [2]sluice.Source{} {
		t.Fatalf("sources of decisions: %v", got)
	}
	servers[1].Kill()
	for range 50 {
		if got := sources(); got != [2]sluice.Source{sluice.SourceStore, sluice.SourceFailLocal} {
			t.Fatalf("sources of decisions with one server unavailable: %v", got)
		}
	}
	servers[1].Restart()
	deadline := time.After(patient)
	for again := 0; again < 20; { // its share of the calls grows
		if sources() == [2]sluice.Source{} {
			again++
		}
		select {
		case <-deadline:
			t.Fatal("the server was not called again")
		default:
		}
	}
}
