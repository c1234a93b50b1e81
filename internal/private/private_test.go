package private_test

import (
	"context"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/memstore"
)

// wrapped hides the type of its store.
type wrapped struct{ sluice.Store }

func TestFastOf(t *testing.T) {
	store := memstore.New()
	if private.FastOf(store) == nil {
		t.Error("a memstore offers no shortcut")
	}
	if private.FastOf(wrapped{store}) != nil {
		t.Error("a store that hides another offers its shortcut")
	}
}

func TestDoor(t *testing.T) {
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerHour(5)}))
	if got := private.RuleOf(rule); got.Name != "r" || got.Public != any(rule) {
		t.Errorf("the rule is %+v", got)
	}
	if p := private.ParamsOf(&rule.Limit); p == nil || p.Limit() != 5 || private.CounterKind(&rule.Limit) == "" {
		t.Errorf("the limit's numbers are %+v", p)
	}
	if unbuilt := sluice.PerHour(5); private.ParamsOf(&unbuilt) != nil || private.CounterKind(&unbuilt) != "" {
		t.Error("a limit that was not built has numbers")
	}
}

// A store that hides its fast path makes the same decisions.
func TestWrapped(t *testing.T) {
	limit := sluice.PerHour(2)
	for name, store := range map[string]sluice.Store{"own": memstore.New(), "wrapped": wrapped{memstore.New()}} {
		l := sluice.Must(sluice.New(store, "r", limit))
		for i, want := range []bool{true, true, false} {
			if d, err := l.Allow(context.Background(), "k"); err != nil || d.Allowed != want {
				t.Errorf("%s: take %d: %+v, %v", name, i, d, err)
			}
		}
	}
}
