package memcachestore_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
	"github.com/sluiceproject/sluice/memcachestore"
	"github.com/sluiceproject/sluice/storetest"
)

// accountRules returns rules of the kinds whose takes can be refunded completely while the clock stands still.
func accountRules() (rules []*sluice.Rule) {
	subWindows := sluice.Per(30, time.Hour).WithAlgorithm(sluice.SlidingWindowCounter)
	subWindows.SubWindows = 4
	for i, l := range []sluice.Limit{
		sluice.Per(40, time.Hour), sluice.Per(35, time.Hour).WithAlgorithm(sluice.FixedWindow), subWindows,
		sluice.Per(30, time.Hour).WithAlgorithm(sluice.SlidingWindowLog), sluice.Per(25, time.Hour).WithAlgorithm(sluice.SlidingWindowCounter),
		{Count: 20, Window: time.Hour, Refill: sluice.RefillInterval},
		sluice.Per(10, time.Hour),
	} {
		rules = append(rules, sluice.Must(sluice.NewRule(sluice.Rule{Name: fmt.Sprint(i), Limit: l, Shadow: i == 6})))
	}
	return rules
}

// TestAccounts lets several processes make random concurrent calls on several keys, with IDs, partial grants and
// refunds. At the end the usage of every key must equal the granted minus the refunded cost, and be at most its limit.
func TestAccounts(t *testing.T) {
	addrs := []string{memcachetest.Start(t).Addr, memcachetest.Start(t).Addr}
	rounds, calls := uint64(4), 40
	if os.Getenv("SLUICE_SOAK") != "" {
		rounds, calls = 200, 200
	}
	var conflicts, givenBack int64
	for round := range rounds {
		var all []*memcachestore.Store
		for range 3 {
			c := memcachestore.Config{Addrs: addrs, KeyPrefix: fmt.Sprintf("%d:", round), Now: storetest.NewClock().Now}
			all = append(all, openStore(t, c))
		}
		rules := accountRules()
		books := &books{rules: rules, balance: make([]atomic.Int64, len(rules))}
		each(all, 4, func(s *memcachestore.Store, caller int) {
			rng := rand.New(rand.NewPCG(round, uint64(caller)))
			for i := range calls {
				books.call(t, s, rng, uint64(caller*calls+i+1))
			}
		})
		for i, r := range rules {
			n := spent(t, all[0], r, "k")
			if want := books.balance[i].Load(); n != want || n > r.Limit.Max() {
				t.Errorf("round %d, %v: usage is %d, granted %d", round, r.Limit, n, want)
			}
		}
		for _, s := range all {
			conflicts, givenBack = conflicts+s.Stats().CASConflicts, givenBack+s.Stats().Refunds
			_ = s.Close() // the next round opens others
		}
	}
	t.Logf("%d conflicts, %d takes refunded", conflicts, givenBack)
}

// books records the granted minus the refunded cost, as the callers see it.
type books struct {
	rules   []*sluice.Rule
	balance []atomic.Int64 // by rule
}

// call makes a random call and records the granted cost.
func (b *books) call(t *testing.T, s *memcachestore.Store, rng *rand.Rand, id uint64) {
	order := rng.Perm(len(b.rules))[:1+rng.IntN(4)]
	takes := make([]sluice.Take, len(order))
	for i, j := range order {
		takes[i] = sluice.Take{Rule: b.rules[j], Key: "k", Cost: rng.Int64N(4)}
		if rng.IntN(3) == 0 {
			takes[i].IdempotencyID = id
		}
		if takes[i].Cost > 1 && rng.IntN(3) == 0 {
			takes[i].MinGrant = 1
		}
	}
	out := apply(t, s, takes...)
	denied := false
	for i := range takes {
		denied = denied || !out[i].Allowed && !takes[i].Rule.Shadow && takes[i].Cost > 0
	}
	for i, j := range order {
		if denied && out[i].Granted != 0 {
			t.Errorf("granted %d in a call that was denied", out[i].Granted)
		}
		b.balance[j].Add(out[i].Granted)
		if out[i].Granted > 0 && rng.IntN(2) == 0 {
			back := sluice.Take{Rule: b.rules[j], Key: "k", Cost: -out[i].Granted, Receipt: out[i].Receipt}
			b.balance[j].Add(apply(t, s, back)[0].Granted)
		}
	}
}
