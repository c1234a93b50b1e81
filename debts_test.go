package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
)

// What was admitted while the store was away is on its way to the store, and then does not arrive. It is still owed, and
// meanwhile no other call is answered by the store, which would admit the same once more.
func TestDebtsOutliveAPaymentThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := newFar()
		rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerDay(10).With(sluice.FixedWindow)}))
		l := sluice.Must(sluice.NewRules(far, []*sluice.Rule{rule}))
		admitted := 0
		var counting sync.Mutex
		ask := func() sluice.Decision {
			d := sluice.Must(l.Allow(t.Context(), "k"))
			counting.Lock()
			defer counting.Unlock()
			if d.Allowed {
				admitted++
			}
			return d
		}
		far.disturb(refuses)
		for range 6 {
			ask()
		}
		held := make(chan struct{})
		var onItsWay atomic.Bool
		far.disturb(func(_ context.Context, take *sluice.Take) error {
			if take.Min == 0 { // what everybody asks
				return nil
			}
			onItsWay.Store(true)
			<-held
			return errAway
		})
		var payer sync.WaitGroup
		for !onItsWay.Load() {
			pause(time.Second)
			payer.Go(func() { ask() })
			synctest.Wait()
		}
		for range 3 {
			if d := ask(); d.Source == sluice.SourceStore {
				t.Errorf("answered before the payment: %+v", d)
			}
			pause(sluice.DefaultBudget)
		}
		close(held)
		payer.Wait()
		far.disturb(nil)
		for d := ask(); d.Allowed || d.Source != sluice.SourceStore; d = ask() {
			pause(time.Second)
		}
		if admitted > 10 {
			t.Errorf("%d of 10 were admitted", admitted)
		}
	})
}

// What a process admitted while the store was away is charged there though nothing asks that process about the key again:
// its callers have moved to another, or it ends.
func TestDebtsArePaidUnasked(t *testing.T) {
	for name, then := range map[string]func(t *testing.T, l *sluice.Limiter){
		"later": func(*testing.T, *sluice.Limiter) { pause(3 * time.Second) },
		"closed": func(t *testing.T, l *sluice.Limiter) {
			if err := l.Close(t.Context()); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const keys, limit = 200, 10
				far := newFar()
				far.servers = 3
				rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.PerDay(limit).With(sluice.FixedWindow)})
				two := sluice.WithNodes(func() int { return 2 })
				first := sluice.Must(sluice.NewRules(far, []*sluice.Rule{rule}, two))
				other := sluice.Must(sluice.NewRules(far, []*sluice.Rule{rule}, two))
				admitted := make([]int64, keys)
				key := func(i int) string { return fmt.Sprint("key", i) }
				askAll := func(l *sluice.Limiter) {
					for i := range admitted {
						for range limit + 1 {
							admitted[i] += mustAllow(t, l, key(i), 1).Granted
						}
					}
				}
				far.disturb(refuses)
				askAll(first)
				pause(time.Minute)
				far.disturb(nil)
				then(t, first)
				askAll(other)
				for i, n := range admitted {
					if n < limit || n > limit+1 { // which is the limit, and one less than there are processes
						t.Errorf("%s: %d admitted of %d", key(i), n, limit)
					}
				}
				if err := errors.Join(first.Close(t.Context()), other.Close(t.Context())); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A process that owes something asks a server that is away at most once a second besides what it asks for its callers, and
// stops when nothing of it counts any more.
func TestDebtsThatCannotBePaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := newFar()
		l := sluice.Must(sluice.New(far, "r", sluice.PerMinute(10).With(sluice.FixedWindow)))
		far.disturb(refuses)
		for i := range 1000 {
			mustAllow(t, l, fmt.Sprint(i), 1)
		}
		before := far.calls.Load()
		pause(10 * time.Minute)
		if n := far.calls.Load() - before; n < 10 || n > 90 {
			t.Errorf("%d calls to a server that is away, in the minute for which something is owed", n)
		}
		before = far.calls.Load()
		pause(time.Hour)
		if n := far.calls.Load() - before; n != 0 {
			t.Errorf("%d calls after all that was owed has expired", n)
		}
	})
}
