package storekit_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/storekit"
	"github.com/sluiceproject/sluice/memstore"
)

func TestSetOp(t *testing.T) {
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerHour(5)}))
	var op group.Op
	if err := storekit.SetOp(&op, &sluice.Take{Rule: rule, Key: "k", Cost: 2, MaxDelay: time.Second}); err != nil {
		t.Fatal(err)
	}
	if op.Key != "k" || op.Request.Cost != 2 || op.Request.MaxDelay != 1_000_000 || op.Params.Limit() != 5 || op.By.Name != "r" {
		t.Errorf("the take is %+v", op)
	}
	unbuilt := sluice.PerHour(5)
	for name, take := range map[string]sluice.Take{
		"no rule": {}, "a rule not of NewRule": {Rule: new(sluice.Rule)}, "a limit not of Build": {Rule: rule, Limit: &unbuilt},
		"a cost too large": {Rule: rule, Cost: sluice.MaxCost + 1}, "nothing to give back": {Rule: rule, Cost: -1},
		"a delay below nothing": {Rule: rule, MaxDelay: -1}, "a dry run with a cost": {Rule: rule, Cost: 1, DryRun: true},
	} {
		if err := storekit.Validate(&take); !errors.Is(err, sluice.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		store, out := memstore.New(), make([]sluice.Decision, 1)
		if err := store.Apply(context.Background(), []sluice.Take{{Rule: rule, Cost: 1}}, out); err != nil { // the fast path is for existing keys
			t.Fatal(err)
		}
		if err := store.Apply(context.Background(), []sluice.Take{take}, out); !errors.Is(err, sluice.ErrInvalid) {
			t.Errorf("%s: the store says %v", name, err)
		}
		limiter := sluice.Must(sluice.NewWithRules(memstore.New(), []*sluice.Rule{rule}))
		if _, err := limiter.Decide(context.Background(), []sluice.Take{take}, make([]sluice.Decision, 1)); !errors.Is(err, sluice.ErrInvalid) {
			t.Errorf("%s: the limiter says %v", name, err)
		}
	}
}

// allowing is an engine that allows all takes.
type allowing struct{}

func (allowing) ApplyOps(_ context.Context, ops []group.Op, out []group.Answer) error {
	for i := range ops {
		out[i] = group.Answer{Allowed: true, Limit: ops[i].Params.Limit(), Granted: ops[i].Request.Cost}
	}
	return nil
}

func (allowing) ShardOf(*group.Op) int { return 0 }

// A store does not retain takes and decisions, so that a caller's stay on the stack.
func TestTakesStayOnTheStack(t *testing.T) {
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerHour(1 << 30)}))
	store := memstore.New()
	inMemory := func(smallest int64) bool {
		takes, out := [8]sluice.Take{{Rule: rule, Key: "k", Cost: 2, MinGrant: smallest}}, [8]sluice.Decision{}
		return store.Apply(context.Background(), takes[:1], out[:1]) == nil && out[0].Granted == 2
	}
	byEngine := func(smallest int64) bool {
		takes, out := [8]sluice.Take{{Rule: rule, Key: "k", Cost: 2, MinGrant: smallest}}, [8]sluice.Decision{}
		return storekit.Apply(context.Background(), "store", allowing{}, takes[:1], out[:1]) == nil && out[0].Granted == 2
	}
	for _, tt := range []struct {
		name  string
		apply func(smallest int64) bool
		most  float64 // under the race detector pools drop 25 % of their items; takes and decisions on the heap would be 2 more
	}{{"in memory", inMemory, 0}, {"by an engine", byEngine, 1}} {
		for _, smallest := range []int64{0, 1} {
			if n := testing.AllocsPerRun(400, func() {
				if !tt.apply(smallest) {
					t.Error(tt.name, "was not granted")
				}
			}); n > tt.most {
				t.Errorf("%s, Min %d: %v allocations", tt.name, smallest, n)
			}
		}
	}
}
