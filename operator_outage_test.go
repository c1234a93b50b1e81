package sluice_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/memstore"
)

// A reset or block that fails at the store does not change the local state either: the key gets no fresh quota, a block
// that could not be lifted stays, and usage that the store has lost is restored.
func TestFailedOperatorCalls(t *testing.T) {
	rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.PerHour(10)})
	for name, call := range map[string]func(*sluice.Limiter) error{
		"Block":   func(l *sluice.Limiter) error { return l.Block(t.Context(), "spent", time.Hour) },
		"unblock": func(l *sluice.Limiter) error { return l.Block(t.Context(), "blocked", 0) },
		"Reset":   func(l *sluice.Limiter) error { return l.Reset(t.Context(), "spent") },
		"ResetRules": func(l *sluice.Limiter) error {
			return second(l.ResetRules(t.Context(), sluice.ResetOptions{Rules: l.Rules()}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--save", "")
			store := openRedis(t, server.URL())
			l := sluice.Must(sluice.NewWithRules(store, []*sluice.Rule{rule}, sluice.WithStoreTimeout(time.Second)))
			if d := mustAllow(t, l, "spent", 10); !d.Allowed || d.Source != sluice.SourceStore {
				t.Fatalf("%+v", d)
			}
			if err := l.Block(t.Context(), "blocked", time.Hour); err != nil {
				t.Fatal(err)
			}
			server.Kill()
			for range 3 {
				if err := call(l); !errors.Is(err, sluice.ErrUnavailable) {
					t.Fatalf("without a server: %v, want ErrUnavailable", err)
				}
				for _, key := range []string{"spent", "blocked"} {
					if d := mustAllow(t, l, key, 1); d.Allowed {
						t.Errorf("%s has quota after a call that failed: %+v", key, d)
					}
				}
			}
			if err := server.Restart(); err != nil { // empty
				t.Fatal(err)
			}
			deadline := time.Now().Add(20 * time.Second)
			for {
				d, err := l.Peek(t.Context(), "spent")
				if err != nil || time.Now().After(deadline) {
					t.Fatalf("the store is not used again: %+v %v", d, err)
				}
				if d.Source == sluice.SourceStore {
					break
				}
			}
			if d := mustAllow(t, l, "spent", 1); d.Allowed {
				t.Errorf("usage that the server lost was not restored: %+v", d)
			}
		})
	}
}

func second[T any](_ T, err error) error { return err }

// A block keeps the usage: it is no reset.
func TestBlocksKeepUsage(t *testing.T) {
	s := newFar()
	l := farLimiter(t, s, sluice.FailLocal)
	limit := l.Rules()[0].Limit.Max()
	if d := mustAllow(t, l, "k", limit); !d.Allowed {
		t.Fatalf("%+v", d)
	}
	for _, d := range []time.Duration{time.Hour, 0} {
		if err := l.Block(t.Context(), "k", d); err != nil {
			t.Fatal(err)
		}
	}
	s.disturb(refuses)
	if d := mustAllow(t, l, "k", limit); d.Allowed || d.Source != sluice.SourceFailLocal {
		t.Errorf("after a block was lifted and the store became unavailable: %+v", d)
	}
}

// Methods that apply the limiter's own rules return an error if there are none.
func TestNoRules(t *testing.T) {
	l := sluice.Must(sluice.NewWithRules(memstore.New(), nil))
	_, blocked := l.Blocked(t.Context(), "k")
	_, escalated := l.Escalate(t.Context(), "k", sluice.Escalation{Blocks: []time.Duration{1}, ForgetAfter: time.Hour})
	for name, err := range map[string]error{
		"Block": l.Block(t.Context(), "k", time.Hour), "Reset": l.Reset(t.Context(), "k"), "Blocked": blocked, "Escalate": escalated,
	} {
		if !errors.Is(err, sluice.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
}

// With several rules, callers get the decision of an enforced rule, however little quota a rule in shadow mode has
// left.
func TestShadowIsLeastRestrictive(t *testing.T) {
	shadow := mustRule(t, sluice.Rule{Name: "trial", Limit: sluice.PerDay(1), Shadow: true})
	enforced := mustRule(t, sluice.Rule{Name: "real", Limit: sluice.PerDay(100)})
	for name, rules := range map[string][]*sluice.Rule{"first": {shadow, enforced}, "last": {enforced, shadow}} {
		l := sluice.Must(sluice.NewWithRules(memstore.New(), rules))
		for range 3 {
			if d := mustAllow(t, l, "k", 1); d.Rule != enforced {
				t.Errorf("%s: the decision is that of %s", name, d.Rule.Name)
			}
		}
		if d, err := l.Peek(t.Context(), "k"); err != nil || d.Rule != enforced {
			t.Errorf("%s: %+v %v", name, d, err)
		}
	}
	only := sluice.Must(sluice.NewWithRules(memstore.New(), []*sluice.Rule{shadow}))
	if d := mustAllow(t, only, "k", 1); d.Rule != shadow {
		t.Errorf("%+v", d)
	}
	if i := sluice.MostRestrictive(nil); i != -1 {
		t.Errorf("of none: %d", i)
	}
}

// New rejects a store that is a nil pointer, and accepts a nil option.
func TestNilArguments(t *testing.T) {
	var store *memstore.Store
	if _, err := sluice.New(store, "r", sluice.PerDay(1)); !errors.Is(err, sluice.ErrInvalid) {
		t.Errorf("a nil *memstore.Store: %v", err)
	}
	if _, err := sluice.New(memstore.New(), "r", sluice.PerDay(1), nil); err != nil {
		t.Errorf("a nil option: %v", err)
	}
}
