package memstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

// However many keys hold permits and however small the memory limit is, no key exceeds its concurrency limit, and after
// the TTL all permits are free.
func TestSlotsInLittleMemory(t *testing.T) {
	now := time.Date(2026, 3, 2, 1, 0, 0, 0, time.UTC)
	store := sluice.Must(memstore.Open(memstore.Config{MaxBytes: 1 << 20, Now: func() time.Time { return now }}))
	const most, lease, keys = 3, 10 * time.Second, 12_000
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.Concurrent(most).WithPermitTTL(lease)}))
	type held struct {
		at    int64
		until time.Time
	}
	flying := make([][]held, keys)
	apply := func(key int, cost, at int64) sluice.Decision {
		out := make([]sluice.Decision, 1)
		if err := store.Apply(background, []sluice.Take{{Rule: rule, Key: fmt.Sprint(key), Cost: cost, Receipt: at}}, out); err != nil {
			t.Fatal(err)
		}
		return out[0]
	}
	rng := rand.New(rand.NewPCG(1, 1))
	taken := 0
	for i := range 300_000 {
		if i%30 == 0 {
			now = now.Add(time.Millisecond)
		}
		key := rng.IntN(keys)
		mine := flying[key][:0]
		for _, h := range flying[key] {
			if h.until.After(now) {
				mine = append(mine, h)
			}
		}
		switch what := rng.IntN(4); {
		case what == 0 && len(mine) > 0:
			apply(key, -1, mine[0].at)
			mine = mine[1:]
		case what == 1 && len(mine) > 0:
			if d := apply(key, 1, mine[0].at); d.Allowed {
				mine = append(mine[1:], held{d.Receipt, now.Add(lease)})
			}
		default:
			if d := apply(key, 1, 0); d.Allowed {
				taken++
				mine = append(mine, held{d.Receipt, now.Add(lease)})
			}
		}
		if flying[key] = mine; len(mine) > most {
			t.Fatalf("call %d: %d are in flight of %d", i, len(mine), most)
		}
	}
	if taken < keys {
		t.Errorf("only %d were taken", taken)
	}
	now = now.Add(3 * lease)
	for key := range keys {
		if d := apply(key, 0, 0); d.Remaining != most {
			t.Fatalf("%d of key %d are free after the TTL", d.Remaining, key)
		}
	}
}
