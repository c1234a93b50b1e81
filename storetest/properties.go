package storetest

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// properties generates random histories with rapid, which shrinks a failing history to its smallest form. It compares
// each decision with that of the reference, and checks that it is consistent.
func properties(t *testing.T, h Harness) {
	rounds := 1
	if soak() {
		rounds = 100
	}
	for range rounds {
		rapid.Check(t, func(rt *rapid.T) {
			draw := func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "") }
			m := newStateMachine(h.opener(t), draw)
			rt.Repeat(map[string]func(*rapid.T){
				"call": func(rt *rapid.T) {
					if err := m.step(); err != nil {
						rt.Fatal(err)
					}
				},
			})
		})
		if t.Failed() {
			return
		}
	}
}

// stateMachine applies generated calls to a store.
type stateMachine struct {
	g       *generator
	player  *player
	history History
}

func newStateMachine(o *opener, draw func(n int) int) *stateMachine {
	return &stateMachine{g: newGenerator(draw, o.caps), player: newPlayer(o.store())}
}

// step generates one call and compares the decisions.
func (m *stateMachine) step() error {
	m.history.ops = append(m.history.ops, m.g.next())
	i := len(m.history.ops) - 1
	o := &m.history.ops[i]
	got, err := m.player.play(o)
	if err = compareAnswers(got, err, o); err != nil {
		return fmt.Errorf("call %d: %w\n%s", i, err, m.history.tail(i, o))
	}
	for j := range got {
		if d := &got[j]; d.Remaining < 0 || d.Remaining > d.Limit || d.Allowed && (d.ExceedsLimit || d.RetryAfter != 0) ||
			!d.Allowed && !d.ExceedsLimit && d.RetryAfter <= 0 || d.ResetAfter < 0 || d.Delay < 0 {
			return fmt.Errorf("call %d, take %d: inconsistent decision: %s", i, j, describe(d))
		}
	}
	return nil
}

// randomHistories compares the store's decisions for histories that are the same in every run.
func randomHistories(o *opener) error {
	histories, calls := 10, 400
	if soak() {
		histories, calls = 3000, 1000
	}
	for seed := range uint64(histories) {
		if err := compareHistory(o, RandomHistory(seed, calls)); err != nil {
			return fmt.Errorf("seed %d: %w", seed, err)
		}
	}
	return nil
}
